"""The products of a shop and its search engine. Catalogues are read-only; the environments of a process share them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from agentgym_flow._util.sharing import Shared
from agentgym_flow.envs.webshop.goal_table import GoalTable, goal_table
from agentgym_flow.envs.webshop.product import Listing, asin_key
from agentgym_flow.envs.webshop.record import record_of
from agentgym_flow.errors import BadData
from agentgym_flow.retrieval import BM25

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

    def add(self, listing: Listing) -> None:
        """Add the next listing."""
        self.add_record(record_of(listing))

    def add_record(self, record: bytes) -> None:
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
            digest.add(listing)
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
