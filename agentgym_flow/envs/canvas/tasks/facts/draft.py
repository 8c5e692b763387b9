"""A draft of a question: its wording, the passages it needs, and the wrong answers that mistakes lead to."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentgym_flow.envs.canvas.scoring.problem import ContextPassage
from agentgym_flow.envs.canvas.tasks.facts.world import FactEntity
from agentgym_flow.envs.canvas.tasks.simulated import Fault
from agentgym_flow.envs.content import read_content

WRONGS = 7
"""The number of different wrong answers of a mistake whose outcome is random."""

TEXTS = read_content("agentgym_flow.envs.canvas.tasks.facts", "questions.json", dict[str, tuple[str, ...]])
"""Purpose -> the wordings to choose from. Words between asterisks are those that a warning repeats."""


@dataclass(frozen=True, slots=True)
class QuestionDraft:
    """The draft of a question.

    Attributes:
        question: the question.
        answers: the right answer in all its phrasings.
        wrong: tag of a fault -> its wrong answers; more than one if the outcome is random.
        faults: see `SimulatedTask`.
        plan: see `SimulatedTask`.
        steps: the answers to the pieces; without pieces, intermediate results.
        needed: the entities whose passages are needed.
        kept_out: the names of entities whose passages must not be shown.
        passages: additional passages.
        pieces: see `SimulatedTask`.
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
    """Return the text with its first letter capitalised."""
    return text[:1].upper() + text[1:]
