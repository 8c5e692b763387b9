"""What an episode is about: a problem, and how a result is scored; the same for simulated and published tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentgym_flow.envs.canvas.operators import calls
from agentgym_flow.envs.canvas.scoring.correctness import correctness, scorer_of
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.workflow.rules import Circumstances
from agentgym_flow.envs.canvas.workflow.run import WorkflowRun


class Assignment(Protocol):
    """A problem with its score. `tasks.simulated.SimulatedTask` is one."""

    @property
    def problem(self) -> Problem:
        """What is asked, and what is right."""

    @property
    def family(self) -> str:
        """The family of tasks, or the published set."""

    @property
    def kind(self) -> str:
        """A finer division, for statistics."""

    @property
    def scorer(self) -> str:
        """What decides the score, see `scoring.correctness.scorer_of`."""

    def score(self, text: str, code: str) -> float:
        """Return what a result is worth, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """A problem whose operators a real model plays. Programs are scored in the sandbox."""

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
        """What decides the score."""
        return scorer_of(self.problem)

    def score(self, text: str, code: str) -> float:
        """Return what a result is worth, in [0, 1]: a program for code, the text for all else.

        Raises `SandboxUnavailable` or `SandboxFailed` where programs cannot be run.
        """
        if self.problem.kind != "code":
            return correctness(self.problem, text).score
        from agentgym_flow.envs.canvas.scoring.running import run_tests

        return correctness(self.problem, code or text, run_tests).score


def asked(problem: Problem) -> calls.WorkflowProblem:
    """Return what operators are shown of a problem; hidden tests and answers stay out."""
    public = problem.public_tests
    tests = (public.setup, *public.checks) if public.setup and public.checks else public.checks
    return calls.WorkflowProblem(problem.key, problem.shown(), problem.entry_point, tests)


def result_of(run: WorkflowRun) -> tuple[str, str]:
    """Return the text and the program that a run came to; of several results that nothing gathered, all texts."""
    value = run.value
    return (run.answer, "") if value is None else (value.text, value.code)


def circumstances(problem: Problem, run: WorkflowRun | None) -> Circumstances:
    """Return what finish rules and hints may look at."""
    return Circumstances(
        code=problem.kind == "code", tests=bool(problem.public_tests.checks), result="" if run is None else run.answer
    )
