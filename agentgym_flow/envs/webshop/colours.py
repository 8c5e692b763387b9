"""The colour words that WebShop's score uses to compare options."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
COLOURS = tuple(_WORDS.split())
"""102 words in alphabetical order. The first match counts: `dark grey` is `dark`, and `navy blue` is `blue`."""


@lru_cache(maxsize=1 << 14)
def colour_of(value: str) -> str:
    """Return the first colour word that is a substring of `value` (`tan` of `tank`), or `value` if none is."""
    return _first_in(value) or value


def colour_among(words: Collection[str]) -> str | None:
    """Return the first colour word in `words`; None if there is none."""
    return _first_in(words)


def _first_in(text: Collection[str]) -> str | None:
    return next((colour for colour in COLOURS if colour in text), None)
