"""The names that players read: `apple 2` for `apple_bar__minus_01_dot_20_bar_...`.

A name is the part of the id before the first `_bar_`, and a number. Numbers are given per word over the sorted ids, the
first one getting the *highest*; so a list in the order of ids reads `cabinet 6, cabinet 5, ...`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SEPARATOR = "_bar_"
"""What stands for `|` in an id."""


def display_names(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of every id, as ALFWorld's own tools give it.

    An id without `_bar_` keeps its text, followed by a space: so does the original. `ids` are all ids that the facts
    of the problem mention, because each of them counts.
    """
    ordered = sorted(set(ids))
    left = Counter(_word(name) for name in ordered if SEPARATOR in name)
    names = {}
    for name in ordered:
        word = _word(name)
        if SEPARATOR in name:
            names[name] = f"{word} {left[word]}"
            left[word] -= 1
        else:
            names[name] = f"{_symbols(name)} "
    return names


def _word(name: str) -> str:
    # The basin of a sink has the sink's id and more: "sink_bar_..._bar_sinkbasin".
    return name.partition(SEPARATOR)[0] + ("basin" if "basin" in name else "")


def _symbols(name: str) -> str:
    for code, symbol in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
        name = name.replace(code, symbol)
    return name
