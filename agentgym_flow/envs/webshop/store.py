"""Catalogues on disk: a store of any size, and a catalogue that Lucene searches.

A store has listings in SQLite, and a memory-mapped search index and goal tables. `importing.import_catalogue` writes
the folder, which never changes afterwards. All environments of a process share one `StoredCatalogue`, and all processes
share the cached pages of its files.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from agentgym_flow import data as registry
from agentgym_flow._util.sharing import Shared
from agentgym_flow.data import StoreKind, content_digest, read_statement, reopened
from agentgym_flow.envs.webshop.catalogue import (
    HITS,
    KINDS,
    Catalogue,
    GoalTable,
    Listing,
    ListingDigest,
    asin_key,
    listing_of,
)
from agentgym_flow.errors import BadData, UnknownOption
from agentgym_flow.retrieval import BM25
from agentgym_flow.retrieval.index_files import mapped_array
from agentgym_flow.retrieval.lucene import LuceneIndex

STORE = StoreKind(
    kind="webshop",
    format=2,  # includes everything that determines the content: how listings are parsed, recorded and counted
    facts={"documents": int, "index": str, "goals": dict, "arrays": dict},
    name="store of a catalogue",
    command="agentgym-flow data import webshop SOURCE FOLDER",
)
"""The statement in the folder of a store."""

LISTINGS, INDEX, TIES, ORDER = "listings.sqlite", "index", "ties.npy", "order"
"""The files of a store. A goal table has a file for each field, and one for the official `order` of its goals.

`ties.npy` has the rank of each product by `asin_key`.
"""

CACHED = 2048
"""The number of cached listings, about 20 MB."""


def table_file(kind: str, field: str) -> str:
    """Return the name of the file for a field of the goal table of a kind, or for the order of its goals."""
    return f"{kind}.{field}.npy"


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a store. Raises `BadData` if it is a damaged store."""
    statement = read_statement(Path(path))
    return statement is not None and statement["agentgym_flow"] == STORE.kind


