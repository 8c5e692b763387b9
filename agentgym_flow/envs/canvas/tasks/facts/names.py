"""Invented names. The syllables of each split begin with different letters, so no name occurs in two splits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.content import read_content


class FactWords(NamedTuple):
    """The parts of names, and the words that facts are about.

    Attributes:
        onsets: split -> the beginnings of its syllables. No letter begins syllables of two splits.
        vowels: the vowels of syllables.
        codas: the ends of syllables.
        endings: kind of name -> its last syllables.
        suffixes: what follows the name of a firm.
        nouns: what works are named after.
        town_twins: words before the names of two towns that are easily confused.
        firm_twins: words after the names of two firms that are easily confused.
        goods: what firms make and fairs sell.
        trades: the professions of people.
        forms: the genres of works.
    """

    onsets: dict[str, tuple[str, ...]]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]
    endings: dict[str, tuple[str, ...]]
    suffixes: tuple[str, ...]
    nouns: tuple[str, ...]
    town_twins: tuple[tuple[str, str], ...]
    firm_twins: tuple[tuple[str, str], ...]
    goods: tuple[str, ...]
    trades: tuple[str, ...]
    forms: tuple[str, ...]


WORDS = read_content("agentgym_flow.envs.canvas.tasks.facts", "words.json", FactWords)

_UNFIT = re.compile(
    "anal|anus|arse|bitch|dildo|fart|hoes|nazi|penis|piss|poof|prick|puss|rape|sadis|slut|satan|tits|turd"
)


class FactNames:
    """Draws names, each only once.

    Args:
        split: determines the syllables.
        stream: the source of randomness.
    """

    def __init__(self, split: str, stream: Stream) -> None:
        self.split = split
        self._onsets = WORDS.onsets[split]
        self._stream = stream
        self._suffixes = list(WORDS.suffixes)
        self._nouns = list(WORDS.nouns)
        self._years: set[int] = set()
        stream.shuffle(self._suffixes)
        stream.shuffle(self._nouns)
        self.given: dict[str, None] = {}
        """All invented words so far, in order."""
        self._makers: dict[str, Callable[[], str]] = {"person": self._person, "firm": self._firm, "work": self._work}

    def new(self, kind: str) -> str:
        """Return a new name of a person, a firm, a work, a town, a river or a region."""
        maker = self._makers.get(kind)
        return maker() if maker else self._word(kind)

    def twins(self, kind: str) -> tuple[str, str]:
        """Return two easily confused names of persons, firms, works or towns."""
        if kind == "person":
            surname = self._word("surname")
            first, second = self._stream.sample(WORDS.endings["given"], 2)
            while (stem := self._stem()) + first in self.given or stem + second in self.given:
                pass
            self.given |= dict.fromkeys((stem + first, stem + second))
            return f"{stem + first} {surname}", f"{stem + second} {surname}"
        if kind == "work":
            noun, name = self._nouns.pop(), self._word("other")
            return f"The {noun} of {name}", f"The {noun}s of {name}"
        first, second = self._stream.choice(WORDS.town_twins if kind == "town" else WORDS.firm_twins)
        word = self._word(kind)
        return (f"{first} {word}", f"{second} {word}") if kind == "town" else (f"{word} {first}", f"{word} {second}")

    def year(self, low: int, high: int) -> int:
        """Return a new year from `low` to `high`; the range must be large compared with the number of years drawn."""
        while (year := low + self._stream.below(high - low + 1)) in self._years:
            pass
        self._years.add(year)
        return year

    def _stem(self) -> str:
        draw = self._stream.choice
        return f"{draw(self._onsets)}{draw(WORDS.vowels)}{draw(WORDS.codas)}{draw(self._onsets)}".capitalize()

    def _word(self, kind: str) -> str:
        while (word := self._stem() + self._stream.choice(WORDS.endings[kind])) in self.given or _UNFIT.search(
            word.lower()
        ):
            pass
        self.given[word] = None
        return word

    def _person(self) -> str:
        return f"{self._word('given')} {self._word('surname')}"

    def _firm(self) -> str:
        return f"{self._word('firm')} {self._suffixes.pop()}"

    def _work(self) -> str:
        return f"The {self._nouns.pop()} of {self._word('other')}"
