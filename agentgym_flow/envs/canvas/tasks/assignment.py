"""The common interface of simulated and published tasks: a problem, and the score of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentgym_flow.envs.canvas.operators import calls
from agentgym_flow.envs.canvas.scoring.correctness import correctness, scorer_of
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.workflow.rules import Circumstances
from agentgym_flow.envs.canvas.workflow.run import WorkflowRun


class Assignment(Protocol):
    """A problem with its scorer, such as `tasks.simulated.SimulatedTask`."""

    @property
    def problem(self) -> Problem:
        """The problem with its right answers."""

    @property
    def family(self) -> str:
        """The family of tasks, or the published set."""

    @property
    def kind(self) -> str:
        """A subdivision of the family, for statistics."""

    @property
    def scorer(self) -> str:
        """The name of the scorer, see `scoring.correctness.scorer_of`."""

    def score(self, text: str, code: str) -> float:
        """Return the score of a result, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """A problem for operators that use a real model. The sandbox scores programs."""

    problem: Problem

    @property
    def family(self) -> str:
        """The name of the set."""
        return self.problem.source

    @property
    def kind(self) -> str:
        """`math`, `qa` or `code`."""
        return self.problem.kind

    @property
    def scorer(self) -> str:
        """The name of the scorer."""
        return scorer_of(self.problem)

    def score(self, text: str, code: str) -> float:
        """Return the score of a result, in [0, 1]: of the program for code, of the text otherwise.

        Raises `SandboxUnavailable` or `SandboxFailed` if programs cannot run.
        """
        if self.problem.kind != "code":
            return correctness(self.problem, text).score
        from agentgym_flow.envs.canvas.scoring.running import run_tests

        return correctness(self.problem, code or text, run_tests).score


def workflow_problem(problem: Problem) -> calls.WorkflowProblem:
    """Return what operators see of a problem, without hidden tests and answers."""
    public = problem.public_tests
    tests = (public.setup, *public.checks) if public.setup and public.checks else public.checks
    return calls.WorkflowProblem(problem.key, problem.shown(), problem.entry_point, tests)


def result_of(run: WorkflowRun) -> tuple[str, str]:
    """Return the text and the program of a run's result; of several uncombined results, only their texts."""
    value = run.value
    return (run.answer, "") if value is None else (value.text, value.code)


def circumstances(problem: Problem, run: WorkflowRun | None) -> Circumstances:
    """Return the facts that finish rules and hints may use."""
    return Circumstances(
        code=problem.kind == "code", tests=bool(problem.public_tests.checks), result="" if run is None else run.answer
    )
