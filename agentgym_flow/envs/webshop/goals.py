"""What a shopper is asked to buy: the goals of a catalogue, each made on demand, and their official order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import overload

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.immutable import Immutable
from agentgym_flow.envs.webshop.catalogue import Catalogue
from agentgym_flow.envs.webshop.goal_table import KINDS
from agentgym_flow.envs.webshop.product import Product
from agentgym_flow.errors import BadData, UnknownOption
from agentgym_flow.seeding import Stream, seasonal

NO_BOUND = 1_000_000.0
"""The largest price of a goal whose instruction says nothing about the price."""

FULL_CATALOGUE = 1_000_000
"""A catalogue of so many products is the full one (1,181,430 records), which has splits of its own."""

_STEPS = tuple(10.0 * n for n in range(1, 100))


@dataclass(frozen=True, slots=True)
class WebShopGoal:
    """One instruction, and what it asks for.

    Attributes:
        number: its place among the goals of its kind, in catalogue order.
        product: the number of the product that it was made from.
        asin: that product's identity.
        name: its title.
        query: the search under which it was found.
        category: its coarse category.
        product_category: its path of categories, separated by `›`.
        instruction: the sentence, with the limit on the price.
        attributes: phrases that the purchase should have, at least one.
        options: what should be chosen: name -> value of a synthetic goal, only values where a person wrote it.
        price_upper: the most that the purchase may cost, in dollars; `NO_BOUND` when the sentence names no limit.
        weight: how likely a weighted draw takes this goal, relative to the others.

    Raises:
        BadData: there is no attribute, or the limit is not above 0: the score of such a goal is not defined.
    """

    number: int
    product: int
    asin: str
    name: str
    query: str
    category: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    price_upper: float
    weight: float

    def __post_init__(self) -> None:
        if not self.attributes:
            raise BadData(f"the goal for {self.asin} asks for no attribute, so it has no score")
        if not self.price_upper > 0:
            raise BadData(f"the goal for {self.asin} must allow a price above 0, got {self.price_upper}")


class Goals(Sequence[WebShopGoal], Immutable):
    """All goals of one kind in catalogue order. None is kept: millions of them cost no memory.

    Args:
        catalogue: the products and their requests.
        kind: `synthetic`: one goal for each combination of a product's options; `human`: one for each sentence that a
            person wrote.
        season: the season that the limits on prices are drawn for; `""` for the standard ones.

    Raises:
        UnknownOption: there is no such kind.
    """

    def __init__(self, catalogue: Catalogue, kind: str, season: str = "") -> None:
        if kind not in KINDS:
            raise UnknownOption.among(kind, KINDS)
        self.catalogue = catalogue
        self.kind = kind
        self.season = season
        self._table = catalogue.goal_table(kind)

    def __len__(self) -> int:
        """Return the number of goals."""
        return int(self._table.ends[-1]) if len(self._table.ends) else 0

    @overload
    def __getitem__(self, number: int) -> WebShopGoal: ...
    @overload
    def __getitem__(self, number: slice) -> list[WebShopGoal]: ...
    def __getitem__(self, number: int | slice) -> WebShopGoal | list[WebShopGoal]:
        """Return goal `number`, equal in every process. Raises `IndexError` when there are not so many."""
        if isinstance(number, slice):
            return [self._goal(n) for n in range(*number.indices(len(self)))]
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"there are {count} {self.kind} goals, so none has the number {number}")
        return self._goal(index(number) % count)

    def weights_of(self, numbers: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the weights of these goals, in the shape of `numbers`, without making the goals."""
        return self._table.weights[np.searchsorted(self._table.ends, numbers, side="right")]

    def product_of(self, number: int) -> int:
        """Return the number of the product that a goal is made from, without making the goal."""
        return int(self._table.products[self._row(number)])

    def _row(self, number: int) -> int:
        return int(np.searchsorted(self._table.ends, number, side="right"))

    def _goal(self, number: int) -> WebShopGoal:
        row = self._row(number)
        place = number - (int(self._table.ends[row - 1]) if row else 0)  # among the goals of the product
        product_number = int(self._table.products[row])
        listing = self.catalogue.listing(product_number)
        product = listing.product
        options: Mapping[str, str] | tuple[str, ...]
        if self.kind == "human":
            request = [asked for asked in listing.human if asked.attributes][place]
            sentence, options = request.instruction.strip("."), request.options
        else:
            assert listing.synthetic is not None  # the table has only products with a request
            request = listing.synthetic
            options = _combination(product, place)
            chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
            sentence = f"{request.instruction} with {chosen}" if chosen else request.instruction
        # As upstream, all combinations of a product's options share one limit.
        bound = _price_bound(product, seasonal(self.kind, self.season), place if self.kind == "human" else 0)
        return WebShopGoal(
            number=number,
            product=product_number,
            asin=product.asin,
            name=product.name,
            query=product.query,
            category=product.category,
            product_category=product.product_category,
            instruction=sentence + (f", and price lower than {bound:.2f} dollars" if bound < NO_BOUND else ""),
            attributes=request.attributes,
            options=options,
            price_upper=bound,
            weight=float(self._table.weights[row]),
        )


def _combination(product: Product, place: int) -> dict[str, str]:
    """Return way number `place` of choosing a value of every option; the last name, in sorted order, varies fastest."""
    values = {}
    for name in sorted(product.options, reverse=True):
        place, digit = divmod(place, len(product.options[name]))
        values[name] = product.options[name][digit]
    return {name: values[name] for name in sorted(values)}


def _price_bound(product: Product, kind: str, request: int) -> float:
    """Return the price bound of a request: a multiple of 10 above the price, or `NO_BOUND` for expensive products.

    Of the four next multiples two are drawn and the larger taken, so it is never the next one.
    """
    price = product.price
    candidates = [step for step in _STEPS if step > price][:4]
    if len(candidates) < 2:
        return NO_BOUND
    return max(Stream("agentgym_flow/WebShop", "bound", product.asin, kind, request).sample(candidates, 2))


@lru_cache(maxsize=4)
def official_order(count: int) -> npt.NDArray[np.int64]:
    """Return the order of `count` goals in WebShop's splits: place -> number in catalogue order; read-only.

    It is what Python's own `random.Random(233).shuffle` makes of a list, the one place where `random` is used here.
    """
    numbers = list(range(count))
    random.Random(233).shuffle(numbers)
    order = np.array(numbers, np.int64)
    order.flags.writeable = False
    return order


def official_splits(count: int, products: int) -> dict[str, range]:
    """Return the places in the official order that belong to `train`, `valid` and `test`.

    The full catalogue has WebShop's own splits: test the first 500, valid the next 1,000, train the rest. A smaller
    catalogue: test the first 500, valid the last tenth of the others, train between. Where there are fewer than 2,000
    goals, test is the first quarter instead, so that something is left to train on.

    Args:
        count: how many goals there are.
        products: how many products the catalogue has.

    Raises:
        BadData: there are fewer than 3 goals, so one split would be empty.
    """
    if count < 3:
        raise BadData(f"the data make {count} goals, and at least 3 are needed for train, valid and test")
    if products >= FULL_CATALOGUE and count >= 2_000:
        return {"train": range(1_500, count), "valid": range(500, 1_500), "test": range(500)}
    test = max(1, min(500, count // 4))
    valid = max(1, (count - test) // 10)
    return {"train": range(test, count - valid), "valid": range(count - valid, count), "test": range(test)}
