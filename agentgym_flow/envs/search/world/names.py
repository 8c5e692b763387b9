"""Invented names: of three syllables or more, and none given twice."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentgym_flow.seeding import Stream

_ONSETS, _VOWELS, _CODAS = (
    tuple(text.split("|"))
    for text in (
        "b|br|d|dr|f|g|gr|h|j|k|kl|l|m|n|p|pr|r|s|sk|st|t|tr|v|vr|w|y|z",
        "a|e|i|o|u|a|e|o|ae|ou",
        "||||l|n|r|s|m|k|v|z",
    )
)
_ENDINGS = {
    kind: tuple(text.split("|"))
    for kind, text in {
        "country": "ovia|uvar|endor|astria|umbar|iskan|orane|essar",
        "region": "amark|oland|ethia|ovar|andel|uskar|emark|oria",
        "city": "ova|avik|imor|ettan|ubra|olme|estra|inda|okka|azel",
        "river": "une|ava|eska|orra|ithe|anna|ulve|oma",
        "mountain": "ak|horn|undr|osk|ekh|ator|igg|urn",
        "surname": "ado|eni|osk|arin|evol|utz|anko|ery|imov|ael|onde|ulis",
        "given": "a|o|i|en|ul|eth|is|or|ane|ix",
        "other": "a|e|en|is|on|um|ix|or|et",
    }.items()
}
_UNFIT = re.compile(
    "anal|anus|arse|coon|cunt|dick|dyke|fag|fuk|hitler|jap|kike|kkk|kum|nazi|nig|penis|poop|porn|rape|sex|shit"
)
_TRIES = 500

_ADJECTIVES, _NOUNS, _JOINTS = (
    tuple(text.split("|"))
    for text in (
        "amber|ashen|brittle|broken|buried|copper|crooked|distant|drowned|empty|folded|forgotten|frozen|gilded|hollow|"
        "idle|ivory|lesser|lonely|mended|nameless|narrow|painted|patient|quiet|restless|salted|scarlet|secret|sleeping|"
        "stubborn|sunken|tangled|thirsty|unlit|unwritten|velvet|wandering|weathered|woven",
        "almanac|anchor|arcade|balcony|beekeeper|bell|boatman|bridge|candle|carousel|chimney|clockmaker|cloister|comet|"
        "compass|cupboard|dovecote|ember|ferry|fiddler|gardener|glacier|granary|harbour|heron|key|kiln|lantern|ledger|"
        "lighthouse|loom|magpie|meadow|mill|mirror|orchard|organist|pavilion|pilgrim|quarry|reed|rope|saddle|sail|"
        "scribe|shepherd|signal|staircase|stone|storm|tannery|thimble|threshold|toll|tower|umbrella|vineyard|well|"
        "window|winter",
        "and|beneath|beyond|without|for|against",
    )
)


class EntityNames:
    """Gives names that were not given before.

    Args:
        stream: where the names are drawn from.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._taken: set[str] = set()

    def word(self, kind: str, syllables: int = 2) -> str:
        """Return a capitalised name of so many syllables and an ending. Raises `RuntimeError` if none is free."""
        return self._new(lambda: self._draw(kind, syllables))

    def title(self) -> str:
        """Return the title of a work. Raises `RuntimeError` if none is free."""
        return self._new(self._draw_title)

    def near(self, name: str) -> str:
        """Return a name that differs from another in one vowel. Raises `RuntimeError` if none is free."""
        return self._new(lambda: self._altered(name))

    def _new(self, draw: Callable[[], str]) -> str:
        for _ in range(_TRIES):
            name = draw()
            if name.lower() not in self._taken and not _UNFIT.search(name.lower()):
                self._taken.add(name.lower())
                return name
        raise RuntimeError("no free name was found; there are more entities than names")

    def _draw(self, kind: str, syllables: int) -> str:
        choice = self._stream.choice
        parts = [choice(_ONSETS) + choice(_VOWELS) + choice(_CODAS) for _ in range(syllables - 1)]
        return (
            "".join(parts) + choice(_ONSETS) + choice(_VOWELS)[:1] + choice("lnrmvdst") + choice(_ENDINGS[kind])
        ).title()

    def _draw_title(self) -> str:
        choice = self._stream.choice
        first, second, third = choice(_ADJECTIVES), choice(_NOUNS), choice(_NOUNS)
        form = self._stream.below(3)
        if form == 0:
            return f"The {first.title()} {second.title()} {choice(_JOINTS)} the {third.title()}"
        if form == 1:
            return f"{second.title()} {choice(_JOINTS)} the {choice(_ADJECTIVES).title()} {third.title()}"
        return f"The {first.title()} {second.title()} of {self._draw('other', 2)}"

    def _altered(self, name: str) -> str:
        places = [place for place, letter in enumerate(name) if letter in "aeiou"]
        place = self._stream.choice(places)
        return name[:place] + self._stream.choice("aeiou") + name[place + 1 :]
