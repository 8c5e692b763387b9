"""What a task is to the simulator: a problem, the mistakes that can be made in it, and what each of them leads to.

Nothing here draws chance. Odds say how likely which operator makes, finds or mends which kind of mistake; a task
says what a solution with given mistakes looks like, so that a wrong answer is one to which the mistake really leads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.correctness import scorer_of
from agentgym_flow.envs.canvas.scoring.problem import Problem

VARIANTS = 7
"""Chance tells so many solutions with the same mistakes apart."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake that can be made in a task.

    Attributes:
        tag: its name, unique within the task.
        kind: what decides who makes, finds and mends it.
        words: words of the problem, in lower case, that point at it: an instruction with one of them warns against it.
            Empty where no warning helps.
        note: what a checker writes that finds it: a sentence without the answer.
        piece: the sub-problem in which it is made; None where it concerns the whole.
        likely: False where it is made seldom (an easy task).
    """

    tag: str
    kind: Mistake
    words: tuple[str, ...]
    note: str
    piece: int | None = None
    likely: bool = True


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """What running tests on a program brought.

    Attributes:
        passed: whether all passed.
        note: what failed, in a sentence that shows no hidden test; empty when all passed.
        outputs: tells apart programs that behave differently on the inputs of the tests, and no others.
    """

    passed: bool
    note: str = ""
    outputs: str = ""


class SimulatedTask(ABC):
    """A task of the simulator. Immutable; every method is a pure function, the same in every process.

    Attributes:
        problem: what is asked, and what is right. `problem.key` names the task.
        family: `"arithmetic"`, `"code"` or `"qa"`.
        kind: what makes it hard, such as `"trap"`; for statistics, never shown.
        faults: the mistakes that can be made, in a fixed order; tags are unique.
        plan: the steps of a sound plan, at least one; they do not give the answer away.
        pieces: sub-problems, at least two, whose answers together give the answer, and which can be solved apart;
            empty for a problem that is not made of parts.
        endless: the program that is asked for does not end by itself, so that running it outside its tests fails.
        wordy: solutions in words tend to bury the answer.
        phrasings: in how many ways a right answer may be put; above 1, texts of equal meaning often differ.
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
            made: tags of the mistakes in it. Without mistakes the answer is right; with any it is wrong.
            variant: at least 0; tells solutions with the same mistakes apart where chance does, in slips, wobbles and
                phrasings. Mistakes of other kinds lead to the same wrong answer whatever it is.
        """

    @abstractmethod
    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the short answer to sub-problem number `piece`; for a task without pieces, to some step of the way.

        A step of the way (of a task without pieces) never has the same text as the right answer.
        """

    @abstractmethod
    def telling(self, answer: str, variant: int) -> str:
        """Return a short text of a few lines that argues for `answer` and ends with it clearly, `Answer: ...`.

        Scored as `answer` is for mathematics, where answers are extracted from texts. For a question the whole text
        counts, so that this is wrong there until it is formatted.
        """

    @abstractmethod
    def rambling(self, answer: str, variant: int) -> str:
        """Return a text that has `answer` somewhere in it but is wrong as it stands: the scorer reads something else.

        Used where solutions in words bury the answer; Format digs it out again.
        """

    def program(self, made: Collection[str], variant: int) -> str:
        """Return the source of a program with these mistakes; empty where no program is asked for.

        Each tag is a change to the syntax tree of the right program.
        """
        return ""

    def public(self, program: str) -> TestOutcome:
        """Return what the public tests say of a program. Only for tasks that ask for programs."""
        return TestOutcome(False, "There are no tests.")

    @property
    def scorer(self) -> str:
        """What decides the score, see `scoring.correctness.scorer_of`."""
        return scorer_of(self.problem)

    @abstractmethod
    def score(self, text: str, code: str) -> float:
        """Return what a result is worth, in [0, 1], by the scorer of its problem; text for all but code."""
