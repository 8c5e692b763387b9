"""The names that players read, such as `apple 2` for `apple_bar__minus_01_dot_20_bar_...`.

A name is the part of the id before the first `_bar_`, and a number. For each word, the numbers follow the sorted ids in
*descending* order, so a list in the order of ids reads `cabinet 6, cabinet 5, ...`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SEPARATOR = "_bar_"
"""The replacement of `|` in ids."""


def display_names(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of every id, as in ALFWorld's own tools.

    An id without `_bar_` keeps its text, followed by a space, as in the original. `ids` are all ids in the facts of the
    problem, because each of them affects the numbers.
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
    # The id of a basin begins with the id of its sink: "sink_bar_..._bar_sinkbasin".
    return name.partition(SEPARATOR)[0] + ("basin" if "basin" in name else "")


def _symbols(name: str) -> str:
    for code, symbol in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
        name = name.replace(code, symbol)
    return name
