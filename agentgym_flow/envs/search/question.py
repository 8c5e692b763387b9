"""One question with the answers that count as right: what every source of Search tasks yields."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_flow.envs.answers import normalise


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its right answers.

    Attributes:
        id: unique within its set, and the same on every machine.
        text: the question as its source has it; a missing question mark is added by the prompt alone.
        answers: the texts that count as right, any of them; at least one.
        kind: the family the question belongs to, for tables by kind: `"bridge"`, `"comparison"`, `"2 hops"`.
        supports: pairs (query to search, id of the passage to read then), in the order in which an expert needs them;
            empty when they are not known.
        source: the name of the set the question is from, such as `"hotpotqa"`; empty when it has none.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    kind: str
    supports: tuple[tuple[str, str], ...] = ()
    source: str = ""


def question_key(text: str) -> str:
    """Return what is equal for one question in two spellings: case, blanks, punctuation and articles do not count."""
    folded = text.casefold()
    return normalise(folded) or folded
