"""Simple grammar: capitalisation of titles, and phrases for a product and its features."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from agentgym_flow.envs.webshop.generator.kinds import Feature, Number

_SMALL = frozenset(("a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "per", "the", "to", "with"))
_CAPITALS = "usb hdmi led rfid bpa uv gmo tv pc abs hd diy usda dvd gps"
_SPELLED = {word: word.upper() for word in _CAPITALS.split()} | {
    "usb-c": "USB-C",
    "mm": "mm",
    "2k": "2K",
    "3d": "3D",
    "3x": "3X",
}


@cache
def titled(phrase: str) -> str:
    """Return a phrase in title case: `rfid blocking for travel` becomes `RFID Blocking for Travel`."""
    return " ".join(word if word in _SMALL else "-".join(map(_word, word.split("-"))) for word in phrase.split(" "))


def _word(word: str) -> str:
    return _SPELLED.get(word) or word[:1].upper() + word[1:]


def spelled(phrase: str) -> str:
    """Return a phrase for a sentence: `vitamin c` is unchanged, `usb-c port` becomes `USB-C port`."""
    return " ".join(_SPELLED.get(word, word) for word in phrase.split(" "))


def hyphenated(phrase: str) -> str:
    """Return a phrase as one word. A search still finds it, but the score does not count it as the attribute."""
    return phrase.replace(" ", "-")


def sentence(text: str) -> str:
    """Return `text` with a capital at the start and a full stop at the end."""
    return text[:1].upper() + text[1:] + "."


def listed(items: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def counted(thing: str, number: Number) -> str:
    """Return a thing with an article or `some`: `a lamp`, `an oven glove`, `some shorts`."""
    if number != "one":
        return "some " + thing
    return ("an " if thing[0] in "aeiou" else "a ") + thing


def tail(features: Sequence[Feature]) -> str:
    """Return the phrase for features of the roles `has` and `for`: ` with a and b for c`; it may be empty."""
    having = [feature.phrase for feature in features if feature.role == "has"]
    purposes = [feature.phrase for feature in features if feature.role == "for"]
    return (" with " + listed(having) if having else "") + (" for " + listed(purposes) if purposes else "")


def being(features: Sequence[Feature]) -> list[str]:
    """Return the phrases of the features of the role `is`."""
    return [feature.phrase for feature in features if feature.role == "is"]
