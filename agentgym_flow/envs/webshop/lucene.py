"""A catalogue searched by Lucene itself, through pyserini, for results that do not depend on our own ranking."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agentgym_flow import data as registry
from agentgym_flow._util.sharing import Shared
from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue
from agentgym_flow.envs.webshop.goal_table import GoalTable
from agentgym_flow.envs.webshop.product import Listing
from agentgym_flow.retrieval.lucene import LuceneIndex


class LuceneCatalogue(Shared):
    """The products of another catalogue, searched by Lucene.

    Args:
        catalogue: the products.
        index: a Lucene index of their `index_text`, with their ASINs in upper case as ids.
    """

    def __init__(self, catalogue: Catalogue, index: LuceneIndex) -> None:
        self._catalogue = catalogue
        self._index = index

    @property
    def digest(self) -> str:
        """SHA-256 of all listings in order, in hexadecimal."""
        return self._catalogue.digest

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._catalogue)

    def __reduce__(self) -> tuple[Any, ...]:
        return searched_by_lucene, (self._catalogue,)

    def listing(self, number: int) -> Listing:
        """Return product number `number` with its requests."""
        return self._catalogue.listing(number)

    def number_of(self, asin: str) -> int:
        """Return the number of the product with this ASIN, ignoring case. Raises `KeyError` if there is none."""
        return self._catalogue.number_of(asin)

    def search(self, query: str, hits: int = HITS) -> list[int]:
        """Return the numbers of the best products for a query, best first."""
        return [self._catalogue.number_of(asin) for asin in self._index.find(query, hits)]

    def goal_table(self, kind: str) -> GoalTable:
        """Return the table of the goals of this kind. Raises `UnknownOption` if the kind is unknown."""
        return self._catalogue.goal_table(kind)


@lru_cache(maxsize=2)
def searched_by_lucene(catalogue: Catalogue) -> LuceneCatalogue:
    """Return a catalogue searched by Lucene; its index is built once and stored in the user's data folder.

    Raises:
        MissingExtra: pyserini or Java is not installed.
        BadIndex: the stored index cannot be opened.
    """
    folder = registry.home() / "lucene-by-asin" / catalogue.digest
    if folder.exists():
        return LuceneCatalogue(catalogue, LuceneIndex(folder))
    products = (catalogue.listing(number).product for number in range(len(catalogue)))
    documents = ((product.asin.upper(), product.index_text) for product in products)
    try:
        return LuceneCatalogue(catalogue, LuceneIndex.build(documents, folder))
    except OSError:
        if not folder.exists():
            raise
        return LuceneCatalogue(catalogue, LuceneIndex(folder))  # built by another process at the same time
