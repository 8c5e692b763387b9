"""The goals of a catalogue, created on demand, and their official order and splits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import overload

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import Stream, seasonal
from agentgym_flow.envs.webshop.catalogue import KINDS, Catalogue, Product
from agentgym_flow.errors import BadData, UnknownOption

NO_BOUND = 1_000_000.0
"""The price limit of a goal whose instruction does not mention a price."""

FULL_CATALOGUE = 1_000_000
"""A catalogue with at least this number of products is the full one (1,181,430 records), which has its own splits."""

_STEPS = tuple(10.0 * n for n in range(1, 100))


@dataclass(frozen=True, slots=True)
class WebShopGoal:
    """An instruction and its requirements.

    Attributes:
        number: the index among the goals of its kind, in catalogue order.
        product: the number of the product that the goal was made from.
        asin: the ASIN of this product.
        name: its title.
        query: its query in the data.
        category: its coarse category.
        product_category: its path of categories, separated by `›`.
        instruction: the instruction, including the price limit.
        attributes: the required attributes, at least one.
        options: the required options: name -> value for a synthetic goal, only values for a human one.
        price_upper: the price limit in dollars; `NO_BOUND` if the instruction has none.
        weight: the weight of the goal in a weighted draw.

    Raises:
        BadData: there is no attribute, or the limit is not positive, so the score is undefined.
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


class Goals(Sequence[WebShopGoal], Shared):
    """All goals of one kind in catalogue order. They are created on demand, so millions of them need no memory.

    Args:
        catalogue: the products and their requests.
        kind: `synthetic`: one goal for each combination of a product's options; `human`: one for each sentence that a
            person wrote.
        season: the season of the price limits; `""` for the standard ones.

    Raises:
        UnknownOption: the kind is unknown.
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
        return self._table.total

    @overload
    def __getitem__(self, number: int) -> WebShopGoal: ...
    @overload
    def __getitem__(self, number: slice) -> list[WebShopGoal]: ...
    def __getitem__(self, number: int | slice) -> WebShopGoal | list[WebShopGoal]:
        """Return goal `number`, which is equal in every process. Raises `IndexError` if it is out of range."""
        if isinstance(number, slice):
            return [self._goal(n) for n in range(*number.indices(len(self)))]
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"there are {count} {self.kind} goals, so none has the number {number}")
        return self._goal(index(number) % count)

    def weights_of(self, numbers: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the weights of these goals, in the shape of `numbers`, without creating the goals."""
        return self._table.weights[np.searchsorted(self._table.ends, numbers, side="right")]

    def product_of(self, number: int) -> int:
        """Return the number of the product of a goal, without creating the goal."""
        return int(self._table.products[self._row(number)])

    def _row(self, number: int) -> int:
        return int(np.searchsorted(self._table.ends, number, side="right"))

    def _goal(self, number: int) -> WebShopGoal:
        row = self._row(number)
        place = number - (int(self._table.ends[row - 1]) if row else 0)  # index among the goals of the product
        product_number = int(self._table.products[row])
        listing = self.catalogue.listing(product_number)
        product = listing.product
        options: Mapping[str, str] | tuple[str, ...]
        if self.kind == "human":
            request = [asked for asked in listing.human if asked.attributes][place]
            sentence, options = request.instruction.strip("."), request.options
        else:
            assert listing.synthetic is not None  # the table contains only products with a request
            request = listing.synthetic
            options = _combination(product, place)
            chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
            sentence = f"{request.instruction} with {chosen}" if chosen else request.instruction
        # As in the original, all combinations of a product's options have the same limit.
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
    """Return combination number `place` of option values; the last name in sorted order varies fastest."""
    values = {}
    for name in sorted(product.options, reverse=True):
        place, digit = divmod(place, len(product.options[name]))
        values[name] = product.options[name][digit]
    return {name: values[name] for name in sorted(values)}


def _price_bound(product: Product, kind: str, request: int) -> float:
    """Return the price limit of a request: a multiple of 10 above the price, or `NO_BOUND` for expensive products.

    It is the larger of two different multiples, drawn from the next four, so it is never the next multiple.
    """
    price = product.price
    candidates = [step for step in _STEPS if step > price][:4]
    if len(candidates) < 2:
        return NO_BOUND
    return max(Stream("agentgym_flow/WebShop", "bound", product.asin, kind, request).sample(candidates, 2))


@lru_cache(maxsize=4)
def official_order(count: int) -> npt.NDArray[np.int64]:
    """Return the order of `count` goals in WebShop's splits: index -> number in catalogue order; read-only.

    The order is defined by Python's `random.Random(233).shuffle`.
    """
    numbers = list(range(count))
    random.Random(233).shuffle(numbers)
    order = np.array(numbers, np.int64)
    order.flags.writeable = False
    return order


def official_splits(count: int, products: int) -> dict[str, range]:
    """Return the ranges of indices in the official order for `train`, `valid` and `test`.

    The full catalogue has WebShop's own splits: test the first 500, valid the next 1,000, train the rest. In a smaller
    catalogue, test is the first 500, valid the last tenth of the others, and train the goals in between. With fewer
    than 2,000 goals, test is the first quarter instead, so that enough goals remain for training.

    Args:
        count: the number of goals.
        products: the number of products in the catalogue.

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
