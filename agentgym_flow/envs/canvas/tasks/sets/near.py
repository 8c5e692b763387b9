"""Pairs of nearly equal texts, found without comparing all pairs.

A text is represented by the set of its five-character sequences. Similar sets share some of their smallest hashes
(MinHash), so only texts that agree in a band of these are compared exactly, by the share of their characters that is
left when all differing characters are removed. Texts with different numbers or signs are not similar.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz

from agentgym_flow.core import Stream

GRAM = 5
BANDS = 20
ROWS = 3
"""Two texts that share a fraction s of their sequences are compared with probability 1 - (1 - s**ROWS)**BANDS: 0.95 for
s = 0.52 and 0.9999 for s = 0.72. Questions with a similarity of 0.9 share about 0.7."""
_MOST = 20_000

_TYPOGRAPHY = str.maketrans("\N{MINUS SIGN}\N{EN DASH}\u2018\u2019\u201c\u201d", "--''\"\"")
_NUMBER_OR_SIGN = re.compile(  # the hyphen of a word is not a sign
    r"\d+(?:\.\d+)?|[+*/^<>=%\[\]]|(?<=[\d)])!|\\[a-z]+|(?<![^\W\d_])-|-(?![^\W\d_])"
)
_draw = Stream("canvas.near")
_FACTORS: NDArray[np.uint64] = np.array([_draw.below(2**63) * 2 + 1 for _ in range(BANDS * ROWS)], dtype=np.uint64)
_OFFSETS: NDArray[np.uint64] = np.array([_draw.below(2**64) for _ in range(BANDS * ROWS)], dtype=np.uint64)
_SHIFTS: NDArray[np.uint64] = np.arange(GRAM, dtype=np.uint64) * np.uint64(8)


def folded(text: str) -> str:
    """Return a text in lower case with single blanks, plain quotes and dashes, and no punctuation at its end.

    Everything else may carry a meaning, as in `x - 4 = 10` and `x + 4 = 10`, or a string of `<` and one of `(`.
    """
    return " ".join(text.casefold().translate(_TYPOGRAPHY).split()).rstrip(" .,:;?")


def near_pairs(
    left: Sequence[str], right: Sequence[str] | None = None, *, threshold: float = 0.9
) -> Iterator[tuple[int, int, float]]:
    """Yield the indices of two similar texts and their similarity, in [`threshold`, 1], for each pair found.

    Texts with different numbers or signs are not similar: `x - 4 = 10` and `x + 4 = 10` are two problems.
    Pairs are sorted by the index in `right` (or by the larger index), then by that in `left`.

    Args:
        left: different folded texts.
        right: different texts to compare them with; None for the pairs within `left`, the smaller index first.
        threshold: the minimum similarity, at least 0.8; below that, many pairs would be missed.
    """
    table: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    if right is not None:
        for place, text in enumerate(left):
            for band in _bands(text):
                table[band].append(place)
    for place, text in enumerate(left if right is None else right):
        bands = _bands(text)
        for other in sorted({other for band in bands for other in table.get(band, ())}):
            similarity = fuzz.ratio(left[other], text, score_cutoff=100 * threshold) / 100
            if similarity and _NUMBER_OR_SIGN.findall(left[other]) == _NUMBER_OR_SIGN.findall(text):
                yield other, place, similarity
        if right is None:
            for band in bands:
                table[band].append(place)


def _bands(text: str) -> list[tuple[int, bytes]]:
    data: NDArray[Any] = np.frombuffer(text[:_MOST].encode().ljust(GRAM), dtype=np.uint8).astype(np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(data, GRAM)
    grams = np.unique((windows << _SHIFTS).sum(axis=1, dtype=np.uint64))
    smallest = ((grams[:, None] * _FACTORS + _OFFSETS) >> np.uint64(24)).min(axis=0)
    return [(band, smallest[band * ROWS : (band + 1) * ROWS].tobytes()) for band in range(BANDS)]
