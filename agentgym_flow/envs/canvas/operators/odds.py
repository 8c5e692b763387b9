"""The odds of the simulator: the kinds of mistakes, a type of odds for each role of operators, and further numbers.

`Operator.odds` contains the odds of an operator. The numbers are calibrated so that the design of the workflow decides:
one operator alone solves about half of the tasks, no fixed workflow more than four in five, and a workflow that is
adapted to the task and its checks nearly all. `tests/envs/canvas/test_canvas_calibration.py` measures this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias


class Mistake(StrEnum):
    """The kinds of mistakes in tasks. The odds of operators state which of them they make, find and mend."""

    SLIP = "slip"
    """A miscalculation or a wrongly recalled fact: random, and different each time."""
    NUANCE = "nuance"
    """A detail of the story that needs careful reading; writing a program at once misses it."""
    TRAP = "trap"
    """A misreading that any operator makes unless it is warned: always the same wrong answer."""
    OMISSION = "omission"
    """An omitted step of a long solution, unless there is a plan."""
    PART = "part"
    """Confused parts of a problem, unless they are solved separately and combined."""
    WOBBLE = "wobble"
    """An uncertain answer: often right, wrong in different ways, and hardly visible to checkers."""
    EDGE = "edge"
    """A bug that the public tests reveal."""
    CORNER = "corner"
    """A bug that only the hidden tests reveal."""
    HOP = "hop"
    """The answer to the first half of a question instead of the whole."""
    DISTRACTION = "distraction"
    """The wrong one of two similar entities."""
    CONVENTION = "convention"
    """The usual behaviour although the task asks for an unusual one. Solvers never make it; Review demands it."""
    BELIEF = "belief"
    """A common belief although the task states something else. Solvers never make it; Verify demands it."""


DEMANDED = frozenset({Mistake.CONVENTION, Mistake.BELIEF})
"""Mistakes that solvers never make and checkers never find: a checker demands them, and Revise makes them."""


def chances(**by_kind: float) -> Mapping[Mistake, float]:
    """Return probabilities by kind of mistake: `chances(slip=0.65, trap=0.85)`."""
    return {Mistake(kind): chance for kind, chance in by_kind.items()}


@dataclass(frozen=True, slots=True)
class PlannerOdds:
    """Odds of a planner. It always gives the steps of the task's plan, or its sub-problems if it leaves pieces."""


@dataclass(frozen=True, slots=True)
class SolverOdds:
    """Odds of a solver.

    Attributes:
        risk: kind of mistake -> the probability of making it; 0 for missing kinds.
        beyond: the families whose tasks it cannot solve.
        program: `"written"` if it gives a program, `"run"` if also its output; empty for words.
        wordy: whether it explains its answer, and buries it in words in tasks that are `wordy`.
    """

    risk: Mapping[Mistake, float]
    beyond: frozenset[str] = frozenset()
    program: Literal["", "written", "run"] = ""
    wordy: bool = False


@dataclass(frozen=True, slots=True)
class CheckerOdds:
    """Odds of a checker.

    Attributes:
        finds: kind of mistake -> the probability of finding it; 0 for missing kinds.
        runs_tests: whether it runs the public tests and involves no chance.
        demands: kind of mistake -> the probability of objecting to a solution without it, if the task has it; 0 for
            missing kinds. Revise then makes the mistake.
    """

    finds: Mapping[Mistake, float]
    runs_tests: bool = False
    demands: Mapping[Mistake, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReviserOdds:
    """Odds of a reviser.

    Attributes:
        mends: kind of mistake -> the probability of mending one that the notes name. None if it only reduces the
            solution to the answer.
    """

    mends: Mapping[Mistake, float] | None


@dataclass(frozen=True, slots=True)
class EnsembleOdds:
    """Odds of an ensemble.

    Attributes:
        by: how it chooses a solution: the most common text, a vote on the meaning, or by combining pieces.
    """

    by: Literal["text", "meaning", "pieces"]


Odds: TypeAlias = PlannerOdds | SolverOdds | CheckerOdds | ReviserOdds | EnsembleOdds
"""The odds of an operator; each role has its own type."""

UNLIKELY = 0.07
"""The factor on the probability of unlikely mistakes (`Fault.likely` is False)."""

PLANNED: Mapping[Mistake, float] = {Mistake.OMISSION: 0.04, Mistake.HOP: 0.60}
"""Kind of mistake -> the factor on its probability if there is a plan; 1 for missing kinds."""

WARNED: Mapping[Mistake, float] = {
    Mistake.TRAP: 0.10,
    Mistake.NUANCE: 0.80,
    Mistake.CORNER: 0.85,
    Mistake.DISTRACTION: 0.40,
    Mistake.OMISSION: 0.60,
}
"""Kind of mistake -> the factor on its probability if the instruction contains the mistake's words; else 1."""

ATTENTION = 100
"""The maximum length of an instruction that has an effect as a warning."""

LOST_NOTICED = 0.45
"""The probability that a checker notices an answer which has nothing to do with the task."""

FALSE_ALARM = 0.05
"""The probability that a checker objects without having found a mistake."""

MENDED_BY_INSTRUCTION = 0.50
"""The factor on `ReviserOdds.mends` if the instruction of Revise names the mistake and no notes do."""

SPOILT_UNPROMPTED = 0.08
"""The probability that Revise spoils a solution without notes on what to change."""

SPOILT_MISLED = 0.25
"""The probability that Revise spoils a solution if the notes object to something right."""

GIVES_IN = 0.95
"""The probability that Revise makes the mistake that the notes demand."""

TELLING = 0.03
"""The probability that a wordy solver explains its answer in a task that is not wordy."""

RAMBLING = 0.50
"""The probability that a wordy solver buries its answer in a wordy task."""

STEPS_COMBINED = 0.50
"""The probability that Aggregate succeeds in combining steps that are not separate pieces."""

VOTES = 5
"""The number of votes of MdEnsemble; with a real model, it stops once a candidate has a majority."""
