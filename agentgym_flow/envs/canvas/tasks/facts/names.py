"""Invented names. The syllables of each split begin with letters of its own, so that no name is in two splits."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentgym_flow.seeding import Stream

ONSETS = {
    "train": ("b", "d", "l", "m", "n", "r", "s", "t", "br", "dr", "st", "tr"),
    "valid": ("f", "h", "p", "fl", "fr", "pl", "pr"),
    "test": ("j", "v", "w", "y", "z", "vr", "zw"),
}
"""Split -> what its syllables begin with. No letter begins syllables of two splits."""

_VOWELS = ("a", "e", "i", "o", "u")
_CODAS = ("", "", "l", "n", "r", "s")
_ENDINGS = {
    kind: tuple(text.split("|"))
    for kind, text in {
        "town": "erby|inford|aholm|osund|eldon|avale|ermouth|ostead",
        "river": "une|ithe|ora|elde|owen|iver|ayne",
        "region": "oria|umark|eland|essia|aria|imoor",
        "surname": "ander|osky|etti|onen|ubel|ingsen|over|arsh",
        "given": "a|o|en|ia|or|et",
        "firm": "ax|ero|ium|otta|eron|ival",
        "other": "elle|omar|ine|urra|avia|ostra",
    }.items()
}
_UNFIT = re.compile(
    "anal|anus|arse|bitch|dildo|fart|hoes|nazi|penis|piss|poof|prick|puss|rape|sadis|slut|satan|tits|turd"
)

_SUFFIXES = ("Works", "Company", "House", "Partners", "Mills", "Workshops", "Union", "Yards")
_NOUNS = (
    "Lantern",
    "Bell",
    "Boat",
    "Orchard",
    "Mirror",
    "Gardener",
    "Bridge",
    "Tower",
    "Harp",
    "Candle",
    "Fountain",
    "Shepherd",
)
_TOWN_TWINS = (("Upper", "Lower"), ("Old", "New"), ("East", "West"), ("Great", "Little"))
_FIRM_TWINS = (("Brothers", "Sons"), ("Works", "Workshops"), ("and Daughters", "and Sons"), ("Old Mill", "New Mill"))


class FactNames:
    """Gives names that were not given before.

    Args:
        split: decides of which syllables they are made.
        stream: where they are drawn from.
    """

    def __init__(self, split: str, stream: Stream) -> None:
        self.split = split
        self._onsets = ONSETS[split]
        self._stream = stream
        self._suffixes = list(_SUFFIXES)
        self._nouns = list(_NOUNS)
        self._years: set[int] = set()
        stream.shuffle(self._suffixes)
        stream.shuffle(self._nouns)
        self.given: dict[str, None] = {}
        """All words that were made up, in the order in which they were."""
        self._makers: dict[str, Callable[[], str]] = {"person": self._person, "firm": self._firm, "work": self._work}

    def new(self, kind: str) -> str:
        """Return the name of a person, a firm, a work, a town, a river or a region."""
        maker = self._makers.get(kind)
        return maker() if maker else self._word(kind)

    def twins(self, kind: str) -> tuple[str, str]:
        """Return two names that are easily mistaken for each other, of persons, firms, works or towns."""
        if kind == "person":
            surname = self._word("surname")
            first, second = self._stream.sample(_ENDINGS["given"], 2)
            while (stem := self._stem()) + first in self.given or stem + second in self.given:
                pass
            self.given |= dict.fromkeys((stem + first, stem + second))
            return f"{stem + first} {surname}", f"{stem + second} {surname}"
        if kind == "work":
            noun, name = self._nouns.pop(), self._word("other")
            return f"The {noun} of {name}", f"The {noun}s of {name}"
        first, second = self._stream.choice(_TOWN_TWINS if kind == "town" else _FIRM_TWINS)
        word = self._word(kind)
        return (f"{first} {word}", f"{second} {word}") if kind == "town" else (f"{word} {first}", f"{word} {second}")

    def year(self, low: int, high: int) -> int:
        """Return a year from `low` to `high` that was not given before; there must be plenty of them."""
        while (year := low + self._stream.below(high - low + 1)) in self._years:
            pass
        self._years.add(year)
        return year

    def _stem(self) -> str:
        draw = self._stream.choice
        return f"{draw(self._onsets)}{draw(_VOWELS)}{draw(_CODAS)}{draw(self._onsets)}".capitalize()

    def _word(self, kind: str) -> str:
        while (word := self._stem() + self._stream.choice(_ENDINGS[kind])) in self.given or _UNFIT.search(word.lower()):
            pass
        self.given[word] = None
        return word

    def _person(self) -> str:
        return f"{self._word('given')} {self._word('surname')}"

    def _firm(self) -> str:
        return f"{self._word('firm')} {self._suffixes.pop()}"

    def _work(self) -> str:
        return f"The {self._nouns.pop()} of {self._word('other')}"
