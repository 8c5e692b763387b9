"""A question as a task of the simulator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agentgym_flow.envs.canvas.scoring.correctness import correctness
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.simulated import Fault, SimulatedTask

_TELLING = (
    "The passages say so where they tell of this.\nAnswer: {answer}",
    "I read the passages one by one and kept to what they say.\nAnswer: {answer}",
    "This follows from the passages.\nNothing else in them speaks against it.\nAnswer: {answer}",
    "One passage settles the matter.\nAnswer: {answer}",
)
_RAMBLING = (
    "There is much in these passages. It seems that {answer} is what they come to, though they also speak of other"
    " things, and one would have to look closely at each of them to be sure.",
    "Reading from the beginning, one meets several names and dates; among them {answer}, which fits the question well,"
    " and there are further ones that fit it less.",
    "The question can be settled from the text. I would say {answer} here, as the passages tell it, and leave aside"
    " the rest, which has to do with other matters.",
)


@dataclass(frozen=True)
class FactTask(SimulatedTask):
    """A question about an invented world.

    Attributes:
        wrong: tag of a fault -> the wrong answers it leads to; more than one where chance decides.
        steps: answers to the pieces; without pieces, what one comes by on the way.
    """

    problem: Problem
    kind: str
    faults: tuple[Fault, ...]
    plan: tuple[str, ...]
    wrong: Mapping[str, tuple[str, ...]]
    steps: tuple[str, ...]
    pieces: tuple[str, ...] = ()
    wordy: bool = False
    phrasings: int = 1
    family: str = "qa"
    endless: bool = False

    def answer(self, made: Collection[str], variant: int) -> str:
        """Return a phrasing of the right answer, or what the first of the mistakes made leads to."""
        for fault in self.faults:
            if fault.tag in made:
                wrong = self.wrong[fault.tag]
                return wrong[variant % len(wrong)]
        return self.problem.answers[variant % self.phrasings]

    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the answer to a piece, or to some step; with mistakes, what belongs to the next piece or step."""
        return self.steps[(piece + bool(made)) % len(self.steps)]

    def telling(self, answer: str, variant: int) -> str:
        """Return a text of two or three lines that ends with the answer."""
        return _TELLING[variant % len(_TELLING)].format(answer=answer)

    def rambling(self, answer: str, variant: int) -> str:
        """Return a long sentence or two with the answer in the midst of them."""
        return _RAMBLING[variant % len(_RAMBLING)].format(answer=answer)

    def score(self, text: str, code: str) -> float:
        """Return the F1 of a text, in [0, 1]."""
        return correctness(self.problem, text).score
