"""How observations show passages: one line each, of limited length, without invisible or text-reversing characters.

Passages and their ids are untrusted text. Line breaks become spaces, so a passage cannot imitate the next document, and
ids are safe to store in logs and states. Tags stay unchanged, because the environment treats them as plain text;
prompts neutralise them (`agentgym_flow.envs.search.prompt`).
"""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.visible import visible
from agentgym_flow.retrieval.passage import Passage

LONGEST_TITLE = 200
"""Titles are cut to this number of characters."""

LONGEST_TEXT = 4000
"""Passages are cut to this number of characters. The passages of Search-R1's corpus have about 600."""

LONGEST_ID = 200
"""Ids of more characters are replaced by a digest."""

ID_DIGITS = 32
"""The number of hexadecimal digits in such a digest."""

CUT = " ..."
"""The end of a text that was cut."""


def one_line(text: str, longest: int | None = None) -> str:
    """Return `text` as one stripped line of visible characters.

    A text longer than `longest` is cut and ends with `CUT`. The result has at most `longest` characters, so applying
    the function again changes nothing.
    """
    if longest is not None and len(text) > longest:  # before cleaning, which takes time for long texts
        text = f"{text[: max(longest - len(CUT), 0)].rstrip()}{CUT}"
    return visible(text).strip()


def as_shown(passage: Passage) -> Passage:
    """Return the passage with title and text as observations show them.

    An id that is too long or has unprintable characters is replaced by a digest. The function is idempotent.
    """
    name = passage.id
    if len(name) > LONGEST_ID or not name.isprintable():
        name = stable_hash(name)[:ID_DIGITS]
    return Passage(name, one_line(passage.title, LONGEST_TITLE), one_line(passage.text, LONGEST_TEXT))


def documents(passages: Iterable[Passage]) -> str:
    """Return a line for each passage, `Doc 1(Title: ...) ...`, as Search-R1 does. Apply `as_shown` before."""
    return "\n".join(f"Doc {n}(Title: {title}) {text}".rstrip() for n, (_, title, text) in enumerate(passages, 1))
