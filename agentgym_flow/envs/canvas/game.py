"""An episode of Canvas without Gymnasium: the draft, its runs, its value, and what is reported of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

from agentgym_flow.envs.canvas.actions.drafting import CanvasDraft, Drafting, TurnResult
from agentgym_flow.envs.canvas.feedback import Feedback, graph_lines, run_lines, summary
from agentgym_flow.envs.canvas.operators.calls import Backend, WorkflowProblem
from agentgym_flow.envs.canvas.tasks.assignment import Assignment, asked, circumstances, result_of
from agentgym_flow.envs.canvas.workflow.ablation import NOTHING_RAN, Ablation, Memo, ablation
from agentgym_flow.envs.canvas.workflow.graph import Workflow
from agentgym_flow.envs.canvas.workflow.interpreter import Cache, Interpreter
from agentgym_flow.envs.canvas.workflow.rules import Circumstances
from agentgym_flow.envs.canvas.workflow.run import WorkflowRun
from agentgym_flow.seeding import stable_hash


class Budget(NamedTuple):
    """What the operators of an episode have cost so far; what came from the cache is not counted again.

    Attributes:
        calls: operators that were called.
        tokens: read and written for them.
        cost: in the executor's currency.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def after(self, run: WorkflowRun | None) -> Budget:
        """Return what was spent after a run."""
        if run is None:
            return self
        calls = sum(not step.cached for step in run.steps)
        return Budget(self.calls + calls, self.tokens + run.tokens, self.cost + run.cost)


