"""Products, the requests for them, and catalogues: the products of a shop by number, with a search engine.

Catalogues are read-only; the environments of a process share them. The fields of a product are those of WebShop's own
loader. The numbers of goals per product (`GoalTable`) make it possible to create goal number n without the others.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product as product_of
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import Stream, canonical
from agentgym_flow.errors import BadData, UnknownOption
from agentgym_flow.retrieval import BM25


@dataclass(frozen=True, slots=True)
class Product:
    """A product.

    Attributes:
        asin: the identifier, at most 10 characters, as in the data (upper case).
        name: the title.
        description: one paragraph, often empty.
        bullets: the list under "Features".
        prices: in dollars; one price, or the two ends of a range, as in the data.
        options: name in lower case -> values in lower case, both in the order of the data.
        attributes: phrases such as `tea tree`, from which instructions are built; not part of any page or index.
        category: the coarse category, such as `beauty`.
        product_category: the path of categories, separated by `›`.
        query: the query under which the data list the product, in lower case; used for the type in the score.
        image: the address of a picture, possibly empty. It is displayed, but never fetched.
    """

    asin: str
    name: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    category: str
    product_category: str
    query: str
    image: str

    @property
    def price_tag(self) -> str:
        """The price on pages: `$34.0`, or `$15.99 to $32.99`."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def price(self) -> float:
        """The price paid. From a range it is drawn with a fixed seed; in the original it differs between processes."""
        low, high = self.prices[0], self.prices[-1]
        return (
            low if low == high else low + (high - low) * Stream("agentgym_flow/WebShop", "price", self.asin).uniform()
        )

    @property
    def index_text(self) -> str:
        """The text to index: title, description, first bullet and options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join((self.name, self.description, first, options)).lower()


def asin_key(asin: str) -> bytes:
    """Return a case-insensitive key for lookup and order.

    Products with equal scores are ordered by this key, because Anserini, the original's search engine, orders them by
    document id, and the ids are the ASINs.
    """
    return asin.upper().encode("utf-8", "surrogatepass")


class ProductRequest(NamedTuple):
    """A request for a product, without a price limit.

    Attributes:
        instruction: the instruction.
        attributes: the required attributes, at least one.
        options: the required option values of a human instruction. Empty for a synthetic one, which gives a goal for
            every combination of the product's options.
    """

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


class Listing(NamedTuple):
    """A product and the requests for it."""

    product: Product
    synthetic: ProductRequest | None = None
    human: tuple[ProductRequest, ...] = ()


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

    @property
    def total(self) -> int:
        """The number of goals."""
        return int(self.ends[-1]) if len(self.ends) else 0


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
        asked: Iterable[Hashable] = ()  # the contents of the goals in order, if two of them can be equal
        count = 0
        if kind == "human":
            asked = [request for request in listing.human if request.attributes]
            count = len(asked)
        elif listing.synthetic is not None and listing.synthetic.attributes:
            options = listing.product.options
            count = math.prod(map(len, options.values()))
            if any(len(set(values)) < len(values) for values in options.values()):
                asked = product_of(*(options[name] for name in sorted(options)))  # in the order of `Goals`
            if count:
                attributes.append(listing.synthetic.attributes)
        if count:
            products.append(number)
            counts.append(count)
            first: dict[Hashable, int] = {}
            for goal, one in enumerate(asked, total):
                if first.setdefault(one, goal) != goal:
                    repeats.append((goal, first[one]))
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


HITS = 50
"""The largest number of products that a search finds."""

_QUERIES_KEPT = 4096
"""The number of cached search results, about half a kilobyte each."""

_QUERY_KEPT = 1_000
"""The results of longer queries, in characters, are not cached."""


class Catalogue(Protocol):
    """The products by number, in memory or in a store on disk."""

    def __hash__(self) -> int:
        """Return a hash by identity, because catalogues are keys of caches."""

    @property
    def digest(self) -> str:
        """SHA-256 of all listings in order (`ListingDigest`), independent of their storage."""

    def __len__(self) -> int:
        """Return the number of products."""

    def listing(self, number: int) -> Listing:
        """Return product number `number` with its requests."""

    def number_of(self, asin: str) -> int:
        """Return the number of the product with this ASIN, ignoring case. Raises `KeyError` if there is none."""

    def search(self, query: str, hits: int = HITS) -> list[int]:
        """Return the numbers of the best products for a query, best first; ties are ordered by `asin_key`."""

    def goal_table(self, kind: str) -> GoalTable:
        """Return the table of the goals of this kind. Raises `UnknownOption` if the kind is unknown."""


class ListingDigest:
    """Computes the digest of a catalogue incrementally."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, record: bytes) -> None:
        """Add the next listing, as `record_of` writes it."""
        self._hash.update(record + b"\n")

    def hexdigest(self) -> str:
        """Return the digest in hexadecimal."""
        return self._hash.hexdigest()


