"""How passages look to a policy: each one line, cut at a length, without what cannot be seen or turns text around.

A passage is anybody's text. Here it gets a form in which it ends where it ends: a line break in it is a blank, so that
nothing in it can look like the next document. Its id is anybody's text, too, and stands in logs and states. Tags stay
unchanged, because to the environment they are plain text; the prompts take their force away
(`agentgym_flow.envs.search.prompt`).
"""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_flow.envs.visible import visible
from agentgym_flow.retrieval.passage import Passage
from agentgym_flow.seeding import stable_hash

LONGEST_TITLE = 200
"""Characters of a title; more are cut off."""

LONGEST_TEXT = 4000
"""Characters of a passage; more are cut off. The passages of Search-R1's corpus have about 600."""

LONGEST_ID = 200
"""Characters of an id; a longer one is replaced."""

ID_DIGITS = 32
"""Hexadecimal digits of an id that stands for another one, or for a content."""

CUT = " ..."
"""Stands where something was cut off."""


def one_line(text: str, longest: int | None = None) -> str:
    """Return `text` as one line, by `visible`, without blanks at both ends.

    Text longer than `longest` is cut, and `CUT` marks the end within that length, so that what was cut once
    does not change.
    """
    if longest is not None and len(text) > longest:
        # What is cut off must not cost time, and what is left is cleaned below.
        text = f"{text[: max(longest - len(CUT), 0)].rstrip()}{CUT}"
    return visible(text).strip()


def as_shown(passage: Passage) -> Passage:
    """Return the passage with title and text as a policy sees them.

    An id of more than `LONGEST_ID` characters, or with one that cannot be printed, becomes a digest of it. What is
    shown once more does not change.
    """
    name = passage.id
    if len(name) > LONGEST_ID or not name.isprintable():
        name = stable_hash(name)[:ID_DIGITS]
    return Passage(name, one_line(passage.title, LONGEST_TITLE), one_line(passage.text, LONGEST_TEXT))


def documents(passages: Iterable[Passage]) -> str:
    """Return a line for each passage, `Doc 1(Title: ...) ...`, as Search-R1 does; they are `as_shown` already."""
    return "\n".join(f"Doc {n}(Title: {title}) {text}".rstrip() for n, (_, title, text) in enumerate(passages, 1))
