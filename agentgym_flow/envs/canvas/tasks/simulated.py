"""The interface of simulated tasks: a problem, the possible mistakes, and the answers that they lead to.

Nothing here is random. The odds of operators determine how likely they make, find or mend each kind of mistake; a task
computes the solution with given mistakes, so a wrong answer is really what the mistakes lead to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.correctness import scorer_of
from agentgym_flow.envs.canvas.scoring.problem import Problem

VARIANTS = 7
"""The number of variants of solutions with the same mistakes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake that can be made in a task.

    Attributes:
        tag: its identifier, unique within the task.
        kind: its kind, which determines the odds of operators.
        words: lower-case words of the problem; an instruction with one of them warns against the mistake. Empty if no
            warning helps.
        note: the note of a checker that finds it, a sentence without the answer.
        piece: the sub-problem in which it is made; None if it concerns the whole.
        likely: False if it is rare, as in easy tasks.
    """

    tag: str
    kind: Mistake
    words: tuple[str, ...]
    note: str
    piece: int | None = None
    likely: bool = True


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of running tests on a program.

    Attributes:
        passed: whether all tests passed.
        note: what failed, in a sentence without hidden tests; empty if all passed.
        outputs: equal for programs with the same behaviour on the inputs of the tests, and different for others.
    """

    passed: bool
    note: str = ""
    outputs: str = ""


class SimulatedTask(ABC):
    """A simulated task. Immutable; every method is a pure function with the same results in every process.

    Attributes:
        problem: the problem with its right answers. `problem.key` identifies the task.
        family: `"arithmetic"`, `"code"` or `"qa"`.
        kind: what makes it hard, such as `"trap"`; for statistics, never shown.
        faults: the possible mistakes in a fixed order, with unique tags.
        plan: the steps of a good plan, at least one; they do not contain the answer.
        pieces: at least two sub-problems that can be solved separately and whose answers combine to the answer; empty
            for a problem without parts.
        endless: whether the program to write never ends, so that running it outside its tests fails.
        wordy: whether solutions in words tend to bury the answer.
        phrasings: the number of phrasings of a right answer; if it is above 1, equivalent texts often differ.
    """

    problem: Problem
    family: str
    kind: str
    faults: tuple[Fault, ...]
    plan: tuple[str, ...]
    pieces: tuple[str, ...] = ()
    endless: bool = False
    wordy: bool = False
    phrasings: int = 1

    @abstractmethod
    def answer(self, made: Collection[str], variant: int) -> str:
        """Return the short answer of a solution.

        Args:
            made: the tags of its mistakes. The answer is right if there are none, else wrong.
            variant: at least 0; distinguishes solutions with the same mistakes in slips, wobbles and phrasings. Other
                kinds of mistakes always lead to the same wrong answer.
        """

    @abstractmethod
    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the short answer to sub-problem number `piece`, or without pieces to an intermediate step.

        The answer of an intermediate step never equals the right answer.
        """

    @abstractmethod
    def telling(self, answer: str, variant: int) -> str:
        """Return a text of a few lines that argues for `answer` and ends with `Answer: ...`.

        In mathematics it scores the same as `answer`, because answers are extracted from texts. For questions the whole
        text counts, so it is wrong until it is formatted.
        """

    @abstractmethod
    def rambling(self, answer: str, variant: int) -> str:
        """Return a text that contains `answer` but from which the scorer reads something else.

        Used if solutions in words bury the answer; Format extracts it again.
        """

    def program(self, made: Collection[str], variant: int) -> str:
        """Return the source of a program with these mistakes; empty if the task does not ask for a program.

        Each tag stands for a change to the syntax tree of the right program.
        """
        return ""

    def public(self, program: str) -> TestOutcome:
        """Return the outcome of the public tests of a program. Only for tasks that ask for programs."""
        return TestOutcome(False, "There are no tests.")

    @property
    def scorer(self) -> str:
        """The name of the scorer, see `scoring.correctness.scorer_of`."""
        return scorer_of(self.problem)

    @abstractmethod
    def score(self, text: str, code: str) -> float:
        """Return the score of a result, in [0, 1]: of `code` for programs, of `text` otherwise."""
