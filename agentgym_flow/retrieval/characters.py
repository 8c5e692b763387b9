"""The word-break classes of characters: those of UAX #29 as in Lucene's tokenizer.

A class is one letter, so the classes of a text are a string that a regular expression can match:

| class | characters | |
|---|---|---|
| `A` `9` `_` | letters, digits, connectors | run together |
| `'` `:` `,` | marks between letters or digits; between letters; between digits | join two neighbours |
| `x` `z` | accents and formatting; the zero-width joiner | belong to the preceding character |
| `K` `S` | katakana; scripts without spaces between words | run together among themselves |
| `V` | accents of class `S` | belong to the preceding character, else a word |
| `I` | ideographs, hiragana | separate words |
| `E` `T` `R` | pictographs, skin tones, regional indicators | form emoji |
| blank | everything else | separates |

The classes are derived from Python's Unicode categories and the ranges of code points in `characters.json` (class ->
hexadecimal ranges), taken from Unicode's property files. Python may know characters newer than Unicode 12.1 that Lucene
9 does not.
"""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_right
from importlib.resources import files

_BLANK = " "
_JOINERS = {
    **dict.fromkeys(".'\u2018\u2019\u2024\ufe52\uff07\uff0e", "'"),
    **dict.fromkeys(":\xb7\u0387\u05f4\u2027\ufe13\ufe55\uff1a", ":"),
    **dict.fromkeys(",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b", ","),
}
_OF_CATEGORY = {
    **dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl"), "A"),
    **dict.fromkeys(("Mn", "Mc", "Me", "Cf"), "x"),
    "Nd": "9",
    "Pc": "_",
}


def _sorted_ranges() -> list[tuple[int, int, str]]:
    """Return (first, last, class) of the code points whose class does not follow from their category, sorted."""
    text = files(__package__).joinpath("characters.json").read_text("utf-8")
    pairs = [(item.partition("-"), letter) for letter, items in json.loads(text).items() for item in items]
    return sorted((int(first, 16), int(last or first, 16), letter) for (first, _, last), letter in pairs)


_LISTED = _sorted_ranges()
_FIRSTS = [first for first, _, _ in _LISTED]


def _class_of(code: int) -> str:
    character = chr(code)
    if character in _JOINERS:
        return _JOINERS[character]
    category = unicodedata.category(character)
    at = bisect_right(_FIRSTS, code) - 1
    if at >= 0 and code <= _LISTED[at][1] and category not in ("Nd", "Cn"):
        return _LISTED[at][2]
    return _OF_CATEGORY.get(category, _BLANK)


class Classes(dict[int, str]):
    """A table for `str.translate`: code point -> class, filled on demand."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _class_of(code)
        return found
