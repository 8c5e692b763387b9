"""Text to terms as Lucene's `EnglishAnalyzer` does it: words, no possessive, lower case, no stop words, Porter stems.

Words are those of Unicode's default word boundaries (UAX #29), with Lucene's additions: an ideograph, a hiragana letter
and an emoji are words of their own, and a run of Thai, Lao, Khmer or Burmese is one word. Not kept are Hebrew's inner
quotation marks and the emoji made of a digit in a box.
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
"""Characters; a longer word is cut into pieces of this length."""

_POSSESSIVES = tuple(quote + letter for quote in "'\u2019\uff07" for letter in "sS")
_CLASSES = Classes()

# In the letters of `Classes`. No text makes the search slow: a class of characters is repeated possessively, and what a
# group repeats can be read in one way only. Groups are not possessive, as Python before 3.11.5 reads those wrongly.
_MARKS = r"[xzTV]*+"
_LETTERS = rf"A{_MARKS}(?:[:']{_MARKS}A{_MARKS})*"
_DIGITS = rf"9{_MARKS}(?:[,']{_MARKS}9{_MARKS})*"
_PART = rf"(?:(?:{_LETTERS}|{_DIGITS})+|(?:K{_MARKS})+)"
_LINK = rf"(?:_{_MARKS})"
_EMOJI = r"[ET]T?+[xV]*+"
_WORD = re.compile(
    rf"(?P<word>{_LINK}*{_PART}(?:{_LINK}+{_PART})*{_LINK}*)"
    rf"|(?P<other>I{_MARKS}|(?:[SV]{_MARKS})+|R{_MARKS}R{_MARKS}|{_EMOJI}(?:z{_EMOJI})*z?+)"
    rf"|{_LINK}+"  # connectors and nothing else are no word, and are passed over in one piece
)

# The ASCII characters of the class blank. No word reaches over one, so that a text may be cut there.
_SEPARATORS = re.compile(r"[^A-Za-z0-9_.:,;'\x80-\U0010ffff]+")
_LONGEST_KEPT, _MOST_KEPT = 64, 1 << 16


def words(text: str) -> list[str]:
    """Return the words of `text` in order, as they are written."""
    found = []
    for match in _WORD.finditer(text.translate(_CLASSES)):
        if match.lastgroup:
            first, last = match.span()
            found += [text[at : min(at + LONGEST_WORD, last)] for at in range(first, last, LONGEST_WORD)]
    return found


def analyse(text: str) -> list[str]:
    """Return the terms of `text` in order, repeats included; none for a text of stop words."""
    return list(chain.from_iterable(map(_TERMS.__getitem__, _SEPARATORS.split(text))))


class _Terms(dict[str, tuple[str, ...]]):
    """A piece of text without separators -> its terms; remembered, because nearly all pieces come again."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        if len(piece) > _LONGEST_KEPT:
            return tuple(filter(None, map(_term, words(piece))))
        plain = piece.isascii() and piece.isalnum()  # letters and digits run together
        terms = tuple(filter(None, map(_term, [piece] if plain else words(piece))))
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[piece] = terms
        return terms


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    """Return what a word is indexed as, or nothing for a stop word."""
    if word.endswith(_POSSESSIVES):
        word = word[:-2]
    # One character for one, as Java does it: a last sigma is no special case, and a dotted capital I loses its dot.
    word = word.lower() if word.isascii() else "".join(character.lower()[0] for character in word)
    return "" if word in STOP_WORDS else stem(word)


_TERMS = _Terms()
