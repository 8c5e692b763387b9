"""A simulated task that asks for a program: wrong programs are the right one with changes to its syntax tree."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

from agentgym_flow.envs.canvas.scoring.correctness import correctness
from agentgym_flow.envs.canvas.scoring.problem import CodeTests, Problem
from agentgym_flow.envs.canvas.scoring.programs import completed
from agentgym_flow.envs.canvas.tasks.code.changes import ProgramMistake, changed
from agentgym_flow.envs.canvas.tasks.simulated import Fault, SimulatedTask, TestOutcome

_OPENINGS = (
    "I go through the input step by step, as the task describes it, and checked the examples by hand.",
    "The idea is to follow the rules of the task one by one.",
    "Here is how I would write it; the names are those of the task.",
    "It follows the description closely and needs no library.",
)
_RAMBLINGS = (
    "One could think of {answer}\nbut there may be shorter ways, and I have not decided between them.",
    "Let me think. My first version was\n{answer}\nwhich seems to do it, although I would still tidy it up.",
    "So the code might look like this:\n{answer}\nI am fairly sure about the rest; the details follow from the task.",
)


class CodeTask(SimulatedTask):
    """A task whose answer is a function in Python. Immutable, as far as anybody can see.

    The answer in short is the program itself. Only programs that the task has made are judged from what is known of
    them; every other program that has the function goes to the sandbox.

    Args:
        problem: with a right program in `solution`, and tests of both sorts.
        kind: what makes it hard.
        faults: what can be wrong.
        changes: by tag, what each of them does to the program.
        plan: as in `SimulatedTask`.
        endless: as in `SimulatedTask`.
    """

    family = "code"

    def __init__(
        self,
        problem: Problem,
        kind: str,
        faults: tuple[Fault, ...],
        changes: Mapping[str, ProgramMistake],
        plan: tuple[str, ...],
        *,
        endless: bool = False,
    ) -> None:
        self.problem = problem
        self.kind = kind
        self.faults = faults
        self.plan = plan
        self.endless = endless
        self._changes = changes
        self._texts: dict[frozenset[str], str] = {}
        self._known: dict[str, frozenset[str]] = {}

    def __copy__(self) -> CodeTask:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CodeTask:
        return self

    def program(self, made: Collection[str], variant: int) -> str:
        """Return the right program with the changes of these tags made in it; `variant` makes no difference."""
        tags = frozenset(made)
        text = self._texts.get(tags)
        if text is None:
            text = ast.unparse(changed(self.problem.solution, [self._changes[tag] for tag in tags])) + "\n"
            self._texts[tags] = text
        return text

    def answer(self, made: Collection[str], variant: int) -> str:
        """Return the program, which is the shortest answer there is."""
        return self.program(made, variant)

    def telling(self, answer: str, variant: int) -> str:
        """Return a few words with the program in a fenced block; scored as the program is."""
        opening = _OPENINGS[variant % len(_OPENINGS)]
        return (
            f"{opening}\n\n```python\n{answer.rstrip()}\n```\n\nAnswer: the function {self.problem.entry_point} above."
        )

    def rambling(self, answer: str, variant: int) -> str:
        """Return thoughts in which the program stands without a fence, so that the whole is no program."""
        return _RAMBLINGS[variant % len(_RAMBLINGS)].format(answer=answer.rstrip())

    def public(self, program: str) -> TestOutcome:
        """Return what the public tests say of a program.

        Raises `SandboxUnavailable` for a program that the task did not make, where nothing can be run safely.
        """
        whole = completed(self.problem, program)
        made = self._made(whole)
        if made is not None:
            return self._known_tested(made)
        if not _defines(whole, self.problem.entry_point):
            return TestOutcome(False, f"There is no function {self.problem.entry_point}.")
        return self._tested(whole)

    def score(self, text: str, code: str) -> float:
        """Return 1.0 when `code`, or without it the program in `text`, passes the hidden tests, else 0.0.

        Raises as `public` does.
        """
        return correctness(self.problem, code if code.strip() else text, self._run_tests).score

    def _run_tests(self, program: str, tests: CodeTests) -> bool:
        made = self._made(program)
        if made is not None:
            return self._known_passes(made)
        return _defines(program, self.problem.entry_point) and self._passes(program)

    def _made(self, whole: str) -> frozenset[str] | None:
        """Return the tags of a completed program that this task can make; None for another text."""
        if not self._known:
            tags = [fault.tag for fault in self.faults]
            for count in range(len(tags) + 1):
                for some in combinations(tags, count):
                    made = completed(self.problem, self.program(some, 0))
                    self._known.setdefault(made.strip(), frozenset(some))
        return self._known.get(whole.strip())

    @abstractmethod
    def _known_tested(self, made: frozenset[str]) -> TestOutcome:
        """Return what the public tests say of an own program."""

    @abstractmethod
    def _known_passes(self, made: frozenset[str]) -> bool:
        """Return whether an own program passes the hidden tests."""

    @abstractmethod
    def _tested(self, program: str) -> TestOutcome:
        """Return what the public tests say of an unknown program, completed, in the sandbox."""

    @abstractmethod
    def _passes(self, program: str) -> bool:
        """Return whether an unknown program, completed, passes the hidden tests, in the sandbox."""


def _defines(text: str, name: str) -> bool:
    """Return whether a text is a program that may give something this name, anywhere in it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return not name or name in {word for node in ast.walk(tree) for word in _bound(node)}


def _bound(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Name(id=name, ctx=ast.Store()):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name,)
        case _:
            return ()
