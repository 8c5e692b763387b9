"""Runs a workflow: walks its graph and calls a backend for each operator. No source is generated or executed.

How results flow:

- Every operator gets the inputs that its declaration names, and no others. `problem` is always the raw problem; the
  last plan and the sub-problems stay at hand for later solvers.
- The branches of a parallel start from the same results. Right after Decompose they share out the sub-problems. What
  they make is gathered in their order; an operator other than an ensemble gets all of it, as a tuple.
- A checker hands the solution on as it is, unless it gives another one (a repaired program). Its notes are there for
  Revise as long as that solution stands.
- In a conditional the chain for a pass runs when the checker says so, the other one when it says the opposite, and none
  when the check itself failed. A loop runs as often as it says. Nothing is merged, dropped or cut.
- A call that fails makes nothing: the run goes on with what was there before, and `WorkflowRun.failures` names it.
- What came out is what the last node that made something left, whichever operators ran before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any, NamedTuple

from agentgym_flow.envs.canvas.operators import OPERATORS, Operator, Planner, Role
from agentgym_flow.envs.canvas.operators.calls import Backend, Input, OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow.graph import (
    Chain,
    Conditional,
    Loop,
    Node,
    OperatorNode,
    Parallel,
    child_ids,
    every,
    top_ids,
)
from agentgym_flow.envs.canvas.workflow.run import By, RunState, RunStep, StepId, StepValue, WorkflowRun
from agentgym_flow.envs.canvas.workflow.together import all_of
from agentgym_flow.seeding import stable_hash


class Cache:
    """Results of earlier calls of one backend, by everything that the call said. Only what worked is kept."""

    def __init__(self) -> None:
        self._results: dict[tuple[Any, ...], OpResult] = {}
        self._digests: dict[tuple[Any, ...], str] = {}  # of those that `digest` has seen

    def __len__(self) -> int:
        return len(self._results)

    def get(self, call: OpCall) -> OpResult | None:
        """Return the result of an equal call; None when there is none."""
        return self._results.get(call.identity)

    def items(self) -> Iterable[tuple[tuple[Any, ...], OpResult]]:
        """Return every call, by everything that it said, with its result."""
        return self._results.items()

    def __deepcopy__(self, memo: dict[int, Any]) -> Cache:
        """Return a cache that has what this one has; results never change, so both may have the same."""
        other = Cache()
        other._results = dict(self._results)
        other._digests = dict(self._digests)
        return other

    @property
    def digest(self) -> str:
        """64 hex digits, equal for caches with equal values for equal calls, in whatever order they came."""
        for identity, result in self._results.items():
            if identity not in self._digests:
                self._digests[identity] = stable_hash([identity, result.value and result.value.identity])
        return stable_hash(sorted(self._digests.values()))

    def put(self, call: OpCall, result: OpResult) -> None:
        """Keep the result of a call, unless it is a failure: the next call may work."""
        if result.status == "ok":
            self._results[call.identity] = result
            self._digests.pop(call.identity, None)


class LeftOut(NamedTuple):
    """What a run leaves out of a workflow. Everything else keeps its place, and so the id of it.

    Attributes:
        operators: the places of operators that are not called; what was there before them goes on.
        cases: the place of a check that is not called -> the case that runs all the same, True for that of a pass.
        rounds: the places of loops that run once.
    """

    operators: frozenset[str] = frozenset()
    cases: tuple[tuple[str, bool], ...] = ()
    rounds: frozenset[str] = frozenset()


NOTHING = LeftOut()
"""A run of the whole workflow."""


class _Running:
    """A run under way."""

    def __init__(self, problem: WorkflowProblem, without: LeftOut) -> None:
        self.problem = problem
        self.without = without
        self.cases = dict(without.cases)
        self.called: list[tuple[OpCall, OpResult]] = []
        self.stopped = Event()  # no branch is to call any more


class Interpreter:
    """Runs workflows on one backend.

    Args:
        backend: does the work of the operators. What it raises passes through. If it has a method `cancel`, this is
            called when a run with branches in threads is interrupted, so that they end at once.
        seed: what the backend draws chance from.
        cache: results of earlier runs with the same backend; None to call anew each time.
        concurrent: run the branches of a parallel in threads, for backends that wait for something; the run is the
            same.
    """

    def __init__(
        self, backend: Backend, *, seed: int = 0, cache: Cache | None = None, concurrent: bool = False
    ) -> None:
        self.backend = backend
        self.seed = seed
        self.cache = cache
        self.concurrent = concurrent

    def run(
        self, nodes: Chain, problem: WorkflowProblem, without: LeftOut = NOTHING, before: Sequence[RunState] = ()
    ) -> WorkflowRun:
        """Return what happens when the top-level chain `nodes` runs on `problem`.

        Args:
            nodes: the chain.
            problem: what it runs on.
            without: what of it does not run.
            before: the stages of a run of the first nodes, which do not run again; their steps are not in the result.
        """
        return self._run(nodes, problem, without, list(before), [], [0] * len(before))

    def run_on(self, nodes: Chain, problem: WorkflowProblem, last: WorkflowRun, same: int) -> WorkflowRun:
        """Return `run(nodes, problem)` where the last run was of `same` equal first nodes, and calls are settled.

        What worked there would come from the cache, and what failed would fail again, so none of it is called.
        """
        if self.cache is None:
            return self.run(nodes, problem)
        counts = list(last.counts[:same])
        before = last.steps[: counts[-1] if counts else 0]
        steps = [step if step.cached or not step.ok else replace(step, cached=True) for step in before]
        return self._run(nodes, problem, NOTHING, list(last.stages[:same]), steps, counts)

    def _run(
        self,
        nodes: Chain,
        problem: WorkflowProblem,
        without: LeftOut,
        stages: list[RunState],
        steps: list[RunStep],
        counts: list[int],
    ) -> WorkflowRun:
        """Run the nodes from number `len(stages)` on, and append to all three lists."""
        running = _Running(problem, without)
        flow = stages[-1] if stages else RunState()
        for place, node in list(zip(top_ids(nodes), nodes, strict=True))[len(stages) :]:
            flow = self._node(place, node, flow, 0, running, steps)
            stages.append(flow)
            counts.append(len(steps))
        if self.cache is not None:  # only now: a run that is broken off leaves nothing
            for call, result in running.called:
                self.cache.put(call, result)
        by = dict.fromkeys(step for made in flow.results for step in made.by)
        return WorkflowRun(tuple(steps), flow.values, tuple(by), tuple(stages), tuple(counts))

    def _chain(
        self, ids: Iterable[str], nodes: Chain, flow: RunState, attempt: int, running: _Running, steps: list[RunStep]
    ) -> RunState:
        """Run a chain from `flow`, append its calls to `steps`, and return what there is then."""
        for place, node in zip(ids, nodes, strict=True):
            flow = self._node(place, node, flow, attempt, running, steps)
        return flow

    def _node(
        self, place: str, node: Node, flow: RunState, attempt: int, running: _Running, steps: list[RunStep]
    ) -> RunState:
        match node:
            case OperatorNode():
                if place in running.without.operators:
                    return flow
                step = self._call(place, node, flow, attempt, running)
                steps.append(step)
                return _after(step, flow)
            case Parallel():
                return self._parallel(place, node, flow, attempt, running, steps)
            case Conditional():
                return self._conditional(place, node, flow, attempt, running, steps)
            case Loop(body, count):
                (ids,) = child_ids(place, node)
                for time in range(1 if place in running.without.rounds else count):
                    flow = self._chain(ids, body, flow, attempt * count + time, running, steps)
                return flow

    def _parallel(
        self, place: str, node: Parallel, flow: RunState, attempt: int, running: _Running, steps: list[RunStep]
    ) -> RunState:
        ids = child_ids(place, node)
        count = len(node.branches)

        def run(slot: int) -> tuple[RunState, list[RunStep]]:
            own: list[RunStep] = []
            start = flow._replace(pieces=_share(flow.pieces, slot, count), to_share=False) if flow.to_share else flow
            return self._chain(ids[slot], node.branches[slot], start, attempt, running, own), own

        if self.concurrent:
            # A pool of its own: branches wait for their inner branches, which in a shared pool might never start.
            with ThreadPoolExecutor(count) as pool:
                parts = [pool.submit(run, slot) for slot in range(count)]
                branches = all_of(parts, running.stopped.set, getattr(self.backend, "cancel", None))
        else:
            branches = [run(slot) for slot in range(count)]
        results: list[StepValue] = []
        for after, own in branches:
            steps += own
            if any(step.ok for step in own):
                results += after.results
        if not results:
            return flow._replace(to_share=False)
        return flow.then(tuple(results))

    def _conditional(
        self, place: str, node: Conditional, flow: RunState, attempt: int, running: _Running, steps: list[RunStep]
    ) -> RunState:
        (check_id,), passed_ids, failed_ids = child_ids(place, node)
        if check_id in running.without.operators:
            if check_id not in running.cases:
                return flow
            taken = (passed_ids, node.passed) if running.cases[check_id] else (failed_ids, node.failed)
            return self._chain(*taken, flow, attempt, running, steps)
        check = self._call(check_id, node.check, flow, attempt, running)
        steps.append(check)
        checked = _after(check, flow)
        if check.result.value is None:
            return checked
        ids, chain = (passed_ids, node.passed) if check.result.value.passed else (failed_ids, node.failed)
        if not _matters(node):
            return self._chain(ids, chain, checked, attempt, running, steps)
        inner = checked._replace(control=(*flow.control, check.id))
        after = self._chain(ids, chain, inner, attempt, running, steps)
        # Whatever is there now is there because of the verdict, also when nothing ran.
        results = tuple(StepValue(made.value, _joined(made.by, (check.id,))) for made in after.results)
        return after._replace(results=results, control=flow.control)

    def _call(self, place: str, node: OperatorNode, flow: RunState, attempt: int, running: _Running) -> RunStep:
        operator = OPERATORS[node.name]
        inputs: dict[str, Input] = {}
        reads = flow.control
        for name in operator.inputs:
            inputs[name], by = _GIVEN[name](running.problem, flow)
            reads = _joined(reads, by)
        call = OpCall(node.name, running.problem.task_id, place, attempt, inputs, node.instruction, self.seed)
        result = self.cache.get(call) if self.cache is not None else None
        cached = result is not None
        if result is None:
            if running.stopped.is_set():
                raise CancelledError("another branch of this run raised, or the run was interrupted")
            result = _complete(operator, _asked(self.backend, operator, call, len(flow.results)))
            running.called.append((call, result))
        return RunStep(StepId(place, attempt), node.name, result, cached, reads, call)


def _asked(backend: Backend, operator: Operator, call: OpCall, results: int) -> OpResult:
    """Return what the backend makes of a call, unless there are too few results for the operator to work on."""
    if results < operator.branches:
        return OpResult("error", text=f"{operator.name} works on {operator.branches} results or more; here: {results}")
    return backend.run(call)


def _joined(one: By, other: By) -> By:
    return tuple(dict.fromkeys(one + other)) if one and other else one or other


def _after(step: RunStep, flow: RunState) -> RunState:
    """Return what there is after a call."""
    value = step.result.value
    if value is None:
        return flow
    made = StepValue(value, (step.id,))
    operator = OPERATORS[step.operator]
    match operator.role:
        case Role.CHECKER:
            return flow.then(_checked(made, flow.results), notes=made)
        case Role.PLANNER if isinstance(operator, Planner) and operator.leaves == "pieces":
            return flow.then((made,))._replace(pieces=value.items, pieces_by=made.by, to_share=bool(value.items))
        case Role.PLANNER:
            return flow.then((made,))._replace(plan=made)
        case Role.ENSEMBLE:
            return flow.then((made,))._replace(pieces=(), pieces_by=())
        case _:
            return flow.then((made,))


def _matters(node: Conditional) -> bool:
    """Return whether a verdict can make a difference to the result: its two cases differ, and not in checks alone."""
    if node.passed == node.failed:
        return False
    within = (*every(node.passed), *every(node.failed))
    return any(isinstance(one, OperatorNode) and OPERATORS[one.name].role is not Role.CHECKER for one in within)


def _checked(made: StepValue, results: tuple[StepValue, ...]) -> tuple[StepValue, ...]:
    """Return the results after a check: as they were, unless the checker gave another solution."""
    text, code = made.value.text, made.value.code
    same = len(results) == 1 and (text, code) == (results[0].value.text, results[0].value.code)
    return results if same or not (text or code) else (made,)


def _share(pieces: tuple[str, ...], slot: int, count: int) -> tuple[str, ...]:
    """Return the sub-problems of branch `slot` of `count`: dealt out in turn; some twice when there are too few."""
    return pieces[slot::count] if slot < len(pieces) else (pieces[slot % len(pieces)],)


def _complete(operator: Operator, result: OpResult) -> OpResult:
    """Return `result`, or an error in its place when it lacks what the operator is declared to make."""
    value = result.value
    if result.status != "ok":
        return result if value is None else OpResult(result.status, None, result.text, result.tokens, result.cost)
    lacks = "value" if value is None else _lacks(operator, value)
    if not lacks:
        return result
    said = f"{operator.name} gave no {lacks}"
    return OpResult("error", None, said, result.tokens, result.cost, result.latency)


def _lacks(operator: Operator, value: Value) -> str:
    if "passed" in operator.outputs and value.passed is None:
        return "verdict"
    if "items" in operator.outputs and not value.items:
        return "items"
    if "code" in operator.outputs and not value.code:
        return "code"
    return "text" if "text" in operator.outputs and not (value.text or value.code) else ""


def _results(problem: WorkflowProblem, flow: RunState) -> tuple[Input, By]:
    if len(flow.results) == 1:
        return flow.results[0]
    return (tuple(made.value for made in flow.results) or None), _all_by(flow)


def _all_by(flow: RunState) -> By:
    return tuple(dict.fromkeys(step for made in flow.results for step in made.by))


_GIVEN: dict[str, Callable[[WorkflowProblem, RunState], tuple[Input, By]]] = {
    "problem": lambda problem, flow: (problem.text, ()),
    "entry_point": lambda problem, flow: (problem.entry_point, ()),
    "tests": lambda problem, flow: (problem.tests, ()),
    "plan": lambda problem, flow: flow.plan or (None, ()),
    "pieces": lambda problem, flow: (flow.pieces, flow.pieces_by),
    "previous": _results,
    "solution": _results,
    "candidates": lambda problem, flow: (tuple(made.value for made in flow.results), _all_by(flow)),
    "notes": lambda problem, flow: flow.notes or (None, ()),
}
