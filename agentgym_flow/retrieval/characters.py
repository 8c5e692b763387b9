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

The classes are derived from Python's Unicode categories and the ranges below, taken from Unicode's property files.
Python may know characters newer than Unicode 12.1 that Lucene 9 does not.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right

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

# Code points in hexadecimal whose class does not follow from their category.
_RANGES = {
    "A": "2c2-2c5 2d2-2d7 2de-2df 2ed 2ef-2ff 55b-55c 55e 5f3 66b 2139 24b6-24e9 3005 a720-a721 a789-a78a ab5b "
    "1f130-1f149 1f150-1f169 1f170-1f189",
    "_": "202f",
    "z": "200d",
    "x": "ff9e-ff9f",
    _BLANK: "200b 3006",
    "S": "e01-e30 e32-e33 e40-e46 e81-eb0 eb2-eb3 ebd-ec6 edc-edf 1000-102a 103f 1050-1055 105a-105d 1061 1065-1066 "
    "106e-1070 1075-1081 108e 109e-109f 1780-17b3 17d7 17dc 1950-19c9 19da-19df 1a20-1a7c 1aa0-1aad a9e0-a9ef "
    "a9fa-a9fe aa60-aadf",
    "V": "e31 e34-e3a e47-e4e eb1 eb4-ebc ec8-ecd 102b-103e 1056-1059 105e-1060 1062-1064 1067-106d 1071-1074 "
    "1082-108d 108f 109a-109d 17b4-17d3 17dd",
    "I": "2e80-2e99 2e9b-2ef3 2f00-2fd5 3007 3021-3029 3038-303a 3041-3096 309d-309f 3400-4dbf 4e00-9fff f900-fad9 "
    "1f200 20000-3fffd",
    "K": "3031-3035 309b-309c 30a0-30fa 30fc-30ff 31f0-31ff 32d0-32fe 3300-3357 ff66-ff9d",
    "R": "1f1e6-1f1ff",
    "T": "1f3fb-1f3ff",
    "E": "a9 ae 203c 2049 2122 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa 25aa-25ab 25b6 25c0 "
    "25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 274c "
    "274e 2753-2755 2757 2763-2767 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 "
    "3299 1f000-1f0ff 1f10d-1f10f 1f12f 1f16c-1f16f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a 1f22f 1f232-1f23a "
    "1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f 1f7d5-1f7ff 1f80c-1f80f 1f848-1f84f "
    "1f85a-1f85f 1f888-1f88f 1f8ae-1f90b 1f90c-1f93a 1f93c-1f945 1f947-1faff",
}


def _sorted_ranges() -> list[tuple[int, int, str]]:
    """Return (first, last, class) of every range, by code point."""
    found = []
    for letter, listing in _RANGES.items():
        for item in listing.split():
            first, _, last = item.partition("-")
            found.append((int(first, 16), int(last or first, 16), letter))
    return sorted(found)


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
