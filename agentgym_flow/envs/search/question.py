"""A question and its right answers: the task of one episode."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_flow.envs.answers import normalise


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its right answers.

    Attributes:
        id: unique within its set, and the same on every machine.
        text: the question as in its source; prompts add a missing question mark.
        answers: the accepted answers; at least one.
        kind: the family of the question, for tables by kind: `"bridge"`, `"comparison"`, `"2 hops"`.
        supports: pairs (query, id of the passage to find), in the order in which the expert needs them; empty if
            unknown.
        source: the name of the data set, such as `"hotpotqa"`; may be empty.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    kind: str
    supports: tuple[tuple[str, str], ...] = ()
    source: str = ""


def question_key(text: str) -> str:
    """Return a key that ignores case, white space, punctuation and articles, to find repeated questions."""
    folded = text.casefold()
    return normalise(folded) or folded
