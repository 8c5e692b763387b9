"""Thoughts in the completions of language models, which are removed before an action is read.

A thought is what a model writes between two delimiters before its answer. It may quote the answer format, or name
actions that it rejects, so no tag inside a thought counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

TAGS = (
    "think", "thinking", "thought", "reasoning", "scratchpad",
    "seed:think", "mm:think", "ifm|think", "longcat_think",
)  # fmt: skip
"""The names of tags around thoughts, in any case: `<think>` ... `</think>`."""

PAIRS = (
    *((f"<{name}>", f"</{name}>") for name in TAGS),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThinker, Sky-T1
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi-VL
)
"""The delimiters of thoughts: opening and closing. Models with others: `agentgym_flow.training.conversation`."""

OPEN_THOUGHT, CLOSE_THOUGHT = PAIRS[0]
"""The delimiters that the prompts ask for."""

_KEYS = {text: (key, text == pair[0]) for key, pair in enumerate(PAIRS) for text in pair}
_TAGGED = "|".join(re.escape(text) for pair in PAIRS[: len(TAGS)] for text in pair)
# `[think]` is an index in Python, so only tags are found in any case.
_DELIMITER = f"(?i:{_TAGGED})|{'|'.join(re.escape(text) for pair in PAIRS[len(TAGS) :] for text in pair)}"
_MARK = re.compile(_DELIMITER)
_QUOTED = re.compile(r"\s?(?:and|or|to)\s?")


class _Mark(NamedTuple):
    start: int
    end: int
    key: int | str
    opens: bool


def without_thoughts(text: str, *, free: Sequence[str] = ()) -> str:
    """Return what a completion says outside of its thoughts; takes linear time for any text.

    A thought that is not closed lasts to the end of the text. If the first delimiter is a closing one, the prompt has
    opened the thought, and everything before is removed. A thought may quote its own delimiters: pairs inside it are
    skipped, and if there are more opening than closing delimiters, the last closing one ends the thought. A pair in a
    phrase such as "between <think> and </think>" is always a quotation.

    Args:
        text: the completion.
        free: the names of tags with free text, in which delimiters of thoughts mean nothing.
    """
    return "".join(_outside(text, free)[0])


def ends_in_thought(text: str) -> bool:
    """Return whether a text ends inside a thought."""
    return _outside(text)[1]


def _outside(text: str, free: Sequence[str] = ()) -> tuple[list[str], bool]:
    """Return the parts of a text outside of thoughts, and whether it ends inside one."""
    marks = _marks(text, free)
    last = {mark.key: place for place, mark in enumerate(marks) if not mark.opens}  # of each pair, the last closing one
    parts: list[str] = []
    start = place = 0
    seen = False
    while place < len(marks):
        mark = marks[place]
        if isinstance(mark.key, str):
            if mark.opens and last.get(mark.key, -1) > place:
                place = next(i for i in range(place + 1, len(marks)) if marks[i][2:] == (mark.key, False))
        elif mark.opens:
            parts.append(text[start : mark.start])
            closing = _closing(marks, place, last.get(mark.key, -1))
            if closing is None:
                return parts, True
            place, start, seen = closing, marks[closing].end, True
        elif not seen:
            parts, start, seen = [], mark.end, True
        place += 1
    return [*parts, text[start:]], False


def _marks(text: str, free: Sequence[str]) -> list[_Mark]:
    names = "|".join(map(re.escape, free))
    form = re.compile(rf"{_DELIMITER}|(?i:<(?P<close>/?)(?P<free>{names})>)") if free else _MARK
    marks: list[_Mark] = []
    for match in form.finditer(text):
        if free and match["free"]:
            key: tuple[int | str, bool] = match["free"].lower(), not match["close"]
        else:
            key = _KEYS.get(match[0]) or _KEYS[match[0].lower()]
        mark = _Mark(match.start(), match.end(), *key)
        closes = not mark.opens and bool(marks) and marks[-1][2:] == (mark.key, True)
        if closes and _QUOTED.fullmatch(text, marks[-1].end, mark.start):
            marks.pop()
        else:
            marks.append(mark)
    return marks


def _closing(marks: Sequence[_Mark], place: int, last: int) -> int | None:
    """Return the place of the mark that closes the thought which begins at `place`, at most `last`; None if none."""
    depth, closing = 0, None
    for end in range(place, last + 1):
        if marks[end].key == marks[place].key:
            depth += 1 if marks[end].opens else -1
            if not marks[end].opens:
                closing = end
            if not depth:
                break
    return closing
