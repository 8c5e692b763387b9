"""The width of text by a fixed metric, so that the layout does not depend on the reader's fonts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

NAME_SIZE, SMALL_SIZE = 13.0, 11.0
"""The font sizes of names and of other texts."""

_BOLD = 1.12
_NARROW = frozenset("iljtfI.,:;'|!()[] ")
_BROAD = frozenset("mwMW@%&")


def width(text: str, size: float) -> float:
    """Return an upper estimate of the width of `text` in letters of `size` pixels; names are bold."""
    return size * (_BOLD if size == NAME_SIZE else 1.0) * sum(map(_advance, text))


def shortened(text: str, size: float, room: float, lines: int) -> tuple[str, ...]:
    """Return the start of `text` in at most `lines` lines of `room` pixels, with an ellipsis if it is cut.

    Runs of white space become one space, and unprintable characters, such as direction marks, become U+FFFD.
    """
    found: list[str] = []
    # Only as much is read as can fit, so that long texts are cheap.
    words = _pieces(text[: 40 * lines * max(1, int(room / size))], size, room)
    line = ""
    for word in words:
        longer = f"{line} {word}" if line else word
        if width(longer, size) <= room:
            line = longer
            continue
        found.append(line)
        line = word
        if len(found) == lines:
            found[-1] = _with_ellipsis(found[-1], size, room)
            return tuple(found)
    return (*found, line) if line else tuple(found)


def _advance(mark: str) -> float:
    if unicodedata.east_asian_width(mark) in "WF":
        return 1.05
    if mark in _NARROW:
        return 0.4
    if mark in _BROAD:
        return 0.95
    return 0.72 if mark.isupper() else 0.62 if mark.isascii() else 0.8


def _pieces(text: str, size: float, room: float) -> Iterator[str]:
    """Yield the words of `text`, with words that are wider than a line split."""
    for word in text.split():
        piece = ""
        for mark in (mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in word):
            if piece and width(piece + mark, size) > room:
                yield piece
                piece = ""
            piece += mark
        yield piece


def _with_ellipsis(line: str, size: float, room: float) -> str:
    while line and width(f"{line}\N{HORIZONTAL ELLIPSIS}", size) > room:
        line = line[:-1]
    return f"{line.rstrip()}\N{HORIZONTAL ELLIPSIS}"
