"""Converts text to terms like Lucene's `EnglishAnalyzer`: words, possessives removed, lower case, no stop words, stems.

Words follow Unicode's default word boundaries (UAX #29) with Lucene's additions: each ideograph, hiragana letter and
emoji is a separate word, and a run of Thai, Lao, Khmer or Burmese is one word. Not supported are quotation marks inside
Hebrew words and keycap emoji.

Each character has a class of one letter, so the classes of a text are a string that a regular expression can match:

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

Stems are those of the original Porter stemmer, in the variant of Lucene (M. F. Porter, "An algorithm for suffix
stripping", Program 14(3), 1980; m, *v*, *d and *o in the comments are the notation of the paper). Three differences,
which the author's own program and Lucene share: words of one or two letters are unchanged, `bli` becomes `ble` (the
paper has only `abli`), and `logi` becomes `log`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache
from importlib.resources import files
from itertools import chain

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's 33 English stop words."""

LONGEST_WORD = 255
"""Longer words, in characters, are split into pieces of this length."""

_POSSESSIVES = tuple(quote + letter for quote in "'\u2019\uff07" for letter in "sS")

# ---------------------------------------------------------------- words
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


# (first, last, class) of the code points whose class does not follow from their category, sorted.
_LISTED = sorted(
    (int(first, 16), int(last or first, 16), letter)
    for letter, ranges in json.loads(files(__package__).joinpath("characters.json").read_text("utf-8")).items()
    for first, _, last in (item.partition("-") for item in ranges)
)
_FIRSTS = [first for first, _, _ in _LISTED]


class Classes(dict[int, str]):
    """A table for `str.translate`: code point -> class, filled on demand."""

    def __missing__(self, code: int) -> str:
        self[code] = found = self._class_of(chr(code))
        return found

    def _class_of(self, character: str) -> str:
        if character in _JOINERS:
            return _JOINERS[character]
        category = unicodedata.category(character)
        at = bisect_right(_FIRSTS, ord(character)) - 1
        if at >= 0 and ord(character) <= _LISTED[at][1] and category not in ("Nd", "Cn"):
            return str(_LISTED[at][2])
        return _OF_CATEGORY.get(category, " ")


_CLASSES = Classes()

# The letters are those of `Classes`. Matching takes linear time for any text: character classes are repeated
# possessively, and repeated groups match in only one way. Groups are not possessive: Python before 3.11.5 has a bug.
_MARKS = r"[xzTV]*+"
_LETTERS = rf"A{_MARKS}(?:[:']{_MARKS}A{_MARKS})*"
_DIGITS = rf"9{_MARKS}(?:[,']{_MARKS}9{_MARKS})*"
_PART = rf"(?:(?:{_LETTERS}|{_DIGITS})+|(?:K{_MARKS})+)"
_LINK = rf"(?:_{_MARKS})"
_EMOJI = r"[ET]T?+[xV]*+"
_WORD = re.compile(
    rf"(?P<word>{_LINK}*{_PART}(?:{_LINK}+{_PART})*{_LINK}*)"
    rf"|(?P<other>I{_MARKS}|(?:[SV]{_MARKS})+|R{_MARKS}R{_MARKS}|{_EMOJI}(?:z{_EMOJI})*z?+)"
    rf"|{_LINK}+"  # a run of connectors is not a word; it is skipped as a whole
)

# The ASCII characters of the class blank. No word contains one, so a text can be split there.
_SEPARATORS = re.compile(r"[^A-Za-z0-9_.:,;'\x80-\U0010ffff]+")
_LONGEST_KEPT, _MOST_KEPT = 64, 1 << 16


def words(text: str) -> list[str]:
    """Return the words of `text` in order, unchanged."""
    found = []
    for match in _WORD.finditer(text.translate(_CLASSES)):
        if match.lastgroup:
            first, last = match.span()
            found += [text[at : min(at + LONGEST_WORD, last)] for at in range(first, last, LONGEST_WORD)]
    return found


def analyse(text: str) -> list[str]:
    """Return the terms of `text` in order, with repetitions."""
    return list(chain.from_iterable(map(_TERMS.__getitem__, _SEPARATORS.split(text))))


class _Terms(dict[str, tuple[str, ...]]):
    """A cache: a piece of text without separators -> its terms."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        if len(piece) > _LONGEST_KEPT:
            return tuple(filter(None, map(_term, words(piece))))
        plain = piece.isascii() and piece.isalnum()  # such a piece is one word
        terms = tuple(filter(None, map(_term, [piece] if plain else words(piece))))
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[piece] = terms
        return terms


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    """Return the term of a word; empty for a stop word."""
    if word.endswith(_POSSESSIVES):
        word = word[:-2]
    # Character by character as in Java: without the special case of a final sigma; a dotted capital I loses its dot.
    word = word.lower() if word.isascii() else "".join(character.lower()[0] for character in word)
    return "" if word in STOP_WORDS else stem(word)


_TERMS = _Terms()


# ---------------------------------------------------------------- stems
def _rules(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `suffix:replacement` rules."""
    return tuple((suffix, other) for suffix, _, other in (rule.partition(":") for rule in text.split()))


# The longest matching suffix decides, even if its condition fails, so longer suffixes come first.
_STEP_2 = _rules(
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize "
    "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"
)
_STEP_3 = _rules("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("sion", "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)

# To check with one call whether any suffix matches, which is rare.
_ENDS_2, _ENDS_3 = (tuple(suffix for suffix, _ in rules) for rules in (_STEP_2, _STEP_3))


def stem(word: str) -> str:
    """Return the stem of a lower-case word. All characters except vowels and `y` count as consonants, even digits."""
    if len(word) <= 2:
        return word
    if word.endswith(("sses", "ies")):  # step 1a
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    word = _without_past(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    if word.endswith(_ENDS_2):
        word = _replaced(word, _STEP_2)
    if word.endswith(_ENDS_3):
        word = _replaced(word, _STEP_3)
    if word.endswith(_STEP_4):
        word = _without_suffix(word)
    return _tidied(word)


def _shape(stem: str) -> str:
    """Return `c` for every consonant and `v` for every vowel; `y` is a vowel after a consonant."""
    shape = ""
    for letter in stem:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """Return m, the number of vowel-consonant sequences."""
    return _shape(stem).count("vc")


def _ends_short(word: str) -> bool:
    """Return *o: whether the word ends with consonant, vowel, consonant, and the last is not w, x or y."""
    return word[-1:] not in ("w", "x", "y") and _shape(word).endswith("cvc")


def _without_past(word: str) -> str:
    """Step 1b."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = next((suffix for suffix in ("ed", "ing") if word.endswith(suffix)), "")
    base = word[: -len(suffix)] if suffix else ""
    if "v" not in _shape(base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if len(base) > 1 and base[-1] == base[-2] and _shape(base).endswith("c"):  # *d: a double consonant
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if _measure(base) == 1 and _ends_short(base) else base


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Steps 2 and 3: replace the suffix if m > 0 before it."""
    for suffix, other in rules:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + other if _measure(base) > 0 else word
    return word


def _without_suffix(word: str) -> str:
    """Step 4: drop the suffix if m > 1 before it."""
    for suffix in _STEP_4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix in ("sion", "tion"):
                base += suffix[0]  # only `ion` is dropped
            return base if _measure(base) > 1 else word
    return word


def _tidied(word: str) -> str:
    """Step 5: drop a final `e`, and one `l` of a final `ll`."""
    if word.endswith("e"):
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _ends_short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
