"""Runs workflows: walks the graph and calls a backend for each operator. No code is generated.

How results flow:

- Every operator receives exactly the inputs that it declares. `problem` is always the original problem; the last plan
  and the sub-problems stay available to later solvers.
- The branches of a parallel start from the same results. Right after Decompose they distribute the sub-problems. Their
  outputs are collected in order; operators other than ensembles receive all of them as a tuple.
- A checker passes the solution on unchanged, unless it gives a new one (a repaired program). Its notes are available
  to Revise until the solution changes.
- In a conditional, the verdict chooses the chain; if the check itself fails, none runs. A loop runs all its rounds.
  Nothing is merged, dropped or truncated.
- A failed call has no output: the run continues from the previous state, and `WorkflowRun.failures` contains the call.
- The result is the output of the last node that produced one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event
from typing import Any, NamedTuple, TypeVar

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.canvas.operators import OPERATORS, Operator, Planner, Role
from agentgym_flow.envs.canvas.operators.calls import Backend, Input, OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import (
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


class Cache:
    """The successful results of earlier calls of one backend, by the identity of the call."""

    def __init__(self) -> None:
        self._results: dict[tuple[Any, ...], OpResult] = {}
        self._digests: dict[tuple[Any, ...], str] = {}  # of results that `digest` has already hashed

    def __len__(self) -> int:
        return len(self._results)

    def get(self, call: OpCall) -> OpResult | None:
        """Return the result of an equal call, or None."""
        return self._results.get(call.identity)

    def items(self) -> Iterable[tuple[tuple[Any, ...], OpResult]]:
        """Return the identities of all calls with their results."""
        return self._results.items()

    def __deepcopy__(self, memo: dict[int, Any]) -> Cache:
        """Return an independent cache with the same results, which are immutable and shared."""
        other = Cache()
        other._results = dict(self._results)
        other._digests = dict(self._digests)
        return other

    @property
    def digest(self) -> str:
        """A digest of 64 hex digits, equal for caches with equal values for equal calls, in any order."""
        for identity, result in self._results.items():
            if identity not in self._digests:
                self._digests[identity] = stable_hash([identity, result.value and result.value.identity])
        return stable_hash(sorted(self._digests.values()))

    def put(self, call: OpCall, result: OpResult) -> None:
        """Store the result of a call unless it is a failure, because a retry may succeed."""
        if result.status == "ok":
            self._results[call.identity] = result
            self._digests.pop(call.identity, None)


class Omissions(NamedTuple):
    """The parts of a workflow that a run leaves out. The ids of all other nodes stay the same.

    Attributes:
        operators: the ids of operators that are not called; the state before them stays.
        cases: the ids of checks that are not called, with the case that runs unconditionally, True for a pass.
        rounds: the ids of loops that run only once.
    """

    operators: frozenset[str] = frozenset()
    cases: tuple[tuple[str, bool], ...] = ()
    rounds: frozenset[str] = frozenset()


NOTHING = Omissions()
"""Leaves out nothing."""


class Interpreter:
    """Runs workflows on one backend.

    Args:
        backend: executes operators. Its exceptions propagate. If it has a method `cancel`, the interpreter calls it
            when a run with branches in threads is interrupted, so that they end at once.
        seed: the seed of the backend's randomness.
        cache: the results of earlier runs with the same backend; None to disable caching.
        concurrent: whether branches run in threads, for backends that wait for servers. The results are the same.
    """

    def __init__(
        self, backend: Backend, *, seed: int = 0, cache: Cache | None = None, concurrent: bool = False
    ) -> None:
        self.backend = backend
        self.seed = seed
        self.cache = cache
        self.concurrent = concurrent

    def run(
        self, nodes: Chain, problem: WorkflowProblem, without: Omissions = NOTHING, before: Sequence[RunState] = ()
    ) -> WorkflowRun:
        """Run the top-level chain `nodes` on `problem` and return the record.

        Args:
            nodes: the chain.
            problem: the problem.
            without: the parts that do not run.
            before: the stages of an earlier run of the first nodes, which do not run again; the record does not contain
                their steps.
        """
        return _GraphWalk(self, problem, without).run(nodes, list(before), [], [0] * len(before))

    def run_on(self, nodes: Chain, problem: WorkflowProblem, last: WorkflowRun, same: int) -> WorkflowRun:
        """Return `run(nodes, problem)` for a deterministic backend, reusing the first `same` nodes of the last run.

        These nodes are equal in both workflows, so the cache would return their results, and failures would repeat.
        """
        if self.cache is None:
            return self.run(nodes, problem)
        counts = list(last.counts[:same])
        before = last.steps[: counts[-1] if counts else 0]
        steps = [step if step.cached or not step.ok else replace(step, cached=True) for step in before]
        return _GraphWalk(self, problem, NOTHING).run(nodes, list(last.stages[:same]), steps, counts)


class _GraphWalk:
    """One run of a workflow: a walk over its graph. Each method appends its calls to `steps` and returns the state."""

    def __init__(self, interpreter: Interpreter, problem: WorkflowProblem, without: Omissions) -> None:
        self.interpreter = interpreter
        self.problem = problem
        self.without = without
        self.cases = dict(without.cases)
        self.called: list[tuple[OpCall, OpResult]] = []
        self.stopped = Event()  # branches must not call any more

    def run(self, nodes: Chain, stages: list[RunState], steps: list[RunStep], counts: list[int]) -> WorkflowRun:
        """Run the nodes from index `len(stages)` on, and append to all three lists."""
        flow = stages[-1] if stages else RunState()
        for place, node in list(zip(top_ids(nodes), nodes, strict=True))[len(stages) :]:
            flow = self._node(place, node, flow, 0, steps)
            stages.append(flow)
            counts.append(len(steps))
        if self.interpreter.cache is not None:  # only now, so that an aborted run leaves no trace
            for call, result in self.called:
                self.interpreter.cache.put(call, result)
        by = dict.fromkeys(step for made in flow.results for step in made.by)
        return WorkflowRun(tuple(steps), flow.values, tuple(by), tuple(stages), tuple(counts))

    def _chain(self, ids: Iterable[str], nodes: Chain, flow: RunState, attempt: int, steps: list[RunStep]) -> RunState:
        for place, node in zip(ids, nodes, strict=True):
            flow = self._node(place, node, flow, attempt, steps)
        return flow

    def _node(self, place: str, node: Node, flow: RunState, attempt: int, steps: list[RunStep]) -> RunState:
        match node:
            case OperatorNode():
                if place in self.without.operators:
                    return flow
                step = self._call(place, node, flow, attempt)
                steps.append(step)
                return _after(step, flow)
            case Parallel():
                return self._parallel(place, node, flow, attempt, steps)
            case Conditional():
                return self._conditional(place, node, flow, attempt, steps)
            case Loop(body, count):
                (ids,) = child_ids(place, node)
                for time in range(1 if place in self.without.rounds else count):
                    flow = self._chain(ids, body, flow, attempt * count + time, steps)
                return flow

    def _parallel(self, place: str, node: Parallel, flow: RunState, attempt: int, steps: list[RunStep]) -> RunState:
        ids = child_ids(place, node)
        count = len(node.branches)

        def run(slot: int) -> tuple[RunState, list[RunStep]]:
            own: list[RunStep] = []
            start = flow
            if flow.to_share:  # distributed in turn; repeated if there are too few
                share = flow.pieces[slot::count] or (flow.pieces[slot % len(flow.pieces)],)
                start = flow._replace(pieces=share, to_share=False)
            return self._chain(ids[slot], node.branches[slot], start, attempt, own), own

        if self.interpreter.concurrent:
            # Not a shared pool: branches wait for their inner branches, which might then never start.
            with ThreadPoolExecutor(count) as pool:
                parts = [pool.submit(run, slot) for slot in range(count)]
                branches = all_of(parts, self.stopped.set, getattr(self.interpreter.backend, "cancel", None))
        else:
            branches = [run(slot) for slot in range(count)]
        results: list[StepValue] = []
        for after, own in branches:
            steps += own
            if any(step.ok for step in own):
                results += after.results
        return flow.then(tuple(results)) if results else flow._replace(to_share=False)

    def _conditional(
        self, place: str, node: Conditional, flow: RunState, attempt: int, steps: list[RunStep]
    ) -> RunState:
        (check_id,), passed_ids, failed_ids = child_ids(place, node)
        cases = {True: (passed_ids, node.passed), False: (failed_ids, node.failed)}
        if check_id in self.without.operators:
            if check_id not in self.cases:
                return flow
            return self._chain(*cases[self.cases[check_id]], flow, attempt, steps)
        check = self._call(check_id, node.check, flow, attempt)
        steps.append(check)
        checked = _after(check, flow)
        if check.result.value is None:
            return checked
        taken = cases[bool(check.result.value.passed)]
        if not _matters(node):
            return self._chain(*taken, checked, attempt, steps)
        inner = checked._replace(control=(*flow.control, check.id))
        after = self._chain(*taken, inner, attempt, steps)
        # The results depend on the verdict, even if nothing ran.
        results = tuple(StepValue(made.value, _joined(made.by, (check.id,))) for made in after.results)
        return after._replace(results=results, control=flow.control)

    def _call(self, place: str, node: OperatorNode, flow: RunState, attempt: int) -> RunStep:
        operator, cache = OPERATORS[node.name], self.interpreter.cache
        inputs: dict[str, Input] = {}
        reads = flow.control
        for name in operator.inputs:
            inputs[name], by = _GIVEN[name](self.problem, flow)
            reads = _joined(reads, by)
        seed = self.interpreter.seed
        call = OpCall(node.name, self.problem.task_id, place, attempt, inputs, node.instruction, seed)
        result = cache.get(call) if cache is not None else None
        cached = result is not None
        if result is None:
            if self.stopped.is_set():
                raise CancelledError("another branch of this run raised, or the run was interrupted")
            fewest, count = operator.branches, len(flow.results)
            if count < fewest:
                text = f"{operator.name} works on {fewest} results or more; here: {count}"
                result = OpResult("error", text=text)
            else:
                result = _complete(operator, self.interpreter.backend.run(call))
            self.called.append((call, result))
        return RunStep(StepId(place, attempt), node.name, result, cached, reads, call)


def _joined(one: By, other: By) -> By:
    return tuple(dict.fromkeys(one + other)) if one and other else one or other


def _after(step: RunStep, flow: RunState) -> RunState:
    """Return the state after a call."""
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
    """Return whether a verdict can affect the result: the cases differ, and not only in checks."""
    if node.passed == node.failed:
        return False
    within = (*every(node.passed), *every(node.failed))
    return any(isinstance(one, OperatorNode) and OPERATORS[one.name].role is not Role.CHECKER for one in within)


def _checked(made: StepValue, results: tuple[StepValue, ...]) -> tuple[StepValue, ...]:
    """Return the results after a check: unchanged, unless the checker gave a new solution."""
    text, code = made.value.text, made.value.code
    same = len(results) == 1 and (text, code) == (results[0].value.text, results[0].value.code)
    return results if same or not (text or code) else (made,)


def _complete(operator: Operator, result: OpResult) -> OpResult:
    """Return `result`, or an error if it lacks a declared output of the operator."""
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


T = TypeVar("T")

POLL = 0.02
"""The interval in seconds at which interrupted work is polled."""


def all_of(parts: Sequence[Future[T]], stop: Callable[[], None], cancel: Callable[[], None] | None) -> list[T]:
    """Return the results of all parts.

    If parts raise, the first exception other than a cancellation is raised after all have ended.

    Args:
        parts: the futures to wait for.
        stop: called after an exception, so that no part begins anything new.
        cancel: called on an interrupt, possibly several times, to abort what parts wait for; None if impossible.
    """
    try:
        return [part.result() for part in parts]
    except BaseException as error:
        stop()
        interrupted = not isinstance(error, Exception)
        while wait(parts, POLL if interrupted and cancel else None).not_done:
            if cancel is not None:
                cancel()  # repeatedly, because a part may have been about to send a request
        if isinstance(error, CancelledError):  # because another part raised
            causes = (part.exception() for part in parts if not part.cancelled())
            raise next((cause for cause in causes if not isinstance(cause, CancelledError | None)), error) from None
        raise
