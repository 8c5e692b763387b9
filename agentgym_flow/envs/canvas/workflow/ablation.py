"""Which operators of a workflow its result needs: the workflow is run again without each of them.

A run again keeps everything else as it was. Nodes keep their places. A call whose inputs are as before comes to what it
came to, and one whose inputs are others draws the same random numbers as before (*common random numbers*, by the method
`rerun` of the simulator), so that leaving out an operator never gives the rest of the workflow another throw of dice.

An executor that cannot do that is not asked again. Only what it has said in this episode is known; where more would be
needed, an operator is undecided, and counts if data flowed from it into the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from agentgym_flow.envs.canvas.operators.calls import Backend, OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow.graph import Conditional, Loop, NodePosition, OperatorNode, Parallel, Workflow
from agentgym_flow.envs.canvas.workflow.interpreter import NOTHING, Cache, Interpreter, LeftOut
from agentgym_flow.envs.canvas.workflow.run import RunState, RunStep, StepId, WorkflowRun

STRUCTURES = ("parallel", "conditional", "loop")
"""The kinds of structures."""

Memo: TypeAlias = dict[tuple[Any, ...], OpResult]
"""Results of calls that were made again, by the call and the one before."""


@runtime_checkable
class Repeats(Protocol):
    """A backend that can make a call again with other inputs and the random numbers of the call before."""

    def rerun(self, call: OpCall, before: OpCall) -> OpResult:
        """Return what would have come of `before` with the inputs of `call`."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """What the result of a run needs.

    Attributes:
        needed: the places of the operators that count, in the order in which the workflow is written down.
        undecided: those among them of which it is not known whether the result would be another without them.
        structures: how many structures of each kind count.
    """

    needed: tuple[str, ...]
    undecided: tuple[str, ...]
    structures: Mapping[str, int]


NOTHING_RAN = Ablation((), (), dict.fromkeys(STRUCTURES, 0))
"""Of a workflow that has not run."""


def ablation(
    workflow: Workflow, run: WorkflowRun, interpreter: Interpreter, problem: WorkflowProblem, memo: Memo
) -> Ablation:
    """Return what the result of `run`, a run of `workflow`, needs.

    First the workflow ends where the result was there for the first time: what was appended and changed nothing does
    not count, and neither does it keep anything before it from counting. Then its operators are left out one by one,
    the last first. One that leaves the result as it was stays out, so that of two that do the same one counts. A check
    counts when the result is another both without its conditional and when the case that it chose runs unchecked.

    A parallel counts when operators in two of its branches do, a conditional when its check and an operator in one of
    its cases do, a loop when one round would not have done.

    Args:
        workflow: what ran.
        run: what happened.
        interpreter: ran it.
        problem: what it ran on.
        memo: results of calls made again in this episode; grows.
    """
    return _Ablating(workflow, run, interpreter, problem, memo).result()


class _Unknown(Exception):
    """What would come of a call is not known. Never leaves this module."""


class _Ablating:
    """An ablation under way."""

    def __init__(
        self, workflow: Workflow, run: WorkflowRun, interpreter: Interpreter, problem: WorkflowProblem, memo: Memo
    ) -> None:
        self.workflow = workflow
        self.run = run
        self.problem = problem
        self.ends = _outcome(run.results)
        self.again = Interpreter(_Again(run, interpreter.backend, interpreter.cache, memo), seed=interpreter.seed)
        stages = (RunState(), *run.stages)
        self.kept = next(n for n, stage in enumerate(stages) if _outcome(stage.values) == self.ends)
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
        """Find out whether an operator counts."""
        unknown = False
        for without in self._ways(place):
            try:
                if self._same(place, without):
                    self.without = without
                    return
            except _Unknown:
                unknown = True
        self.needed[place.id] = None
        if unknown:
            self.undecided[place.id] = None

    def _ways(self, place: NodePosition) -> Iterator[LeftOut]:
        """Yield the ways to leave out an operator: a check alone has more than one."""
        fewer = self.without._replace(operators=self.without.operators | {place.id})
        yield fewer
        if _is_check(place, self.workflow):
            verdicts = {
                step.result.value.passed
                for step in self.run.steps
                if step.id.place == place.id and step.result.value is not None
            }
            for verdict in sorted(map(bool, verdicts)):
                yield fewer._replace(cases=(*self.without.cases, (place.id, verdict)))

    def _leave_out_rounds(self, place: NodePosition) -> None:
        """Find out whether a loop counts."""
        without = self.without._replace(rounds=self.without.rounds | {place.id})
        try:
            if self._same(place, without):
                self.without = without
                return
        except _Unknown:
            if not _more_in_later_rounds(place, self.used):
                return
        self.loops[place.id] = None

    def _same(self, place: NodePosition, without: LeftOut) -> bool:
        """Return whether the result stays as it was; all that is left out is at `place` or after it."""
        nodes, before = self.workflow.nodes[: self.kept], self.run.stages[: place.path[0]]
        return _outcome(self.again.run(nodes, self.problem, without, before).results) == self.ends

    def _count_clones_once(self) -> None:
        """Take out the undecided operators that made the same as others that count."""
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


class _Again:
    """Makes the calls of a run again: what is known is not asked for."""

    def __init__(self, run: WorkflowRun, backend: Backend, cache: Cache | None, memo: Memo) -> None:
        self._before = {step.id: step for step in run.steps}
        self._backend = backend
        self._repeats = backend if isinstance(backend, Repeats) else None
        self._memo = memo
        self._known = {} if self._repeats is not None else _known(run.steps, cache)

    def run(self, call: OpCall) -> OpResult:
        """Return what comes of a call. Raises `_Unknown` when that is not known."""
        step = self._before.get(StepId(call.place, call.attempt))
        if step is not None and step.call.identity == call.identity:
            return step.result
        if self._repeats is None:
            if (found := self._known.get(_wherever(call.identity))) is None:
                raise _Unknown
            return found
        before = call if step is None else step.call
        key = (call.identity, before.identity)
        if key not in self._memo:
            self._memo[key] = self._repeats.rerun(call, before)
        return self._memo[key]


def _known(steps: Iterable[RunStep], cache: Cache | None) -> Memo:
    """Return everything that an executor has said in this episode, by its call wherever that stood."""
    said = {} if cache is None else dict(cache.items())
    said.update((step.call.identity, step.result) for step in steps)
    # Of several with equal instructions, the first in the workflow: an order that threads have no part in.
    return {_wherever(identity): said[identity] for identity in sorted(said, key=lambda one: one[2:4], reverse=True)}


def _wherever(identity: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the identity of a call without the place and the attempt."""
    return (*identity[:2], *identity[4:])


def _outcome(results: tuple[Value, ...]) -> tuple[tuple[str, str], ...]:
    """Return what a reader has of results; the same twice is no more than once."""
    return tuple(dict.fromkeys((value.text, value.code) for value in results))


def _is_check(place: NodePosition, workflow: Workflow) -> bool:
    around = workflow.places.get(place.id.removesuffix("_cond"))
    return around is not None and isinstance(around.node, Conditional) and place.id.endswith("_cond")


def _made(step: RunStep) -> tuple[Any, ...]:
    """Return what a step made: equal for clones."""
    return step.operator, None if step.result.value is None else step.result.value.identity


def _more_in_later_rounds(place: NodePosition, used: Iterable[RunStep]) -> bool:
    """Return whether a later round of a loop made something of use that the first did not."""
    within = [step for step in used if step.id.place.startswith(f"{place.id}_")]
    first = {_made(step) for step in within if step.id.attempt == 0}
    return any(_made(step) not in first for step in within)
