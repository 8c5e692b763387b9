r"""Finds the answer in a text: in an answer tag, after `####`, in a box, or after a phrase that announces it.

The first of these that occurs counts, and the last complete occurrence of it, because conclusions come last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentgym_flow.envs.answers import last_answer

MAX_TEXT = 20_000
"""The number of characters that are read, from the end of a text."""

_BOXES = ("\\boxed", "\\fbox")
_LONGEST_BOX = 600
_MOST_BOXES = 50
_PHRASE = re.compile(r"(?:final\s+answer|answer|result)\b(?:\s+(?:is|are|equals)\b\s*:?|\s*[:=])[ \t*]*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z*]|\s*$)|[;\n]")
_QUOTES = "*_`\"' \t\r\n"


class StatedAnswer(NamedTuple):
    """An answer, and whether the text announces it. If not, the answer is the whole text."""

    text: str
    announced: bool


def stated_answer(text: str) -> StatedAnswer:
    """Return the announced answer of a text, or the text itself."""
    text = text[-MAX_TEXT:]
    marked = marked_answer(text)
    text = text if marked is None else marked
    boxed = last_box(text)
    if boxed is not None:
        return StatedAnswer(boxed, True)
    phrase = None
    for phrase in _PHRASE.finditer(text):  # noqa: B007 - the last one counts
        pass
    if phrase is not None:
        rest = text[phrase.end() :].lstrip()
        stop = _SENTENCE_END.search(rest)
        answer = (rest[: stop.start()] if stop else rest).strip(_QUOTES)
        if answer:
            return StatedAnswer(answer, True)
    return StatedAnswer(text.strip(_QUOTES), marked is not None)


def marked_answer(text: str) -> str | None:
    """Return the content of the last `<answer>` block of a text, else the text after its last `####`, or None."""
    tagged = last_answer(text)
    if tagged is not None:
        return tagged
    _, hashes, after = text.rpartition("####")
    return after.strip().partition("\n")[0].strip() if hashes else None


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{...}`, `\fbox{...}` or `\boxed 5` of a text, or None."""
    end = len(text)
    for _ in range(_MOST_BOXES):
        start, name = max((text.rfind(name, 0, end), name) for name in _BOXES)
        if start < 0:
            return None
        inner = _in_braces(text, start + len(name))
        if inner is not None:
            return inner.strip()
        end = start
    return None


def _in_braces(text: str, start: int) -> str | None:
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text) or text[start] != "{":
        word = re.match(r"[^\s$]+", text[start : start + _LONGEST_BOX])
        return word.group() if word else None
    depth = 0
    for place in range(start, min(len(text), start + _LONGEST_BOX)):
        if text[place] in "{}" and text[place - 1] != "\\":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return text[start + 1 : place]
    return None
