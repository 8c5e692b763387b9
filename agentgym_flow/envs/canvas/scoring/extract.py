r"""The answer in a text: in an answer tag, a box, after `####`, after a phrase that announces it, or its last number.

In this order, and within each the last one that is complete, because a text ends with what it concludes. A text that
is itself one expression on one line (`3/4`, `\frac{3}{4}`, `x + 1`) is its own answer: its last number would not be.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from agentgym_flow.envs.answers import last_answer
from agentgym_flow.envs.canvas.scoring.parser import parse
from agentgym_flow.envs.canvas.scoring.tokens import MAX_CHARACTERS, NotMathematics

MAX_TEXT = 200_000
"""Of a longer text only the end is read, so many characters of it."""

_BOXES = ("\\boxed", "\\fbox")
_PHRASE = re.compile(r"(?:final\s+answer|answer|result)\b(?:\s+(?:is|are|equals)\b\s*:?|\s*[:=])[ \t*]*", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>[-\N{MINUS SIGN}]\s?)?(?P<money>[$€£]\s?)?"
    r"(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?|(?<!\d)\.\d+)(?P<rest>\s?/\s?\d+(?![\d.])|\s?\\?%)?"
    r"(?![\d\N{SUPERSCRIPT TWO}\N{SUPERSCRIPT THREE}^])"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z*]|\s*$)|[;\n]")
_OPENING = re.compile(r"^(?:\s|\*|\$|\\[\[(])+")  # a formula of its own often begins on the next line
_CLOSING = re.compile(r"(?:[\s*$]|\\[\])])+$")
_QUOTES = "*_`\"' \t\r\n"
_MOST_BOXES = 50


class Extracted(NamedTuple):
    """An answer, and which of the ways found it: `tag`, `boxed`, `hashes`, `phrase`, `whole`, `number` or `none`."""

    text: str
    how: str


def extract_answer(text: str) -> Extracted:
    """Return the answer that a text gives to a mathematical problem; empty, found as `none`, when there is none."""
    text = text[-MAX_TEXT:]
    tagged = last_answer(text)
    if tagged is not None:
        boxed = last_box(tagged)
        announced = _announced(tagged) if boxed is None else None
        return Extracted(announced.text if announced else tagged if boxed is None else boxed, "tag")
    boxed = last_box(text)
    if boxed is not None:
        return Extracted(boxed, "boxed")
    _, hashes, after = text.rpartition("####")
    if hashes:
        return Extracted(after.strip().partition("\n")[0].strip(), "hashes")
    return _announced(text) or _whole(text) or _number(text)


def last_box(text: str) -> str | None:
    r"""Return what is in the last complete `\boxed{...}` or `\fbox{...}` of a text, or None; `\boxed 5` counts."""
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
        word = re.match(r"[^\s$]+", text[start : start + MAX_CHARACTERS])
        return word.group() if word else None
    depth = 0
    for place in range(start, min(len(text), start + MAX_CHARACTERS)):
        if text[place] in "{}" and text[place - 1] != "\\":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return text[start + 1 : place]
    return None


def _announced(text: str) -> Extracted | None:
    phrase = _last(_PHRASE, text)
    if phrase is None:
        return None
    rest = _OPENING.sub("", text[phrase.end() : phrase.end() + MAX_CHARACTERS])
    stop = _SENTENCE_END.search(rest)
    answer = _CLOSING.sub("", (rest[: stop.start()] if stop else rest).strip(_QUOTES))
    if _whole(answer) is None:  # `5 apples out of 10`, `3 * 4 apples = 12 apples`
        number = next(_NUMBER.finditer(answer.rpartition("=")[2]), None)
        answer = _written(number) if number else answer
    return Extracted(answer, "phrase") if answer else None


def _whole(text: str) -> Extracted | None:
    line = text.strip().strip(_QUOTES).rstrip(".")
    if not line or "\n" in line or len(line) > MAX_CHARACTERS:
        return None
    try:
        parse(line)
    except NotMathematics:
        return None
    return Extracted(line, "whole")


def _number(text: str) -> Extracted:
    found = _last(_NUMBER, text)
    return Extracted(_written(found), "number") if found else Extracted("", "none")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None


def _written(number: re.Match[str]) -> str:
    sign = "-" if number["sign"] else ""
    return sign + number["number"] + re.sub(r"[\s\\]", "", number["rest"] or "")
