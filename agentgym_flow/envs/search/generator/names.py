"""Invented names of at least three syllables, each given only once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.content import read_content


class NameParts(NamedTuple):
    """What names are composed of; a part that is listed twice is twice as likely.

    Attributes:
        onsets, vowels, codas: the parts of a syllable.
        endings: kind of name -> endings.
        adjectives, nouns, joints: the words of titles.
    """

    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]
    endings: dict[str, tuple[str, ...]]
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    joints: tuple[str, ...]


_PARTS = read_content(__package__, "names.json", NameParts)
_UNFIT = re.compile(
    "anal|anus|arse|coon|cunt|dick|dyke|fag|fuk|hitler|jap|kike|kkk|kum|nazi|nig|penis|poop|porn|rape|sex|shit"
)
_TRIES = 500


class EntityNames:
    """Draws names from a random stream, never the same name twice."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._taken: set[str] = set()

    def word(self, kind: str, syllables: int = 2) -> str:
        """Return a capitalised name with that many syllables and an ending. Raises `RuntimeError` if none is free."""
        return self._new(lambda: self._draw(kind, syllables))

    def title(self) -> str:
        """Return the title of a work. Raises `RuntimeError` if none is free."""
        return self._new(self._draw_title)

    def near(self, name: str) -> str:
        """Return a name that differs from `name` in one vowel. Raises `RuntimeError` if none is free."""
        return self._new(lambda: self._altered(name))

    def _new(self, draw: Callable[[], str]) -> str:
        for _ in range(_TRIES):
            name = draw()
            if name.lower() not in self._taken and not _UNFIT.search(name.lower()):
                self._taken.add(name.lower())
                return name
        raise RuntimeError("no free name was found; there are more entities than names")

    def _draw(self, kind: str, syllables: int) -> str:
        choice, parts = self._stream.choice, _PARTS
        name = "".join(choice(parts.onsets) + choice(parts.vowels) + choice(parts.codas) for _ in range(syllables - 1))
        name += choice(parts.onsets) + choice(parts.vowels)[:1] + choice("lnrmvdst") + choice(parts.endings[kind])
        return name.title()

    def _draw_title(self) -> str:
        choice, parts = self._stream.choice, _PARTS
        first, second, third = choice(parts.adjectives), choice(parts.nouns), choice(parts.nouns)
        form = self._stream.below(3)
        if form == 0:
            return f"The {first.title()} {second.title()} {choice(parts.joints)} the {third.title()}"
        if form == 1:
            joint, adjective = choice(parts.joints), choice(parts.adjectives)
            return f"{second.title()} {joint} the {adjective.title()} {third.title()}"
        return f"The {first.title()} {second.title()} of {self._draw('other', 2)}"

    def _altered(self, name: str) -> str:
        places = [place for place, letter in enumerate(name) if letter in "aeiou"]
        place = self._stream.choice(places)
        return name[:place] + self._stream.choice("aeiou") + name[place + 1 :]