class MemoryCatalogue(Shared):
    """A catalogue in memory, for up to some ten thousand products.

    Args:
        listings: the products in order.
        made_by: a function and its arguments that return this catalogue; a pickle then contains only these.

    Raises:
        BadData: there is no listing.
    """

    def __init__(
        self, listings: Iterable[Listing], made_by: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
    ) -> None:
        self._listings = tuple(listings)
        self._made_by = made_by
        if not self._listings:
            raise BadData("the catalogue has no product")
        self._tables: dict[str, GoalTable] = {}
        # Attempts at the same goal start with the same few queries.
        self._found = lru_cache(maxsize=_QUERIES_KEPT)(self._rank)

    @cached_property
    def _index(self) -> BM25:
        keys = [asin_key(listing.product.asin) for listing in self._listings]
        ties = np.empty(len(keys), np.int32)
        ties[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys), dtype=np.int32)
        return BM25.build((listing.product.index_text for listing in self._listings), ties=ties)

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {asin_key(listing.product.asin): number for number, listing in enumerate(self._listings)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all listings in order, in hexadecimal."""
        digest = ListingDigest()
        for listing in self._listings:
            digest.add(record_of(listing))
        return digest.hexdigest()

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._listings)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made_by or (type(self), (self._listings,))

    def listing(self, number: int) -> Listing:
        """Return product number `number` with its requests."""
        return self._listings[number]

    def number_of(self, asin: str) -> int:
        """Return the number of the product with this ASIN, ignoring case. Raises `KeyError` if there is none."""
        return self._numbers[asin_key(asin)]

    def search(self, query: str, hits: int = HITS) -> list[int]:
        """Return the numbers of the best products for a query, best first."""
        return list(self._found(query, hits) if len(query) <= _QUERY_KEPT else self._rank(query, hits))

    def _rank(self, query: str, hits: int) -> tuple[int, ...]:
        return tuple(hit.document for hit in self._index.search(query, hits))

    def goal_table(self, kind: str) -> GoalTable:
        """Return the table of the goals of this kind. Raises `UnknownOption` if the kind is unknown."""
        if kind not in self._tables:
            self._tables[kind] = goal_table(enumerate(self._listings), kind)
        return self._tables[kind]


def record_of(listing: Listing) -> bytes:
    """Return a listing as one line of canonical ASCII JSON, without a newline."""
    product = listing.product
    return canonical(
        [
            [getattr(product, name) for name in product.__slots__ if name != "options"],
            list(product.options.items()),
            listing.synthetic,
            listing.human,
        ]
    )


def listing_of(record: bytes) -> Listing:
    """Return the listing that `record_of` wrote. Raises `ValueError`, `TypeError` or `KeyError` for other content."""
    values, options, synthetic, human = json.loads(record)
    names = [name for name in Product.__slots__ if name != "options"]
    fields: dict[str, Any] = dict(zip(names, values, strict=True))
    # The record has 0x1.1p+5 for 34.0.
    fields["prices"] = tuple(float.fromhex(price) if isinstance(price, str) else price for price in fields["prices"])
    fields["bullets"] = tuple(fields["bullets"])
    fields["attributes"] = tuple(fields["attributes"])
    fields["options"] = {name: tuple(values) for name, values in options}
    return Listing(Product(**fields), _request(synthetic) if synthetic else None, tuple(map(_request, human)))


def _request(values: list[Any]) -> ProductRequest:
    instruction, attributes, options = values
    return ProductRequest(instruction, tuple(attributes), tuple(options))
