"""The numbers of goals per product, which allow to create goal number n without creating the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from itertools import product as product_of
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentgym_flow.envs.webshop.product import Listing, Product
from agentgym_flow.errors import BadData, UnknownOption

KINDS = ("synthetic", "human")
"""The kinds of goals: built from the attributes and options of a product, or written by a person."""


class GoalTable(NamedTuple):
    """The goals of one kind in catalogue order, without their content.

    Attributes:
        products: (n,) int64: the numbers of the products with goals, ascending.
        ends: (n,) int64: the cumulative number of goals up to and including this product.
        weights: (n,) float64: the weight of each goal of the product in a weighted draw.
        repeats: (m, 2) int64: pairs (goal, first equal goal). Goals repeat if a product lists an option value twice, or
            if two people wrote the same instruction.
    """

    products: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    repeats: npt.NDArray[np.int64]


def combinations(product: Product) -> int:
    """Return the number of ways to choose one value of every option."""
    return math.prod(len(values) for values in product.options.values())


def _repeats(asked: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield pairs (index of a repeated element, index of its first occurrence)."""
    first: dict[Hashable, int] = {}
    for place, one in enumerate(asked):
        if first.setdefault(one, place) != place:
            yield place, first[one]


def _asked(listing: Listing, kind: str) -> Iterable[Hashable]:
    """Return the contents of the goals of a listing, in order; empty if no two of them can be equal."""
    if kind == "human":
        return [request for request in listing.human if request.attributes]
    options = listing.product.options
    if all(len(set(values)) == len(values) for values in options.values()):
        return ()
    return product_of(*(options[name] for name in sorted(options)))  # in the order of `goals._combination`


def goal_table(listings: Iterable[tuple[int, Listing]], kind: str) -> GoalTable:
    """Return the table for numbered listings in ascending order.

    A synthetic request gives one goal for each combination of options, a human request one goal. The weight of a
    synthetic goal is the mean over its attributes of 1 / (number of goals with that attribute); human goals have weight
    1. Requests without attributes give no goals, because their score would be undefined (0 / 0).

    Raises `UnknownOption` if `kind` is not in `KINDS`, and `BadData` if the goals cannot be numbered with 64 bits.
    """
    if kind not in KINDS:
        raise UnknownOption.among(kind, KINDS)
    products, counts, total = [], [], 0
    repeats: list[tuple[int, int]] = []
    attributes: list[tuple[str, ...]] = []
    for number, listing in listings:
        if kind == "human":
            count = sum(bool(request.attributes) for request in listing.human)
        else:
            asked = listing.synthetic
            count = combinations(listing.product) if asked is not None and asked.attributes else 0
            if count and asked is not None:
                attributes.append(asked.attributes)
        if count:
            products.append(number)
            counts.append(count)
            repeats += [(total + place, total + first) for place, first in _repeats(_asked(listing, kind))]
            total += count
    if total >= 1 << 63:  # for example twenty options of ten values each
        raise BadData("the options of the products make more goals than 64 bits can number")
    weights = np.ones(len(products))
    if kind == "synthetic":
        shared: Counter[str] = Counter()
        for names, count in zip(attributes, counts, strict=True):
            for name in names:
                shared[name] += count
        weights = np.array([sum(1 / shared[name] for name in names) / len(names) for names in attributes])
    return GoalTable(
        np.array(products, np.int64),
        np.cumsum(np.array(counts, np.int64)),
        weights.astype(np.float64, copy=False),
        np.array(repeats, np.int64).reshape(-1, 2),
    )
