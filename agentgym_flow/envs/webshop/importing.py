"""Making a store of official files of any size: one pass over the products, in bounded memory, resumable after a kill.

The work is done in `<folder>.partial`, which gets the name `folder` at the end. There, listings and the state of the
import are committed together, every time a run of the search index has been written; what a kill leaves beyond the
last commit is dropped when the import is called again.

There are four phases:

- `attributes`: the attribute file as a small database, because it would take 0.7 GB in memory; begins again.
- `listings`: `listings.sqlite` and the runs of the index; goes on after the last commit.
- `index`: the index, merged from its runs; begins again.
- `goals`: the goal tables and the official orders; begins again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import resumed_folder
from agentgym_flow._util.json_stream import stream_members, stream_objects
from agentgym_flow.data import content_digest, write_statement
from agentgym_flow.envs.webshop import store
from agentgym_flow.envs.webshop.catalogue import ListingDigest
from agentgym_flow.envs.webshop.goal_table import KINDS, goal_table
from agentgym_flow.envs.webshop.goals import official_order
from agentgym_flow.envs.webshop.official import listings_of, read_side_file
from agentgym_flow.envs.webshop.product import Listing, asin_key
from agentgym_flow.envs.webshop.record import listing_of, record_of
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.retrieval import IndexBuilder
from agentgym_flow.retrieval.resuming import (
    ImportProgress,
    ImportState,
    database_errors,
    exclusive_database,
    merge_runs,
)

__all__ = ["PHASES", "ImportProgress", "import_catalogue"]

PHASES = ("attributes", "listings", "index", "goals")
"""The phases of an import in their order."""

_STEP = 1000  # documents between two reports
_ASKS = {"synthetic": 1, "human": 2}  # bits that say which requests a listing has
_ATTRIBUTES, _RUNS = "attributes.sqlite", "runs"


def import_catalogue(
    items: Path,
    attributes: Path | None,
    human: Path | None,
    folder: str | os.PathLike[str],
    *,
    num_products: int | None = None,
    progress: Callable[[ImportProgress], object] | None = None,
) -> store.StoredCatalogue:
    """Make a store of official files as a new folder and open it; call it again with the same files after a kill.

    Args:
        items: the file of products.
        attributes: the file of attributes and synthetic instructions, if there is one.
        human: the file of instructions that people wrote, if there is one; it is kept in memory.
        folder: where the store will be.
        num_products: import only the first so many records.
        progress: called with a `ImportProgress` now and then; its phase is one of `PHASES`.

    Raises:
        BadData: a file cannot be read or is damaged; there is no product in it; what an earlier call left is of other
            files or settings, or of another version; or another process is importing into the same folder.
        BadIndex: what an earlier call left of the index is damaged.
        BadSetting: `num_products` is below 1.
        OSError: something is at `folder` already, or it cannot be written (a full disk); what was done is kept.
    """
    if num_products is not None and num_products < 1:
        raise BadSetting(f"num_products must be at least 1, got {num_products}")
    most = None if num_products is None else min(num_products, sys.maxsize)  # more than `islice` can count is all
    tell = progress or (lambda _: None)
    path = Path(os.path.abspath(folder))
    with resumed_folder(path) as partial, database_errors(path):
        with closing(_database(partial)) as database:
            state = ImportState(database)
            state.check_source([items, attributes, human], store.STORE.format, most)
            if not state.complete:
                with _attributes(attributes, partial, tell) as known:
                    _import_listings(items, known, read_side_file(human), partial, state, most, tell)
            (partial / _ATTRIBUTES).unlink(missing_ok=True)
            index = merge_runs(partial / _RUNS, partial / store.INDEX, state.documents, tell)
            np.save(partial / store.TIES, _ties(database, state.documents))
            goals = {kind: _write_goals(partial, database, kind, state.documents, tell) for kind in KINDS}
        # A killed import leaves one; it was played back when the database was opened again, and nothing needs it now.
        (partial / f"{store.LISTINGS}-journal").unlink(missing_ok=True)
        facts = {"format": store.STORE.format, "documents": state.documents, "index": index, "goals": goals}
        facts["arrays"] = {file.name: content_digest(file) for file in sorted(partial.glob("*.npy"))}
        write_statement(partial, store.STORE.kind, state.digest, facts)
    return store.StoredCatalogue(path)


def _database(partial: Path) -> sqlite3.Connection:
    """Open the database of listings, for this process alone."""
    return exclusive_database(
        partial / store.LISTINGS,
        "listings (number INTEGER PRIMARY KEY, asks INTEGER, record BLOB)",
        "asins (key BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID",
    )


# ---------------------------------------------------------------- attributes
class _AttributeFile(Mapping[str, Any]):
    """The attribute file as a database: ASIN -> what it says."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __getitem__(self, asin: str) -> Any:
        key = asin.encode("utf-8", "surrogatepass")
        # The last of several, as a dictionary would have it.
        rows = self._database.execute("SELECT value FROM known WHERE asin = ? ORDER BY rowid DESC LIMIT 1", (key,))
        row = rows.fetchone()
        if row is None:
            raise KeyError(asin)
        return json.loads(row[0])

    def __iter__(self) -> Iterator[str]:
        rows = self._database.execute("SELECT DISTINCT asin FROM known")
        return (asin.decode("utf-8", "surrogatepass") for (asin,) in rows)

    def __len__(self) -> int:
        return int(self._database.execute("SELECT count(DISTINCT asin) FROM known").fetchone()[0])


