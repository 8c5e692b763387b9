"""Resumable imports: their progress, their state, and an exclusive database.

An import fills a folder (`files.resumed_folder`) and saves its state in a database in that folder, in the same
transaction as the data. A resumed import drops everything after the last commit.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util.file_state import file_digest
from agentgym_flow.errors import BadData
from agentgym_flow.retrieval.bm25 import BM25
from agentgym_flow.retrieval.builder import IndexBuilder


class ImportProgress(NamedTuple):
    """The progress of an import.

    Attributes:
        phase: the current phase, in one word.
        done: the completed work of the phase, in bytes of the source or number of items.
        total: the total work of the phase; 0 if unknown.
        documents: the number of documents imported so far.
    """

    phase: str
    done: int
    total: int
    documents: int


def exclusive_database(file: Path, *tables: str) -> sqlite3.Connection:
    """Open and lock the database of an import, with a table for its state and `tables`.

    Raises `sqlite3.Error`; see `database_errors`.
    """
    database = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        for setting in ("page_size = 8192", "locking_mode = EXCLUSIVE", "synchronous = NORMAL", "cache_size = -65536"):
            database.execute(f"PRAGMA {setting}")
        database.execute("BEGIN IMMEDIATE")  # locks the file until the connection closes
        for table in (*tables, "state (one INTEGER PRIMARY KEY, value TEXT)"):
            database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def database_errors(folder: Path) -> Iterator[None]:
    """Convert database errors of an import into `OSError` and `BadData` with the name of the folder."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise OSError(errno.EIO, str(error), str(folder)) from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise BadData(f"another process is importing into {folder}.partial; let it finish, or end it") from error
        raise BadData(f"{folder}.partial is damaged ({error}); remove it and import again") from error


class ImportState:
    """The state of an import. Call `save` in the same transaction as the data.

    Attributes:
        records: the number of records of the source that were read.
        offset: the byte after them.
        documents: the number of documents imported.
        digest: the digest of all documents, if `complete`.
        complete: whether the whole source was read.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.source: Any = None
        self.records = self.offset = self.documents = 0
        self.digest = ""
        self.complete = False
        row = database.execute("SELECT value FROM state").fetchone()
        if row is not None:
            self.__dict__.update(json.loads(row[0]))

    def save(self) -> None:
        """Write the state as part of the current transaction."""
        value = {name: value for name, value in self.__dict__.items() if name != "database"}
        self.database.execute("INSERT OR REPLACE INTO state VALUES (0, ?)", (json.dumps(value),))

    def check_source(self, files: Sequence[Path | None], *settings: Any) -> None:
        """Record the files and settings (JSON values, including the format version) of the import.

        Raises `BadData` if the import was started with other ones.
        """
        source = [*settings, [None if file is None else fingerprint(file) for file in files]]
        if self.source is None:
            self.source = source
            self.save()
        elif self.source != source:
            folder = Path(self.database.execute("PRAGMA database_list").fetchone()[2]).parent
            raise BadData(
                f"{folder} holds an unfinished import of other files or settings, or of another version; "
                "remove it, or name another folder"
            )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of the whole file, because a corrected record may be anywhere."""
    try:
        return file_digest(path)
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror}).") from error


def merge_runs(runs: Path, index: Path, documents: int, tell: Callable[[ImportProgress], object]) -> str:
    """Merge the runs into an index unless it exists, remove the runs, and return the digest of the index.

    Args:
        runs: the folder of an `IndexBuilder`.
        index: the folder of the index.
        documents: the expected number of documents.
        tell: called with the `ImportProgress` of the phase `index`.

    Raises `BadIndex` if the runs are damaged or have another number of documents, and `OSError`.
    """
    for left in index.parent.glob(f"{index.name}.*.partial"):  # from a killed process
        shutil.rmtree(left)
    if not index.exists():
        builder = IndexBuilder(runs)
        builder.rewind(documents)
        builder.finish(index, progress=lambda done, total: tell(ImportProgress("index", done, total, documents)))
    shutil.rmtree(runs, ignore_errors=True)
    return BM25.open(index, verify=False).digest
