"""Imports official files of any size into a store: in one pass, with bounded memory, resumable after a kill.

The import writes to `<folder>.partial`, which is renamed at the end. Whenever a run of the search index is complete,
the listings and the state of the import are committed together; a resumed import drops everything after the last
commit.

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

from agentgym_flow._util.files import resumed_folder
from agentgym_flow._util.records import stream_members, stream_objects
from agentgym_flow.data import content_digest, write_statement
from agentgym_flow.envs.webshop import store
from agentgym_flow.envs.webshop.catalogue import (
    KINDS,
    Listing,
    ListingDigest,
    asin_key,
    goal_table,
    listing_of,
    record_of,
)
from agentgym_flow.envs.webshop.goals import official_order
from agentgym_flow.envs.webshop.official import listings_of, read_side_file
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.retrieval import IndexBuilder
from agentgym_flow.retrieval.builder import (
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
_ASKS = {"synthetic": 1, "human": 2}  # bits for the kinds of requests of a listing
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
    """Import official files into a new store and open it. To resume a killed import, call it again.

    Args:
        items: the file of products.
        attributes: the file of attributes and synthetic instructions, if any.
        human: the file of human instructions, if any; it is read into memory.
        folder: the folder of the store.
        num_products: import only this number of records.
        progress: called from time to time with an `ImportProgress` whose phase is one of `PHASES`.

    Raises:
        BadData: a file cannot be read or is damaged; there are no products; an unfinished import is of other files,
            settings or another version; or another process is importing into the same folder.
        BadIndex: the index of an unfinished import is damaged.
        BadSetting: `num_products` is below 1.
        OSError: `folder` exists or cannot be written (a full disk); the unfinished import is kept.
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
            by_key = (number for (number,) in database.execute("SELECT number FROM asins ORDER BY key"))
            ranks = np.argsort(np.fromiter(by_key, np.int64, state.documents)).astype(np.int32)
            np.save(partial / store.TIES, ranks)
            goals = {kind: _write_goals(partial, database, kind, state.documents, tell) for kind in KINDS}
        # Left by a killed import; SQLite has already rolled it back.
        (partial / f"{store.LISTINGS}-journal").unlink(missing_ok=True)
        facts = {"format": store.STORE.format, "documents": state.documents, "index": index, "goals": goals}
        facts["records"] = state.records
        facts["arrays"] = {file.name: content_digest(file) for file in sorted(partial.glob("*.npy"))}
        write_statement(partial, store.STORE.kind, state.digest, facts)
    return store.StoredCatalogue(path)


def _database(partial: Path) -> sqlite3.Connection:
    """Open and lock the database of listings."""
    return exclusive_database(
        partial / store.LISTINGS,
        "listings (number INTEGER PRIMARY KEY, asks INTEGER, record BLOB)",
        "asins (key BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID",
    )


# ---------------------------------------------------------------- attributes
class _AttributeFile(Mapping[str, Any]):
    """The attribute file as a database: ASIN -> its entry."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __getitem__(self, asin: str) -> Any:
        key = asin.encode("utf-8", "surrogatepass")
        # Of repeated keys the last one counts, as in a dictionary.
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
    """Yield the contents of the attribute file from a database, which is created if necessary."""
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
class _ImportedAsins(set[str]):
    """The imported ASINs, which are in the database, not in memory."""

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__()
        self._database = database

    def __contains__(self, asin: object) -> bool:
        rows = self._database.execute("SELECT 1 FROM asins WHERE key = ?", (asin_key(str(asin)),))
        return rows.fetchone() is not None

    def add(self, asin: str) -> None:
        """Do nothing, because the import adds the ASIN with its listing."""


def _import_listings(
    items: Path,
    attributes: Mapping[str, Any],
    human: Mapping[str, Any],
    partial: Path,
    state: ImportState,
    num_products: int | None,
    tell: Callable[[ImportProgress], object],
) -> None:
    """Import the remaining products into the database and the runs of the index."""
    database, total = state.database, items.stat().st_size
    builder = IndexBuilder(partial / _RUNS)
    builder.rewind(state.documents)
    digest = ListingDigest()
    for record in store.records_of(database):  # the state of a SHA-256 computation cannot be stored
        digest.add(record)

    def records() -> Iterator[dict[str, Any]]:
        left = None if num_products is None else num_products - state.records
        for record, offset in islice(stream_objects(items, state.offset), left):
            state.records += 1
            state.offset = offset
            yield record

    tell(ImportProgress("listings", state.offset, total, state.documents))
    database.execute("BEGIN")
    # The value of `first` is fixed here, before the generator advances `state.records`.
    seen = _ImportedAsins(database)
    for listing in listings_of(records(), attributes, human, where=str(items), first=state.records, seen=seen):
        record = record_of(listing)
        asks = _ASKS["synthetic"] * (listing.synthetic is not None) | _ASKS["human"] * bool(listing.human)
        database.execute("INSERT INTO listings VALUES (?, ?, ?)", (state.documents, asks, zlib.compress(record)))
        key = asin_key(listing.product.asin)
        database.execute("INSERT OR REPLACE INTO asins VALUES (?, ?)", (key, state.documents))
        digest.add(record)
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


# ---------------------------------------------------------------- goals
def _write_goals(
    partial: Path, database: sqlite3.Connection, kind: str, documents: int, tell: Callable[[ImportProgress], object]
) -> int:
    """Write the goal table of a kind and the official order of its goals; return the number of goals."""

    def listings() -> Iterator[tuple[int, Listing]]:
        query = f"SELECT number, record FROM listings WHERE asks & {_ASKS[kind]} ORDER BY number"
        for count, (number, record) in enumerate(database.execute(query)):
            yield number, listing_of(zlib.decompress(record))
            if count % _STEP == 0:
                tell(ImportProgress("goals", KINDS.index(kind) * documents + number, len(KINDS) * documents, documents))

    table = goal_table(listings(), kind)
    for field, values in table._asdict().items():
        np.save(partial / store.table_file(kind, field), values)
    np.save(partial / store.table_file(kind, store.ORDER), official_order(table.total))
    tell(ImportProgress("goals", (KINDS.index(kind) + 1) * documents, len(KINDS) * documents, documents))
    return table.total