@dataclass
class CanvasGame:
    """An episode.

    Attributes:
        task: what it is about.
        drafting: the rules of turns.
        hints: whether feedback says what to do next.
        interpreter: runs the workflow after each edit; None where nothing can be run.
        settled: whether equal workflows have equal runs for ever.
        draft: the workflow so far.
        run: the last run of it; None while it is empty.
        last: what came of the last turn; None before the first.
        spent: what its operators have cost so far.
        score: what the result handed in is worth; 0.0 before that.
        repeated: calls that were made again to find out what the result needs.
        circumstances: what finish rules look at.
    """

    task: Assignment
    drafting: Drafting
    hints: bool
    interpreter: Interpreter | None
    settled: bool = True
    draft: CanvasDraft = field(default_factory=CanvasDraft)
    run: WorkflowRun | None = None
    last: TurnResult | None = None
    spent: Budget = field(default_factory=Budget)
    score: float = 0.0
    repeated: Memo = field(default_factory=dict)
    circumstances: Circumstances = field(init=False)

    def __post_init__(self) -> None:
        self.circumstances = circumstances(self.task.problem, self.run)

    @classmethod
    def of(
        cls, task: Assignment, drafting: Drafting, backend: Backend | None, *, seed: int, hints: bool, settled: bool
    ) -> CanvasGame:
        """Return a new episode; branches run in threads where the backend is a real one."""
        interpreter = backend and Interpreter(backend, seed=seed, cache=Cache(), concurrent=not settled)
        return cls(task, drafting, hints, interpreter or None, settled)

    def __deepcopy__(self, memo: dict[int, Any]) -> CanvasGame:
        """Return a clone with a cache of its own, because calls are counted by what is in it."""
        interpreter = self.interpreter
        if self.settled and interpreter is not None:
            cache = copy.deepcopy(interpreter.cache)
            return replace(self, interpreter=Interpreter(interpreter.backend, seed=interpreter.seed, cache=cache))
        return replace(self, interpreter=copy.deepcopy(interpreter, memo))

    @property
    def finished(self) -> bool:
        """Whether the workflow was handed in."""
        return self.last is not None and self.last.finished

    @cached_property
    def problem(self) -> WorkflowProblem:
        """What operators are given."""
        return asked(self.task.problem)

    @property
    def correctness(self) -> float:
        """What the last result is worth, handed in or not: the published rewards look at it when turns run out."""
        return self.score if self.finished else self.worth(self.run)

    def opening(self, turns: int) -> str:
        """Return the first observation: the task, what is there, and what is needed."""
        empty = TurnResult(self.draft)
        said = Feedback(self.drafting, self.hints).text(empty, None, self.circumstances, turns).partition("\n")[2]
        return f"Task:\n{self.task.problem.shown()}\n\n{said}"

    def turn(self, written: str | Mapping[str, Any]) -> TurnResult:
        """Return what comes of what a policy wrote; runs the workflow when it was edited, scores it when handed in."""
        turn = self.drafting.turn(written, self.draft, self.circumstances)
        run, about, score, spent = self.run, self.circumstances, self.score, self.spent
        again = run is not None and bool(run.failures) and not self.settled  # what failed may work now
        if turn.edited and (again or turn.draft.workflow.nodes != self.draft.workflow.nodes):
            run = self.runs(turn.draft)
            about, spent = circumstances(self.task.problem, run), spent.after(run)
        if turn.finished:
            score = self.worth(run)
        # Set only now: what a backend raises leaves the episode as it was.
        self.draft, self.run, self.circumstances = turn.draft, run, about
        self.score, self.spent, self.last = score, spent, turn
        return turn

    def runs(self, draft: CanvasDraft) -> WorkflowRun | None:
        """Return what happens when the workflow of a draft runs; None when it is empty."""
        if not draft.workflow.nodes:
            return None
        assert self.interpreter is not None, "an episode without a backend is not begun"
        nodes, before = draft.workflow.nodes, self.draft.workflow.nodes
        if self.run is None or not self.settled:
            return self.interpreter.run(nodes, self.problem)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(nodes, before, strict=False)))
        return self.interpreter.run_on(nodes, self.problem, self.run, same)

    def worth(self, run: WorkflowRun | None) -> float:
        """Return what the result of a run is worth; programs side by side are no program."""
        if run is None or not run.results or (self.task.problem.kind == "code" and run.value is None):
            return 0.0
        return self.task.score(*result_of(run))

    def ablation(self) -> Ablation:
        """Return what the result of the last run needs of the workflow."""
        if self.run is None or self.interpreter is None:
            return NOTHING_RAN
        return ablation(self.draft.workflow, self.run, self.interpreter, self.problem, self.repeated)

    def feedback(self, left: int) -> str:
        """Return the feedback after the last turn, with `left` turns left."""
        assert self.last is not None, "there has been a turn"
        return Feedback(self.drafting, self.hints).text(self.last, self.run, self.circumstances, left)

    def state_key(self) -> str:
        """Return what the future depends on: the draft, and where runs are not settled all that came of them.

        Not the result alone: a deletion brings back what an earlier node made, an operator that is added again what it
        made before, from the cache, and what failed is tried again.
        """
        if self.finished:
            return f"end:{'success' if self.score == 1.0 else 'fail'}:{float(self.score).hex()}"
        if self.settled:
            return self.draft.identity
        steps = () if self.run is None else self.run.steps
        cache = None if self.interpreter is None else self.interpreter.cache
        kept = "" if cache is None else cache.digest
        return stable_hash([self.draft.identity, [step.identity for step in steps], kept])

    def told(self) -> dict[str, Any]:
        """Return the workflow and its last run as plain data."""
        asked = self.draft.asked
        return {**self.told_of(self.draft.workflow, self.run), "asked": "" if asked is None else asked.name}

    def told_of(self, workflow: Workflow, run: WorkflowRun | None) -> dict[str, Any]:
        """Return the feedback on another workflow and its run."""
        about = self.circumstances if run is self.run else circumstances(self.task.problem, run)
        spent = {"total_calls": self.spent.calls, "tokens": self.spent.tokens, "cost": self.spent.cost}
        return {**summary(workflow, self.drafting, run, about, finished=self.finished), **spent}

    def described(self) -> str:
        """Return the task, the graph and the result, for a person to read."""
        lines = [self.task.problem.shown(), "", *graph_lines(self.draft.workflow, self.drafting.language)]
        if self.run is not None:
            lines += run_lines(self.run)
        if self.finished:
            lines.append(f"Handed in: {'right' if self.score == 1.0 else f'score {self.score:.2f}'}")
        return "\n".join(lines)
