"""How passages look to a policy: each one line, cut at a length, without what cannot be seen or turns text around.

A passage is anybody's text. Here it gets a form in which it ends where it ends: a line break in it is a blank, so that
nothing in it can look like the next document. Its id is anybody's text, too, and stands in logs and states. Tags stay
as they are, because to the environment they are plain text; the prompts take their force away
(`agentgym_flow.envs.search.prompt`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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

_PLAIN = re.compile(r"[ -~]*")
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNSEEN = re.compile(
    # Unicode's category of format characters, which turn the direction, join, annotate, or tag what is shown. Two stay,
    # U+200C and U+200D: Persian, the scripts of India and joined emoji are written with them. So do the signs of
    # Arabic, Syriac and Kaithi numbers and verses that are of this category although they are drawn.
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_HALF = re.compile("[\ud800-\udfff]")


def one_line(text: str, longest: int | None = None) -> str:
    """Return `text` as one line without control characters.

    These and line breaks become blanks; format characters go, which cannot be seen or turn the writing direction, but
    for the joiners U+200C and U+200D; and a lone half of a surrogate pair becomes the replacement character. Blanks at
    both ends are stripped. Of more than `longest` characters the end is cut off, and `CUT` says so within the length,
    so that what was cut once stays as it is.
    """
    if longest is not None and len(text) > longest:
        # What is cut off must not cost time, and what is left is cleaned below.
        text = f"{text[: max(longest - len(CUT), 0)].rstrip()}{CUT}"
    if not _PLAIN.fullmatch(text):
        text = _HALF.sub("\N{REPLACEMENT CHARACTER}", _UNSEEN.sub("", _ODD.sub(" ", text)))
    return text.strip()


def as_shown(passage: Passage) -> Passage:
    """Return the passage with title and text as a policy sees them.

    An id of more than `LONGEST_ID` characters, or with one that cannot be printed, becomes a digest of it. What is
    shown once more stays as it is.
    """
    name = passage.id
    if len(name) > LONGEST_ID or not name.isprintable():
        name = stable_hash(name)[:ID_DIGITS]
    return Passage(name, one_line(passage.title, LONGEST_TITLE), one_line(passage.text, LONGEST_TEXT))


def documents(passages: Iterable[Passage]) -> str:
    """Return a line for each passage, `Doc 1(Title: ...) ...`, as Search-R1 does; they are `as_shown` already."""
    return "\n".join(f"Doc {n}(Title: {title}) {text}".rstrip() for n, (_, title, text) in enumerate(passages, 1))
