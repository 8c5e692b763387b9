"""Converts text to terms like Lucene's `EnglishAnalyzer`: words, possessives removed, lower case, no stop words, stems.

Words follow Unicode's default word boundaries (UAX #29) with Lucene's additions: each ideograph, hiragana letter and
emoji is a separate word, and a run of Thai, Lao, Khmer or Burmese is one word. Not supported are quotation marks inside
Hebrew words and keycap emoji.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

from agentgym_flow.retrieval.characters import Classes
from agentgym_flow.retrieval.porter import stem

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's 33 English stop words."""

LONGEST_WORD = 255
"""Longer words, in characters, are split into pieces of this length."""

_POSSESSIVES = tuple(quote + letter for quote in "'\u2019\uff07" for letter in "sS")
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