class StoredCatalogue(Shared):
    """The catalogue of a store. Safe in threads and after a fork.

    A pickle contains the name of the folder and the digest. Opening takes milliseconds and reads no listings.

    Args:
        folder: the folder of the store.

    Attributes:
        digest: SHA-256 of all listings in order, computed by the import.

    Raises:
        BadData: there is no store at `folder`, it is damaged, or of another version.
        BadIndex: its search index is damaged.
    """

    KIND: ClassVar[StoreKind] = STORE

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).resolve()
        self._statement = STORE.statement(self._folder)
        self.digest: str = self._statement["digest"]
        ties = self._array(TIES)
        if ties.shape != (len(self),):
            raise BadData(f"the search index of {self._folder} belongs to another store; make the store again")
        self._index = BM25.open(self._folder / INDEX, ties=ties, verify=False)
        if (len(self._index), self._index.digest) != (len(self), self._statement["index"]):
            raise BadData(f"the search index of {self._folder} belongs to another store; make the store again")
        self._local = threading.local()
        self._tables = {
            kind: GoalTable(*(self._array(table_file(kind, field)) for field in GoalTable._fields)) for kind in KINDS
        }
        self._orders = {kind: self._array(table_file(kind, ORDER)) for kind in KINDS}
        self._cached = lru_cache(maxsize=CACHED)(self._read)

    def __len__(self) -> int:
        """Return the number of products."""
        return int(self._statement["documents"])

    @property
    def left_out(self) -> int:
        """The number of records that are not products, see `listings_of`; 0 for a store that does not state it."""
        return int(self._statement.get("records", len(self))) - len(self)

    def __repr__(self) -> str:
        return f"<StoredCatalogue of {len(self):,} products>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (type(self), str(self._folder), self.digest)

    def listing(self, number: int) -> Listing:
        """Return product number `number` with its requests. Raises `IndexError` if there is none."""
        return self._cached(int(number))

    def _read(self, number: int) -> Listing:
        row = self._connection().execute("SELECT record FROM listings WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise IndexError(f"there are {len(self)} products, so none has the number {number}")
        try:
            return listing_of(zlib.decompress(row[0]))
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            raise BadData(
                f"product {number} of {self._folder / LISTINGS} is damaged ({error}); make the store again"
            ) from None

    def number_of(self, asin: str) -> int:
        """Return the number of the product with this ASIN, ignoring case. Raises `KeyError` if there is none."""
        row = self._connection().execute("SELECT number FROM asins WHERE key = ?", (asin_key(asin),)).fetchone()
        if row is None:
            raise KeyError(asin)
        return int(row[0])

    def search(self, query: str, hits: int = HITS) -> list[int]:
        """Return the numbers of the best products for a query, best first."""
        return [hit.document for hit in self._index.search(query, hits)]

    def goal_table(self, kind: str) -> GoalTable:
        """Return the table of the goals of this kind. Raises `UnknownOption` if the kind is unknown."""
        if kind not in KINDS:
            raise UnknownOption.among(kind, KINDS)
        return self._tables[kind]

    def official_order(self, kind: str) -> npt.NDArray[np.int64]:
        """Return the official order of the goals of this kind, mapped: index -> number of the goal.

        Raises `UnknownOption` if the kind is unknown.
        """
        if kind not in KINDS:
            raise UnknownOption.among(kind, KINDS)
        return self._orders[kind]

    def verify(self) -> None:
        """Read the whole store and compare its digests, which takes half a minute for a million products.

        Raises `BadData` or `BadIndex` if they differ.
        """
        digest = ListingDigest()
        try:
            for record in records_of(self._connection()):
                digest.add(record)
        except (zlib.error, sqlite3.Error) as error:
            raise BadData(f"{self._folder / LISTINGS} is damaged ({error}); make the store again") from error
        if digest.hexdigest() != self.digest:
            raise BadData(f"{self._folder / LISTINGS} does not have the digest that it was made with; make it again")
        for name, stated in self._statement["arrays"].items():
            if content_digest(self._folder / name) != stated:
                raise BadData(f"{self._folder / name} does not have the digest that it was made with; make it again")
        BM25.open(self._folder / INDEX, verify=True)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return mapped_array(self._folder / name, "make the store again", BadData)

    def _connection(self) -> sqlite3.Connection:
        """Return the read-only connection of this thread and process; SQLite's must not be used after a fork.

        Raises `BadData` if the folder has been replaced by another store, or the listings cannot be read.
        """
        # Connections of the parent process are kept, because this process must not close them.
        mine: dict[int, sqlite3.Connection] = self._local.__dict__.setdefault("connections", {})
        if (connection := mine.get(os.getpid())) is not None:
            return connection
        if STORE.statement(self._folder)["digest"] != self.digest:
            raise BadData(f"the store at {self._folder} was replaced by another since it was opened; open it again")
        file = self._folder / LISTINGS
        try:
            # `immutable` disables locks and journals. The connection of a finished thread is garbage-collected.
            connection = sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True, check_same_thread=False)
            connection.execute(f"PRAGMA mmap_size = {1 << 40}")  # bytes; SQLite lowers this to its maximum
            connection.execute("SELECT number FROM listings LIMIT 1")
        except sqlite3.Error as error:
            raise BadData(f"{file} cannot be read ({error}); make the store again") from error
        mine[os.getpid()] = connection
        return connection


def records_of(connection: sqlite3.Connection, *, since: int = 0) -> Iterator[bytes]:
    """Yield the records of the listings in order, from number `since`."""
    for (record,) in connection.execute("SELECT record FROM listings WHERE number >= ? ORDER BY number", (since,)):
        yield zlib.decompress(record)


class LuceneCatalogue(Shared):
    """The products of another catalogue, searched by Lucene.

    Args:
        catalogue: the products.
        index: a Lucene index of their `index_text`, with their ASINs in upper case as ids.
    """

    def __init__(self, catalogue: Catalogue, index: LuceneIndex) -> None:
        self._catalogue = catalogue
        self._index = index
        self.digest = catalogue.digest
        self.listing, self.number_of, self.goal_table = catalogue.listing, catalogue.number_of, catalogue.goal_table

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._catalogue)

    def __reduce__(self) -> tuple[Any, ...]:
        return searched_by_lucene, (self._catalogue,)

    def search(self, query: str, hits: int = HITS) -> list[int]:
        """Return the numbers of the best products for a query, best first."""
        return [self.number_of(asin) for asin in self._index.find(query, hits)]


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
