"""Determines which operators the result of a workflow needs, by running the workflow without each of them.

Such a run changes nothing else. Nodes keep their ids. A call with unchanged inputs has the same result; one with other
inputs uses the same random numbers (*common random numbers*, by the method `rerun` of the simulator), so omitting an
operator does not change the randomness of the others.

An executor without `rerun` is not called again; only its results of this episode are known. If these are not enough, an
operator is undecided and counts if data flowed from it into the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from agentgym_flow.envs.canvas.operators.calls import Backend, OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import (
    Conditional,
    Loop,
    NodePosition,
    OperatorNode,
    Parallel,
    Workflow,
)
from agentgym_flow.envs.canvas.workflow.interpreter import NOTHING, Cache, Interpreter, Omissions
from agentgym_flow.envs.canvas.workflow.run import RunState, RunStep, StepId, WorkflowRun

STRUCTURES = ("parallel", "conditional", "loop")
"""The kinds of structures."""

Memo: TypeAlias = dict[tuple[Any, ...], OpResult]
"""The results of repeated calls, by the new and the original call."""


@runtime_checkable
class RepeatableBackend(Protocol):
    """A backend that can repeat a call with other inputs and the same random numbers."""

    def rerun(self, call: OpCall, before: OpCall) -> OpResult:
        """Return the result that `before` would have had with the inputs of `call`."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The parts of a workflow that the result of a run needs.

    Attributes:
        needed: the ids of the operators that count, in the order of the workflow's text.
        undecided: those of them for which the effect of their omission is unknown.
        structures: kind of structure -> the number of structures that count.
    """

    needed: tuple[str, ...]
    undecided: tuple[str, ...]
    structures: Mapping[str, int]


NOTHING_RAN = Ablation((), (), dict.fromkeys(STRUCTURES, 0))
"""The ablation of a workflow that has not run."""


def ablation(
    workflow: Workflow, run: WorkflowRun, interpreter: Interpreter, problem: WorkflowProblem, memo: Memo
) -> Ablation:
    """Return the parts of `workflow` that the result of `run` needs.

    First, the workflow is cut after the node where the result appeared for the first time: later nodes that changed
    nothing do not count. Then its operators are left out one by one, from the last to the first. An operator without
    which the result is the same stays out, so only one of two equivalent operators counts. A check counts if the result
    changes both without its conditional and if the chosen case runs unconditionally.

    A parallel counts if operators in two of its branches do, a conditional if its check and an operator in one of its
    cases do, a loop if a single round gives another result.

    Args:
        workflow: the workflow.
        run: its run.
        interpreter: the interpreter that ran it.
        problem: the problem that it ran on.
        memo: the results of repeated calls in this episode; extended in place.
    """
    return _AblationSearch(workflow, run, interpreter, problem, memo).result()


class _UnknownResult(Exception):
    """The result of a call is unknown. Never leaves this module."""


class _AblationSearch:
    """The state of an ablation in progress."""

    def __init__(
        self, workflow: Workflow, run: WorkflowRun, interpreter: Interpreter, problem: WorkflowProblem, memo: Memo
    ) -> None:
        self.workflow = workflow
        self.run = run
        self.problem = problem
        self.outcome = _outcome(run.results)
        self.interpreter = Interpreter(
            _RepeatedCalls(run, interpreter.backend, interpreter.cache, memo), seed=interpreter.seed
        )
        stages = (RunState(), *run.stages)
        self.kept = next(n for n, stage in enumerate(stages) if _outcome(stage.values) == self.outcome)
        self.used = run.led_to(tuple(step for made in stages[self.kept].results for step in made.by))
        self.without = NOTHING
        self.needed: dict[str, None] = {}
        self.undecided: dict[str, None] = {}
        self.loops: dict[str, None] = {}

    def result(self) -> Ablation:
        used = {step.id.place for step in self.used if step.ok}
        places = [place for place in self.workflow.places.values() if place.path[0] < self.kept]
        for place in reversed(places):
            if isinstance(place.node, OperatorNode) and place.id in used:
                self._leave_out(place)
            elif isinstance(place.node, Loop) and place.node.count > 1 and self._within(place):
                self._leave_out_rounds(place)
        self._count_clones_once()
        found = dict.fromkeys(STRUCTURES, 0)
        for place in places:
            if not isinstance(place.node, OperatorNode):
                found[place.node.kind] += self._counts(place)
        needed = tuple(place.id for place in places if place.id in self.needed)
        return Ablation(needed, tuple(place for place in needed if place in self.undecided), found)

    def _leave_out(self, place: NodePosition) -> None:
        """Determine whether an operator counts."""
        unknown = False
        for without in self._ways(place):
            try:
                if self._same(place, without):
                    self.without = without
                    return
            except _UnknownResult:
                unknown = True
        self.needed[place.id] = None
        if unknown:
            self.undecided[place.id] = None

    def _ways(self, place: NodePosition) -> Iterator[Omissions]:
        """Yield the ways to leave out an operator; only a check has more than one."""
        fewer = self.without._replace(operators=self.without.operators | {place.id})
        yield fewer
        around = self.workflow.places.get(place.id.removesuffix("_cond"))
        if place.id.endswith("_cond") and around is not None and isinstance(around.node, Conditional):  # it is a check
            verdicts = {
                step.result.value.passed
                for step in self.run.steps
                if step.id.place == place.id and step.result.value is not None
            }
            for verdict in sorted(map(bool, verdicts)):
                yield fewer._replace(cases=(*self.without.cases, (place.id, verdict)))

    def _leave_out_rounds(self, place: NodePosition) -> None:
        """Determine whether a loop counts."""
        without = self.without._replace(rounds=self.without.rounds | {place.id})
        try:
            if self._same(place, without):
                self.without = without
                return
        except _UnknownResult:
            if not _more_in_later_rounds(place, self.used):
                return
        self.loops[place.id] = None

    def _same(self, place: NodePosition, without: Omissions) -> bool:
        """Return whether the result stays the same; everything left out is at `place` or after it."""
        nodes, before = self.workflow.nodes[: self.kept], self.run.stages[: place.path[0]]
        return _outcome(self.interpreter.run(nodes, self.problem, without, before).results) == self.outcome

    def _count_clones_once(self) -> None:
        """Remove undecided operators with the same output as others that count."""
        made: set[tuple[Any, ...]] = set()
        for place in list(reversed(self.needed)):
            own = {_made(step) for step in self.used if step.id.place == place}
            if place in self.undecided and own <= made:
                del self.needed[place], self.undecided[place]
            made |= own

    def _counts(self, place: NodePosition) -> bool:
        """Return whether a structure counts."""
        within = self._within(place)
        if isinstance(place.node, Loop):
            return place.id in self.loops and bool(within)
        start = len(place.path)
        chains = {self.workflow.places[one].path[start] for one in within}
        if isinstance(place.node, Conditional):
            check = f"{place.id}_cond"
            return check in self.needed and (len(chains) > 1 or check in self.undecided)
        return isinstance(place.node, Parallel) and len(chains) > 1

    def _within(self, place: NodePosition) -> list[str]:
        """Return the operators in a structure that count."""
        return [one for one in self.needed if self.workflow.places[one].path[: len(place.path)] == place.path]


class _RepeatedCalls:
    """A backend that repeats the calls of a run and reuses known results."""

    def __init__(self, run: WorkflowRun, backend: Backend, cache: Cache | None, memo: Memo) -> None:
        self._before = {step.id: step for step in run.steps}
        self._backend = backend
        self._repeats = backend if isinstance(backend, RepeatableBackend) else None
        self._memo = memo
        self._known = {} if self._repeats is not None else _known(run.steps, cache)

    def run(self, call: OpCall) -> OpResult:
        """Return the result of a call. Raises `_UnknownResult` if it is unknown."""
        step = self._before.get(StepId(call.place, call.attempt))
        if step is not None and step.call.identity == call.identity:
            return step.result
        if self._repeats is None:
            if (found := self._known.get(_wherever(call.identity))) is None:
                raise _UnknownResult
            return found
        before = call if step is None else step.call
        key = (call.identity, before.identity)
        if key not in self._memo:
            self._memo[key] = self._repeats.rerun(call, before)
        return self._memo[key]


def _known(steps: Iterable[RunStep], cache: Cache | None) -> Memo:
    """Return all results of an executor in this episode, by call without its place."""
    said = {} if cache is None else dict(cache.items())
    said.update((step.call.identity, step.result) for step in steps)
    # Of several equal calls the first in the workflow wins, which does not depend on the timing of threads.
    return {_wherever(identity): said[identity] for identity in sorted(said, key=lambda one: one[2:4], reverse=True)}


def _wherever(identity: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the identity of a call without its place and attempt."""
    return (*identity[:2], *identity[4:])


def _outcome(results: tuple[Value, ...]) -> tuple[tuple[str, str], ...]:
    """Return the visible content of results, without duplicates."""
    return tuple(dict.fromkeys((value.text, value.code) for value in results))


def _made(step: RunStep) -> tuple[Any, ...]:
    """Return the output of a step, equal for equivalent operators."""
    return step.operator, None if step.result.value is None else step.result.value.identity


def _more_in_later_rounds(place: NodePosition, used: Iterable[RunStep]) -> bool:
    """Return whether a later round of a loop had a used output that the first had not."""
    within = [step for step in used if step.id.place.startswith(f"{place.id}_")]
    first = {_made(step) for step in within if step.id.attempt == 0}
    return any(_made(step) not in first for step in within)
