"""What the builders of questions hand on: a question, the passages it needs, and what mistakes lead to."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentgym_flow.envs.canvas.scoring.problem import ContextPassage
from agentgym_flow.envs.canvas.tasks.facts.world import FactEntity
from agentgym_flow.envs.canvas.tasks.simulated import Fault

WRONGS = 7
"""How many different wrong answers a mistake has that chance decides."""


@dataclass(frozen=True, slots=True)
class QuestionDraft:
    """A question to be.

    Attributes:
        question: as it is asked.
        answers: the right one, in all its phrasings.
        wrong: tag of a fault -> what it leads to; more than one where chance decides.
        faults: see `task.SimulatedTask`.
        plan: likewise.
        steps: answers to the pieces; without pieces, what one comes by on the way.
        needed: things whose passages are needed.
        kept_out: names of things whose passages must not be there.
        passages: further ones.
        pieces: see `task.SimulatedTask`.
    """

    question: str
    answers: tuple[str, ...]
    wrong: dict[str, tuple[str, ...]]
    faults: tuple[Fault, ...]
    plan: tuple[str, ...]
    steps: tuple[str, ...]
    needed: tuple[FactEntity, ...] = ()
    kept_out: tuple[str, ...] = ()
    passages: list[ContextPassage] = field(default_factory=list)
    pieces: tuple[str, ...] = ()


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
