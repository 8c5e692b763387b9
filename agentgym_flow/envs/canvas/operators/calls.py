"""The interface between interpreter and backend: a call of one operator, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from agentgym_flow.core import AnswerStore, stable_hash


@dataclass(frozen=True)
class WorkflowProblem:
    """The input of a workflow.

    Attributes:
        task_id: identifies the task for the backend.
        text: the problem in words.
        entry_point: the name of the function to write; empty if there is none.
        tests: the public tests. There is no field for hidden ones, so no operator can see them.
    """

    task_id: str
    text: str
    entry_point: str = ""
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """The output of an operator.

    Attributes:
        text: the plan, the solution or the answer. For a program, its output.
        code: the program, if there is one.
        items: the steps of a plan, or the sub-problems.
        passed: the verdict of a checker; None for other operators.
        notes: the findings of a checker.
        data: further data of the backend, which it finds again in the inputs of later calls; JSON-able and never
            modified. Nothing else reads it.
    """

    text: str = ""
    code: str = ""
    items: tuple[str, ...] = ()
    passed: bool | None = None
    notes: str = ""
    data: Any = None

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal values."""
        data = "" if self.data is None else stable_hash(self.data)
        return self.text, self.code, self.items, self.passed, self.notes, data


Input: TypeAlias = str | tuple[str, ...] | Value | tuple[Value, ...] | None
"""An input of an operator; `operators.INPUTS` has the type of each."""


@dataclass(frozen=True)
class OpCall:
    """A call of one operator: everything that its result may depend on.

    Attributes:
        operator: its name.
        task_id: identifies the task.
        place: the id of its node in the workflow.
        attempt: the number of earlier calls of this node in this run; above 0 only in loops.
        inputs: its inputs by name.
        instruction: its instruction in the workflow; empty for the default one.
        seed: the seed of randomness.
    """

    operator: str
    task_id: str
    place: str
    attempt: int
    inputs: Mapping[str, Input]
    instruction: str
    seed: int

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal calls, the instruction included."""
        inputs = tuple([(name, _identity(value)) for name, value in self.inputs.items()])
        return self.operator, self.task_id, self.place, self.attempt, self.instruction, self.seed, inputs

    @cached_property
    def digest(self) -> str:
        """A digest of 64 hex digits, equal for equal calls in every process."""
        return stable_hash(self.identity)


def _identity(value: Input) -> Any:
    """Return a hashable key of an input; a value differs from a tuple of one value."""
    if isinstance(value, Value):
        return value.identity
    if isinstance(value, tuple):
        return tuple([(item.identity,) if isinstance(item, Value) else item for item in value])
    return value


@dataclass(frozen=True)
class OpResult:
    """The result of a call.

    Attributes:
        status: whether the call succeeded.
        value: the output; None unless `status` is `"ok"`.
        text: for an error or a timeout, a description in our words; otherwise free for the backend, such as the raw
            reply of a model.
        tokens: the number of tokens read and written.
        cost: the cost in the backend's currency.
        latency: the duration in seconds; 0 for simulated backends.
    """

    status: Literal["ok", "error", "timeout"]
    value: Value | None = None
    text: str = ""
    tokens: int = 0
    cost: float = 0.0
    latency: float = 0.0


@runtime_checkable
class KeepsAnswers(Protocol):
    """A backend that uses a server and can reuse stored answers."""

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers from `store` if it has them, and add every new one to it; None to stop."""


class Backend(Protocol):
    """Executes operators."""

    def run(self, call: OpCall) -> OpResult:
        """Return the result of a call; failures of the operator are results, not exceptions.

        The interpreter may call it from several threads at once. Runs are reproducible only if the result depends on
        the call alone.
        """