@contextmanager
def _attributes(
    path: Path | None, partial: Path, tell: Callable[[ImportProgress], object]
) -> Iterator[Mapping[str, Any]]:
    """Give the contents of the attribute file, from a database that is made if it is not there."""
    if path is None:
        yield {}
        return
    file = partial / _ATTRIBUTES
    if not file.exists():
        begun = file.with_suffix(".partial")
        begun.unlink(missing_ok=True)
        with closing(sqlite3.connect(begun, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.execute("CREATE TABLE known (asin BLOB, value TEXT)")
            database.execute("BEGIN")
            database.executemany("INSERT INTO known VALUES (?, ?)", _members(path, tell))
            database.execute("COMMIT")
            database.execute("CREATE INDEX known_asin ON known (asin)")
        begun.rename(file)
    with closing(sqlite3.connect(file)) as database:
        yield _AttributeFile(database)


def _members(path: Path, tell: Callable[[ImportProgress], object]) -> Iterator[tuple[bytes, str]]:
    count = 0
    for asin, value in stream_members(path):
        yield asin.encode("utf-8", "surrogatepass"), json.dumps(value)
        count += 1
        if count % _STEP == 0:
            tell(ImportProgress("attributes", count, 0, 0))
    tell(ImportProgress("attributes", count, count, 0))


# ---------------------------------------------------------------- listings and the index
class _Seen(set[str]):
    """The ASINs that were imported; they are looked up, not kept."""

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__()
        self._database = database

    def __contains__(self, asin: object) -> bool:
        rows = self._database.execute("SELECT 1 FROM asins WHERE key = ?", (asin_key(str(asin)),))
        return rows.fetchone() is not None

    def add(self, asin: str) -> None:
        """Do nothing: the import adds the ASIN with its listing."""


def _import_listings(
    items: Path,
    attributes: Mapping[str, Any],
    human: Mapping[str, Any],
    partial: Path,
    state: ImportState,
    num_products: int | None,
    tell: Callable[[ImportProgress], object],
) -> None:
    """Read the products that were not read yet into the database and into runs of the index."""
    database, total = state.database, items.stat().st_size
    builder = IndexBuilder(partial / _RUNS)
    builder.rewind(state.documents)
    digest = ListingDigest()
    for record in store.records_of(database):  # a digest cannot be stored half done
        digest.add_record(record)

    def records() -> Iterator[dict[str, Any]]:
        left = None if num_products is None else num_products - state.records
        for record, offset in islice(stream_objects(items, state.offset), left):
            state.records += 1
            state.offset = offset
            yield record

    tell(ImportProgress("listings", state.offset, total, state.documents))
    database.execute("BEGIN")
    # `first` is where this call begins; the generator has not moved on yet.
    found = listings_of(records(), attributes, human, where=str(items), first=state.records, seen=_Seen(database))
    for listing in found:
        record = record_of(listing)
        _insert(database, state.documents, listing, record)
        digest.add_record(record)
        builder.add(listing.product.index_text)
        state.documents += 1
        if state.documents % _STEP == 0:
            tell(ImportProgress("listings", state.offset, total, state.documents))
        if builder.full:
            builder.flush()
            state.save()
            database.execute("COMMIT")
            database.execute("BEGIN")
    if not state.documents:
        raise BadData(f"{items}: the catalogue has no product.")
    builder.flush()
    state.digest, state.complete = digest.hexdigest(), True
    state.save()
    database.execute("COMMIT")
    tell(ImportProgress("listings", total, total, state.documents))


def _insert(database: sqlite3.Connection, number: int, listing: Listing, record: bytes) -> None:
    asks = _ASKS["synthetic"] * (listing.synthetic is not None) | _ASKS["human"] * bool(listing.human)
    database.execute("INSERT INTO listings VALUES (?, ?, ?)", (number, asks, zlib.compress(record)))
    database.execute("INSERT OR REPLACE INTO asins VALUES (?, ?)", (asin_key(listing.product.asin), number))


def _ties(database: sqlite3.Connection, documents: int) -> npt.NDArray[np.int32]:
    """Return (documents,): the rank of each product by its `asin_key`."""
    ties = np.empty(documents, np.int32)
    numbers = (number for (number,) in database.execute("SELECT number FROM asins ORDER BY key"))
    ties[np.fromiter(numbers, np.int32, documents)] = np.arange(documents, dtype=np.int32)
    return ties


# ---------------------------------------------------------------- goals
def _write_goals(
    partial: Path, database: sqlite3.Connection, kind: str, documents: int, tell: Callable[[ImportProgress], object]
) -> int:
    """Write the goal table of a kind and the official order of its goals; return how many there are."""

    def listings() -> Iterator[tuple[int, Listing]]:
        query = f"SELECT number, record FROM listings WHERE asks & {_ASKS[kind]} ORDER BY number"
        for count, (number, record) in enumerate(database.execute(query)):
            yield number, listing_of(zlib.decompress(record))
            if count % _STEP == 0:
                tell(ImportProgress("goals", KINDS.index(kind) * documents + number, len(KINDS) * documents, documents))

    table = goal_table(listings(), kind)
    for field, values in table._asdict().items():
        np.save(partial / store.table_file(kind, field), values)
    count = int(table.ends[-1]) if len(table.ends) else 0
    np.save(partial / store.table_file(kind, store.ORDER), official_order(count))
    tell(ImportProgress("goals", (KINDS.index(kind) + 1) * documents, len(KINDS) * documents, documents))
    return count
