"""Open SQLite files of this package: create them if missing, refuse files of another kind or version. Write to them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_flow.errors import BadData


def open_sqlite(
    path: Path, kind: str, tables: str, application: int, version: int, *, patience: float, exclusive: bool = False
) -> sqlite3.Connection:
    """Return a connection without implicit transactions, whose commits survive the end of the process.

    With `PRAGMA synchronous = FULL` commits survive a loss of power as well.

    Args:
        path: the file; its folder must exist.
        kind: what the file is, for messages.
        tables: SQL statements, separated by `;`, that create the tables of a new file.
        application: SQLite's application id, which identifies this kind of file.
        version: SQLite's user version, which identifies the layout.
        patience: seconds to wait until another process has finished writing.
        exclusive: prevent other processes from opening the file until the connection is closed.

    Raises:
        BadData: the file is of another kind or version.
        sqlite3.Error: it is damaged, locked by another process, or cannot be written.
    """
    file = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        if exclusive:
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
        if _is_empty(file):
            _write_ahead(file, patience)
            with transaction(file):
                if _is_empty(file):  # no other process was faster
                    numbers = f"PRAGMA application_id = {application}; PRAGMA user_version = {version}"
                    for statement in f"{tables};{numbers}".split(";"):
                        file.execute(statement)
        found = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if found != [application, version]:
            raise BadData(f"{path} is not a {kind} of this version; remove it or name another file")
        file.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def transaction(file: sqlite3.Connection) -> Iterator[None]:
    """Write what the block writes as a whole, or nothing if it raises."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:  # after some errors, such as that of a full disk, SQLite has rolled back itself
            file.execute("ROLLBACK")
        raise


def _is_empty(file: sqlite3.Connection) -> bool:
    return bool(file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,))


def _write_ahead(file: sqlite3.Connection, patience: float) -> None:
    """Switch on the write-ahead log. SQLite itself does not wait for another process here, so this function does."""
    deadline = time.monotonic() + patience
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
