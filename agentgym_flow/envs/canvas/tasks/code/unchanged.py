"""Problems of published sets without mistakes: no tried change of the solution fails a test."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from agentgym_flow import sandbox
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.scoring.programs import completed
from agentgym_flow.envs.canvas.scoring.running import run_tests
from agentgym_flow.envs.canvas.tasks.code.task import CodeTask
from agentgym_flow.envs.canvas.tasks.simulated import TestOutcome


class UnchangedTask(CodeTask):
    """A task whose only solution is the published one. The hidden tests still score it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, "plain", (), {}, (f"Write {problem.entry_point} as the text says",))

    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the name of the function, because there are no parts."""
        return f"The function is {self.problem.entry_point}."

    @cached_property
    def _is_right(self) -> bool:
        return self._passes(completed(self.problem, self.program((), 0)))

    def _known_tested(self, made: frozenset[str]) -> TestOutcome:
        return TestOutcome(True)

    def _known_passes(self, made: frozenset[str]) -> bool:
        return self._is_right

    def _tested(self, program: str) -> TestOutcome:
        tests = self.problem.public_tests
        found = sandbox.check(completed(self.problem, program), tests.source, names=tests.names)
        return TestOutcome(found.passed, "" if found.passed else f"A test fails: {found.message}.", found.message)

    def _passes(self, program: str) -> bool:
        return run_tests(program, self.problem.hidden_tests)
