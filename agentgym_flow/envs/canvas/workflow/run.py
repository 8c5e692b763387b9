"""Records of workflow runs, and plain data of workflows and runs for `info` and reports.

A record has every call with its result, the final results, and the calls that led to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value
from agentgym_flow.envs.canvas.workflow import (
    Chain,
    Conditional,
    Loop,
    Node,
    OperatorNode,
    Parallel,
    child_ids,
    top_ids,
)


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


NOTES_LENGTH = 150
"""The maximum number of characters shown of an instruction or of a checker's notes."""


def one_line(text: str, length: int) -> str:
    """Return `text` as one printable line of at most `length` characters."""
    return _line(text[: 4 * length], length, len(text) > 4 * length)


@lru_cache(maxsize=1 << 10)  # the next edit reports the same texts again
def _line(text: str, length: int, cut: bool) -> str:
    line = " ".join(text.split())
    shown = line if line.isprintable() else "".join(mark if mark.isprintable() else "?" for mark in line)
    return shown if len(shown) <= length and not cut else f"{shown[: length - 3]}..."


def plain_graph(nodes: Chain) -> list[dict[str, Any]]:
    """Return a top-level chain as nested JSON-able data, fresh on every call.

    Every node has `kind` and `id`, and:

    - `"operator"`: `name`, `role`, `instruction` (empty for the default);
    - `"parallel"`: `branches`, a list of chains;
    - `"conditional"`: `check`, an operator, and the chains `passed` and `failed`;
    - `"loop"`: the chain `body`, and `count`.
    """
    return _chain(top_ids(nodes), nodes)


def plain_run(run: WorkflowRun) -> list[dict[str, Any]]:
    """Return the calls of a run as JSON-able data, fresh on every call, in the order of `run.steps`.

    Each has `place`, `attempt`, `status`, `passed` (None without a verdict), `influential` (whether it contributed to
    the result) and `notes` (a checker's notes or the failure, in a short line).
    """
    influential = {step.id for step in run.influential}
    return [
        {
            "place": step.id.place,
            "attempt": step.id.attempt,
            "status": step.result.status,
            "passed": None if step.result.value is None else step.result.value.passed,
            "influential": step.id in influential,
            "notes": one_line(step.result.text if step.result.value is None else step.result.value.notes, NOTES_LENGTH),
        }
        for step in run.steps
    ]


def _chain(ids: Iterable[str], nodes: Sequence[Node]) -> list[dict[str, Any]]:
    return [_node(own, node) for own, node in zip(ids, nodes, strict=True)]


def _node(own: str, node: Node) -> dict[str, Any]:
    if isinstance(node, OperatorNode):
        return {
            "kind": "operator",
            "id": own,
            "name": node.name,
            "role": OPERATORS[node.name].role.value,
            "instruction": node.instruction,
        }
    known: dict[str, Any] = {"kind": node.kind, "id": own}
    chains = [_chain(ids, chain) for ids, chain in zip(child_ids(own, node), node.chains, strict=True)]
    match node:
        case Parallel():
            return known | {"branches": chains}
        case Conditional():
            return known | {"check": chains[0][0], "passed": chains[1], "failed": chains[2]}
        case Loop(_, count):
            return known | {"body": chains[0], "count": count}
