"""What happened when a workflow ran: every call with its result, what came out, and which calls it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value


class StepId(NamedTuple):
    """Names a step of a run.

    Attributes:
        place: the id of the node.
        attempt: how often the node had been called before.
    """

    place: str
    attempt: int


By: TypeAlias = tuple[StepId, ...]
"""The steps that something comes from."""


class StepValue(NamedTuple):
    """A value, and the steps that it comes from directly."""

    value: Value
    by: By


class RunState(NamedTuple):
    """What there is at a point of a run.

    Attributes:
        results: what nodes left; several after branches that nothing has gathered.
        plan: the last plan.
        pieces: the sub-problems.
        pieces_by: the steps that they come from.
        to_share: whether the sub-problems have just been made.
        notes: those of the last checker, as long as its solution stands.
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
        """The results alone."""
        return tuple(made.value for made in self.results)

    def then(self, results: tuple[StepValue, ...], notes: StepValue | None = None) -> RunState:
        """Return what there is when a node has left `results`."""
        return RunState(results, self.plan, self.pieces, self.pieces_by, False, notes, self.control)


@dataclass(frozen=True, slots=True)
class RunStep:
    """One call.

    Attributes:
        id: which one.
        operator: what was called.
        result: what came of it.
        cached: whether it was taken from the cache.
        reads: the steps that its inputs come from, and whose verdicts led to it.
        call: everything that was said to the backend.
    """

    id: StepId
    operator: str
    result: OpResult
    cached: bool
    reads: tuple[StepId, ...]
    call: OpCall = field(compare=False)

    @property
    def ok(self) -> bool:
        """Whether the call worked."""
        return self.result.status == "ok"

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for steps that called the same and came to the same, whatever that cost and wherever it came from."""
        value = self.result.value
        return *self.id, self.operator, self.result.status, None if value is None else value.identity


@dataclass(frozen=True)
class WorkflowRun:
    """What happened when a workflow ran. Equal for equal workflows, problems, seeds and backends.

    Attributes:
        steps: the calls, in the order in which the workflow is written down, loops unrolled; the order in which
            concurrent branches came to an end does not show.
        results: what came out: one value, several after branches that nothing gathered, or none.
        made_by: the steps that `results` come from directly.
        stages: what there was after each top-level node.
        counts: how many steps there were after each top-level node.
    """

    steps: tuple[RunStep, ...]
    results: tuple[Value, ...]
    made_by: tuple[StepId, ...]
    stages: tuple[RunState, ...] = field(default=(), compare=False, repr=False)
    counts: tuple[int, ...] = field(default=(), compare=False, repr=False)

    @property
    def value(self) -> Value | None:
        """The one value that came out; None when there is none, or more than one."""
        return self.results[0] if len(self.results) == 1 else None

    @cached_property
    def answer(self) -> str:
        """What came out, as text; several results in lines, and no result is the empty text."""
        return "\n".join(value.text or value.code for value in self.results)

    @property
    def failures(self) -> tuple[RunStep, ...]:
        """The steps that failed; what they should have made was missing in the rest of the run."""
        return tuple(step for step in self.steps if not step.ok)

    @property
    def tokens(self) -> int:
        """Tokens of the calls of this run; what came from the cache is not counted again."""
        return sum(step.result.tokens for step in self.steps if not step.cached)

    @property
    def cost(self) -> float:
        """Cost of the calls of this run; what came from the cache is not counted again."""
        return sum(step.result.cost for step in self.steps if not step.cached)

    @cached_property
    def influential(self) -> tuple[RunStep, ...]:
        """The steps whose output flowed into the results, or whose verdict led to them.

        Those they were made by, whatever these read, and so on; nothing is run again without them. A step that only ran
        is not among them: a plan that nobody read, a solution that was made anew, a check whose verdict and notes were
        used by nothing.
        """
        return self.led_to(self.made_by)

    def led_to(self, made_by: By) -> tuple[RunStep, ...]:
        """Return these steps, whatever they read, and so on."""
        reads = {step.id: step.reads for step in self.steps}
        found: set[StepId] = set()
        waiting = list(made_by)
        while waiting:
            step = waiting.pop()
            if step not in found:
                found.add(step)
                waiting += reads[step]
        return tuple(step for step in self.steps if step.id in found)
