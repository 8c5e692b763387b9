"""Small grammar: how titles are capitalised, and how a thing and its features make a phrase."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from agentgym_flow.envs.webshop.generator.kinds import Feature, Number, words

_SMALL = frozenset(words("a|an|and|at|by|for|from|in|of|on|or|per|the|to|with"))
_CAPITALS = "usb|hdmi|led|rfid|bpa|uv|gmo|tv|pc|abs|hd|diy|usda|dvd|gps"
_SPELLED = {word: word.upper() for word in words(_CAPITALS)} | {
    "usb-c": "USB-C",
    "mm": "mm",
    "2k": "2K",
    "3d": "3D",
    "3x": "3X",
}


@cache
def titled(phrase: str) -> str:
    """Return a phrase as titles write it: `rfid blocking for travel` becomes `RFID Blocking for Travel`."""
    return " ".join(word if word in _SMALL else "-".join(map(_word, word.split("-"))) for word in phrase.split(" "))


def _word(word: str) -> str:
    return _SPELLED.get(word) or word[:1].upper() + word[1:]


def spelled(phrase: str) -> str:
    """Return a phrase as sentences write it: `vitamin c` stays, `usb-c port` becomes `USB-C port`."""
    return " ".join(_SPELLED.get(word, word) for word in phrase.split(" "))


def hyphenated(phrase: str) -> str:
    """Return a phrase as one word: a search finds it all the same, but it no longer states the feature."""
    return phrase.replace(" ", "-")


def sentence(text: str) -> str:
    """Return `text` with a capital at the start and a full stop at the end."""
    return text[:1].upper() + text[1:] + "."


def listed(items: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def counted(thing: str, number: Number) -> str:
    """Return a thing as a person asks for it: `a lamp`, `an oven glove`, `some shorts`."""
    if number != "one":
        return "some " + thing
    return ("an " if thing[0] in "aeiou" else "a ") + thing


def tail(features: Sequence[Feature]) -> str:
    """Return what follows the name of a thing that has or is for something: ` with a and b for c`; may be empty."""
    having = [feature.phrase for feature in features if feature.role == "has"]
    purposes = [feature.phrase for feature in features if feature.role == "for"]
    return (" with " + listed(having) if having else "") + (" for " + listed(purposes) if purposes else "")


def being(features: Sequence[Feature]) -> list[str]:
    """Return the phrases of what the thing is."""
    return [feature.phrase for feature in features if feature.role == "is"]
