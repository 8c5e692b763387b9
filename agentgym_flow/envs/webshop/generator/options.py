"""What buyers choose from: lists of values that several kinds share, and how people ask for a value."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Option, words

_CLOTHES = "black|white|navy|red|green|brown|pink|purple|teal|mustard|beige|burgundy"
_HOUSEHOLD = "black|white|beige|teal|green|charcoal|blush|mustard|brown|purple|ivory|burgundy"
_GADGETS = "black|white|red|silver|green|pink|purple|orange|teal|yellow"


def color(values: str = _GADGETS) -> Option:
    """Return a choice of colors, written as `black|white`."""
    return Option("color", words(values), ("in {}", "in the color {}", "in {} color"), True)


def clothes_color() -> Option:
    """Return the colors of clothes."""
    return color(_CLOTHES)


def household_color() -> Option:
    """Return the colors of what stands or lies in a home."""
    return color(_HOUSEHOLD)


def flavor(values: str) -> Option:
    """Return a choice of flavors, written as `peach|vanilla`."""
    return Option("flavor", words(values), ("in the {} flavor", "with {} flavor"), True)


def scent(values: str) -> Option:
    """Return a choice of scents, written as `lavender|unscented`."""
    return Option("scent", words(values), ("with {} scent", "in the {} scent"), True)


def style(values: str, name: str = "style") -> Option:
    """Return a choice of designs whose values do not pass for one another."""
    return Option(name, words(values), ("in the {} " + name, "in {} " + name), True)


def size(values: str, name: str = "size") -> Option:
    """Return a choice of sizes, from small to large."""
    return Option(name, words(values), ("in " + name + " {}", "in the {} " + name), False)


def clothes_size() -> Option:
    """Return the sizes of clothes."""
    return size("x-small|small|medium|large|x-large|xx-large|3x-large")


def pack(values: str = "pack of 1|pack of 2|pack of 3|pack of 4|pack of 6") -> Option:
    """Return a choice of how many there are in a pack."""
    return Option("package quantity", words(values), ("in a {}", "as a {}"), False)
