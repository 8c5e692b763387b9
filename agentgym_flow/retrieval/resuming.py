"""What imports share that go on after a kill: how far one is, what it is of, and a database that one process has.

An import fills a folder (`files.resumed_folder`) and notes its state in a database of that folder, in one transaction
with what the state tells of. What was written after the last commit is dropped when the import is called again.
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
    """How far an import is.

    Attributes:
        phase: what it does now, in one word.
        done: of the phase's work: bytes of the source where one is read, else numbers of things.
        total: how much there is of it; 0 when that is not known.
        documents: documents imported so far.
    """

    phase: str
    done: int
    total: int
    documents: int


def exclusive_database(file: Path, *tables: str) -> sqlite3.Connection:
    """Open the database of an import for this process alone, with a table of its state and `tables`.

    Raises `sqlite3.Error`; see `database_errors`.
    """
    database = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        for setting in ("page_size = 8192", "locking_mode = EXCLUSIVE", "synchronous = NORMAL", "cache_size = -65536"):
            database.execute(f"PRAGMA {setting}")
        database.execute("BEGIN IMMEDIATE")  # from now on, other processes wait
        for table in (*tables, "state (one INTEGER PRIMARY KEY, value TEXT)"):
            database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def database_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of the database of an import into `folder` into `OSError` and `BadData` that name the folder."""
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
    """What is known of an import; `save` belongs into the transaction of what it tells.

    Attributes:
        records: records of the source that were read.
        offset: the byte after them.
        documents: documents made of them.
        digest: of all documents, when `complete`.
        complete: whether there is nothing more to read.
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
        """Write the state as part of the present transaction."""
        value = {name: value for name, value in self.__dict__.items() if name != "database"}
        self.database.execute("INSERT OR REPLACE INTO state VALUES (0, ?)", (json.dumps(value),))

    def check_source(self, files: Sequence[Path | None], *settings: Any) -> None:
        """Note what is imported: files, and JSON-able settings, among them the format of what is written.

        Raises `BadData` when the import was begun with something else.
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
    """Return the SHA-256 of a file, all of it: a record that was mended since is somewhere in the middle."""
    try:
        return file_digest(path)
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror}).") from error


def merge_runs(runs: Path, index: Path, documents: int, tell: Callable[[ImportProgress], object]) -> str:
    """Make the index of its runs unless it is there, remove the runs, and return the index's digest.

    Args:
        runs: the folder of an `IndexBuilder`.
        index: where the index will be.
        documents: how many the runs must have.
        tell: called with the `ImportProgress` of the phase `index`.

    Raises `BadIndex` when the runs are damaged or have other documents, and `OSError`.
    """
    for left in index.parent.glob(f"{index.name}.*.partial"):  # of a process that was killed
        shutil.rmtree(left)
    if not index.exists():
        builder = IndexBuilder(runs)
        builder.rewind(documents)
        builder.finish(index, progress=lambda done, total: tell(ImportProgress("index", done, total, documents)))
    shutil.rmtree(runs, ignore_errors=True)
    return BM25.open(index, verify=False).digest
