"""What the simulator makes of an operator: the kinds of mistakes, a row of odds for each role, and its other numbers.

An operator brings its row in `Operator.odds`. The numbers are set so that the design decides: one operator alone solves
about half of the tasks, no fixed workflow more than four in five, and one that is fitted to the task and to what its
checks say nearly all. `tests/envs/canvas/test_canvas_calibration.py` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias


class Mistake(StrEnum):
    """The kinds of mistakes that can be made in a task. The rows of operators say who makes, finds and mends which."""

    SLIP = "slip"
    """A wrong calculation, or a wrong fact recalled: by chance, each time another."""
    NUANCE = "nuance"
    """A turn of the story that must be read with care; whoever goes straight to a program misses it."""
    TRAP = "trap"
    """A misreading that everybody falls into who is not warned: always the same wrong answer."""
    OMISSION = "omission"
    """A step left out of a long way, unless there is a plan."""
    PART = "part"
    """Parts of a whole mixed up, unless they are solved apart and put together."""
    WOBBLE = "wobble"
    """Cannot be made sure of: often right, wrong in different ways, and no checker can tell."""
    EDGE = "edge"
    """A fault of a program that the public tests show."""
    CORNER = "corner"
    """A fault of a program that only the hidden tests show."""
    HOP = "hop"
    """The answer to the first half of a question instead of the whole."""
    DISTRACTION = "distraction"
    """The wrong one of two things that look alike."""
    CONVENTION = "convention"
    """The usual thing where the task asks for an unusual one. No solver makes it; Review asks for it."""
    BELIEF = "belief"
    """What is generally held where the task says otherwise. No solver makes it; Verify asks for it."""


DEMANDED = frozenset({Mistake.CONVENTION, Mistake.BELIEF})
"""Mistakes that no solver makes and no check finds: a check demands them, and Revise makes them."""


@dataclass(frozen=True, slots=True)
class PlannerOdds:
    """Of a planner: it gives the steps of the task's plan, or its sub-problems where it leaves pieces. No chance."""


@dataclass(frozen=True, slots=True)
class SolverOdds:
    """Of a solver.

    Attributes:
        risk: kind of mistake -> the probability that it makes one; 0 for a kind that is not here.
        beyond: the families whose tasks it cannot solve at all.
        program: what comes of it where it is not words: the program that it wrote, or also the output of that.
        wordy: it explains, and buries its answer in words where a task tempts to it.
    """

    risk: Mapping[Mistake, float]
    beyond: frozenset[str] = frozenset()
    program: Literal["", "written", "run"] = ""
    wordy: bool = False


@dataclass(frozen=True, slots=True)
class CheckerOdds:
    """Of a checker.

    Attributes:
        finds: kind of mistake -> the probability that it finds one; 0 for a kind that is not here.
        demands: kind of mistake -> the probability that it objects to a solution without one, where the task has it;
            0 for a kind that is not here. Revise makes the mistake then.
        runs_tests: it runs the public tests and draws nothing.
    """

    finds: Mapping[Mistake, float]
    runs_tests: bool = False
    demands: Mapping[Mistake, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReviserOdds:
    """Of a reviser.

    Attributes:
        mends: kind of mistake -> the probability that it takes out one that the notes name. None: it changes nothing
            but the form, to the answer alone.
    """

    mends: Mapping[Mistake, float] | None


@dataclass(frozen=True, slots=True)
class EnsembleOdds:
    """Of an ensemble.

    Attributes:
        by: how it comes to one solution: the commonest one as it is written, a vote on what they mean, or pieces put
            together.
    """

    by: Literal["text", "meaning", "pieces"]


Odds: TypeAlias = PlannerOdds | SolverOdds | CheckerOdds | ReviserOdds | EnsembleOdds
"""The row of an operator; each role has a type of its own."""

UNLIKELY = 0.07
"""Of a mistake that is seldom made (`Fault.likely` is False) the probability is so many times smaller."""

PLANNED: Mapping[Mistake, float] = {Mistake.OMISSION: 0.04, Mistake.HOP: 0.60}
"""With a plan the probability is so many times smaller; the same for kinds that are not here."""

WARNED: Mapping[Mistake, float] = {
    Mistake.TRAP: 0.10,
    Mistake.NUANCE: 0.80,
    Mistake.CORNER: 0.85,
    Mistake.DISTRACTION: 0.40,
    Mistake.OMISSION: 0.60,
}
"""The same for an instruction that names the mistake's words."""

ATTENTION = 100
"""An instruction with more characters warns against nothing."""

LOST_SEEN = 0.45
"""The probability that a checker sees that a solution has nothing to do with the task."""

FALSE_ALARM = 0.05
"""The probability that a checker finds fault with what it finds no mistake in."""

TOLD = 0.50
"""So many times that, where it is named by the instruction of Revise and not by notes."""

SPOILT_UNPROMPTED = 0.08
"""The probability that Revise spoils a solution when no notes say what to change."""

SPOILT_MISLED = 0.25
"""The probability that it does when the notes find fault with what is right."""

GIVES_IN = 0.95
"""The probability that Revise makes the mistake that the notes demand."""

TELLING = 0.03
"""The probability that Custom explains at length where others just answer."""

RAMBLING = 0.50
"""The probability that Custom buries its answer in words, in a task that tempts to it."""

PUT_TOGETHER = 0.50
"""The probability that Aggregate makes a whole of pieces that are none."""

VOTES = 5
"""So often MdEnsemble votes."""
