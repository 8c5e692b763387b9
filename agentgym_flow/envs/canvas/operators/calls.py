"""What the interpreter asks of a backend, and what it gets: a call of one operator, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from agentgym_flow.core import AnswerStore
from agentgym_flow.seeding import stable_hash


@dataclass(frozen=True)
class WorkflowProblem:
    """What a workflow is run on.

    Attributes:
        task_id: names the task to the backend.
        text: the problem in words.
        entry_point: the name of the function that is asked for; empty when none is.
        tests: the public tests. Hidden ones have no place here, so that no operator can see them.
    """

    task_id: str
    text: str
    entry_point: str = ""
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """What an operator made.

    Attributes:
        text: what a reader sees: the plan, the solution, the answer. For a program, its output.
        code: the program, where there is one.
        items: the steps of a plan, or the sub-problems.
        passed: the verdict of a checker; None for other operators.
        notes: what a checker found.
        data: anything more that a backend wants to find again in the inputs of later calls; JSON-able, and never
            changed once it is here. Nothing else reads it.
    """

    text: str = ""
    code: str = ""
    items: tuple[str, ...] = ()
    passed: bool | None = None
    notes: str = ""
    data: Any = None

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Equal for equal values, and can be a key."""
        data = "" if self.data is None else stable_hash(self.data)
        return self.text, self.code, self.items, self.passed, self.notes, data


Input: TypeAlias = str | tuple[str, ...] | Value | tuple[Value, ...] | None
"""An input of an operator; `operators.INPUTS` says which is of which type."""


@dataclass(frozen=True)
class OpCall:
    """A call of one operator: everything that its result may depend on.

    Attributes:
        operator: its name.
        task_id: names the task.
        place: the id of its node in the workflow.
        attempt: how often this node has been called before in this run; above 0 only in loops.
        inputs: what it is given, by the names that `operators.OPERATORS` declares for it.
        instruction: what the workflow tells it; empty for the default of its declaration.
        seed: what chance is drawn from.
    """

    operator: str
    task_id: str
    place: str
    attempt: int
    inputs: Mapping[str, Input]
    instruction: str
    seed: int

    @cached_property
    def input_digest(self) -> str:
        """64 hex digits, equal for equal inputs."""
        return stable_hash(self.identity[-1])

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Equal for equal calls, the instruction included, and can be a key."""
        inputs = tuple([(name, _identity(value)) for name, value in self.inputs.items()])
        return self.operator, self.task_id, self.place, self.attempt, self.instruction, self.seed, inputs

    @cached_property
    def digest(self) -> str:
        """64 hex digits, equal for equal calls, in every process."""
        return stable_hash(self.identity)


def _identity(value: Input) -> Any:
    """Return what tells inputs apart; one value and a tuple of one are two things."""
    if isinstance(value, Value):
        return value.identity
    if isinstance(value, tuple):
        return tuple([(item.identity,) if isinstance(item, Value) else item for item in value])
    return value


@dataclass(frozen=True)
class OpResult:
    """What came of a call.

    Attributes:
        status: whether it worked. An error is never dressed up as a value.
        value: what was made; None unless `status` is `"ok"`.
        text: for an error or a timeout, what happened, in our words; else free for a backend, such as what a model
            said before a value was read out of it.
        tokens: how many were read and written for it.
        cost: what it cost, in the backend's currency.
        latency: how long it took, in seconds; simulated backends say 0.
    """

    status: Literal["ok", "error", "timeout"]
    value: Value | None = None
    text: str = ""
    tokens: int = 0
    cost: float = 0.0
    latency: float = 0.0


@runtime_checkable
class KeepsAnswers(Protocol):
    """A backend that asks a server, and need not ask again for what is kept."""

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers from `store` where it has them, and give it every new one as it comes; None: no more."""


class Backend(Protocol):
    """What does the work of the operators."""

    def run(self, call: OpCall) -> OpResult:
        """Return what came of the call; failures of the operator are a result, not an exception.

        Called from several threads at once when the interpreter runs branches concurrently. For an exact repetition the
        result depends on the call alone.
        """
