"""Records of workflow runs: every call with its result, the final results, and the calls that led to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value


class StepId(NamedTuple):
    """The identifier of a step of a run.

    Attributes:
        place: the id of the node.
        attempt: the number of earlier calls of the node.
    """

    place: str
    attempt: int


By: TypeAlias = tuple[StepId, ...]
"""The steps that produced something."""


class StepValue(NamedTuple):
    """A value with the steps that produced it."""

    value: Value
    by: By


class RunState(NamedTuple):
    """The state at a point of a run.

    Attributes:
        results: the current results; several after branches that no operator has combined.
        plan: the last plan.
        pieces: the sub-problems.
        pieces_by: the steps that produced the sub-problems.
        to_share: whether the sub-problems are new, so that parallel branches distribute them.
        notes: the notes of the last checker, until the solution changes.
        control: the checks whose verdicts led here.
    """

    results: tuple[StepValue, ...] = ()
    plan: StepValue | None = None
    pieces: tuple[str, ...] = ()
    pieces_by: By = ()
    to_share: bool = False
    notes: StepValue | None = None
    control: By = ()

    @property
    def values(self) -> tuple[Value, ...]:
        """The results without their steps."""
        return tuple(made.value for made in self.results)

    def then(self, results: tuple[StepValue, ...], notes: StepValue | None = None) -> RunState:
        """Return the state after a node with these results."""
        return RunState(results, self.plan, self.pieces, self.pieces_by, False, notes, self.control)


@dataclass(frozen=True, slots=True)
class RunStep:
    """One call.

    Attributes:
        id: its identifier.
        operator: the name of the operator.
        result: the result.
        cached: whether the result was taken from the cache.
        reads: the steps that produced its inputs, and those whose verdicts led to it.
        call: the call of the backend.
    """

    id: StepId
    operator: str
    result: OpResult
    cached: bool
    reads: tuple[StepId, ...]
    call: OpCall = field(compare=False)

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.result.status == "ok"

    @property
    def identity(self) -> tuple[Any, ...]:
        """A key of the step and its value; cost and cache do not affect it."""
        value = self.result.value
        return *self.id, self.operator, self.result.status, None if value is None else value.identity


@dataclass(frozen=True)
class WorkflowRun:
    """The record of a run. Equal for equal workflows, problems, seeds and backends.

    Attributes:
        steps: the calls in the order of the workflow's text with loops unrolled, whatever the timing of concurrent
            branches.
        results: the final results: one value, several after branches that no operator combined, or none.
        made_by: the steps that produced `results`.
        stages: the state after each top-level node.
        counts: the number of steps after each top-level node.
    """

    steps: tuple[RunStep, ...]
    results: tuple[Value, ...]
    made_by: tuple[StepId, ...]
    stages: tuple[RunState, ...] = field(default=(), compare=False, repr=False)
    counts: tuple[int, ...] = field(default=(), compare=False, repr=False)

    @property
    def value(self) -> Value | None:
        """The result, or None if there is none or more than one."""
        return self.results[0] if len(self.results) == 1 else None

    @cached_property
    def answer(self) -> str:
        """The results as text, one per line; empty if there is none."""
        return "\n".join(value.text or value.code for value in self.results)

    @property
    def failures(self) -> tuple[RunStep, ...]:
        """The steps that failed. The rest of the run had to do without their outputs."""
        return tuple(step for step in self.steps if not step.ok)

    @property
    def tokens(self) -> int:
        """The tokens of the calls of this run, without results from the cache."""
        return sum(step.result.tokens for step in self.steps if not step.cached)

    @property
    def cost(self) -> float:
        """The cost of the calls of this run, without results from the cache."""
        return sum(step.result.cost for step in self.steps if not step.cached)

    @cached_property
    def influential(self) -> tuple[RunStep, ...]:
        """The steps whose output flowed into the results, or whose verdict led to them.

        These are the steps that produced the results, the steps that these read, and so on; nothing runs again. A plan
        that no operator read, a replaced solution, and a check whose verdict and notes had no effect are not included.
        """
        return self.led_to(self.made_by)

    def led_to(self, made_by: By) -> tuple[RunStep, ...]:
        """Return these steps, the steps that they read, and so on."""
        reads = {step.id: step.reads for step in self.steps}
        found: set[StepId] = set()
        waiting = list(made_by)
        while waiting:
            step = waiting.pop()
            if step not in found:
                found.add(step)
                waiting += reads[step]
        return tuple(step for step in self.steps if step.id in found)
