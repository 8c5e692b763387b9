"""Which products have goals, and how many: all that is needed to find goal number n without making the others."""

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
"""The kinds of goals: built from a product's attributes and options, or written by a person."""


class GoalTable(NamedTuple):
    """The goals of one kind in catalogue order, without their content.

    Attributes:
        products: (n,) int64: the numbers of the products that have goals, ascending.
        ends: (n,) int64: how many goals there are up to and with this product.
        weights: (n,) float64: the weight of each goal of the product in a weighted draw.
        repeats: (m, 2) int64: goals that equal an earlier one, because their product lists a value of an option twice
            or two people wrote the same, and the first goal that they equal.
    """

    products: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    repeats: npt.NDArray[np.int64]


def combinations(product: Product) -> int:
    """Return how many ways there are to choose one value of every option."""
    return math.prod(len(values) for values in product.options.values())


def _repeats(asked: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of what was there before, each with the place of the first."""
    first: dict[Hashable, int] = {}
    for place, one in enumerate(asked):
        if first.setdefault(one, place) != place:
            yield place, first[one]


def _asked(listing: Listing, kind: str) -> Iterable[Hashable]:
    """Return what the goals of a listing ask for, in their order, if two of them can be equal; else nothing."""
    if kind == "human":
        return [request for request in listing.human if request.attributes]
    options = listing.product.options
    if all(len(set(values)) == len(values) for values in options.values()):
        return ()
    return product_of(*(options[name] for name in sorted(options)))  # as the goals: the last name varies fastest


def goal_table(listings: Iterable[tuple[int, Listing]], kind: str) -> GoalTable:
    """Return the table for numbered listings in ascending order (spec A3).

    A synthetic request makes a goal for each combination of options, a human one makes one goal. The weight of a
    synthetic goal is the mean over its attributes of 1 / (how many goals have that attribute); of a human one it is 1.
    Requests without attributes make none: their score would divide by zero.

    Raises `UnknownOption` when `kind` is not among `KINDS`, and `BadData` when the goals are too many to be numbered.
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
    if total >= 1 << 63:  # one product with twenty options of ten values has more
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
