"""A question as a simulated task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agentgym_flow.envs.canvas.scoring.correctness import correctness
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.facts.draft import TEXTS
from agentgym_flow.envs.canvas.tasks.simulated import Fault, SimulatedTask


@dataclass(frozen=True)
class FactTask(SimulatedTask):
    """A question about an invented world.

    Attributes:
        wrong: tag of a fault -> its wrong answers; more than one if the outcome is random.
        steps: the answers to the pieces; without pieces, intermediate results.
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
        """Return a phrasing of the right answer, or the wrong answer of the first mistake made."""
        for fault in self.faults:
            if fault.tag in made:
                wrong = self.wrong[fault.tag]
                return wrong[variant % len(wrong)]
        return self.problem.answers[variant % self.phrasings]

    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the answer to a piece or step; with mistakes, that of the next piece or step."""
        return self.steps[(piece + bool(made)) % len(self.steps)]

    def telling(self, answer: str, variant: int) -> str:
        """Return a text of two or three lines that ends with the answer."""
        return _wording("telling", answer, variant)

    def rambling(self, answer: str, variant: int) -> str:
        """Return one or two long sentences that contain the answer."""
        return _wording("rambling", answer, variant)

    def score(self, text: str, code: str) -> float:
        """Return the F1 of a text, in [0, 1]."""
        return correctness(self.problem, text).score


def _wording(purpose: str, answer: str, variant: int) -> str:
    wordings = TEXTS[purpose]
    return wordings[variant % len(wordings)].format(answer=answer)
