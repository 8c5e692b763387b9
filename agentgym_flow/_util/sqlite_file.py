"""SQLite files of our own: made if they are not there, and refused if they are something else."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from agentgym_flow.errors import BadData


def open_sqlite(
    path: Path, kind: str, tables: str, application: int, version: int, *, patience: float, exclusive: bool = False
) -> sqlite3.Connection:
    """Return a connection without implicit transactions, in which a commit survives the end of the process.

    With `PRAGMA synchronous = FULL` a commit survives a loss of power as well.

    Args:
        path: the file; its folder must be there.
        kind: what the file is, for messages.
        tables: SQL statements, separated by `;`, that make the tables of a new file.
        application: the number in the file that says what it is.
        version: the number in the file that says how it is laid out.
        patience: seconds that one waits for another process to finish writing.
        exclusive: let no other process open the file until the connection is closed.

    Raises:
        BadData: the file is something else, or of another version.
        sqlite3.Error: it is damaged, held by another process, or cannot be written.
    """
    file = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        if exclusive:
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
        if _is_empty(file):
            _write_ahead(file, patience)
            file.execute("BEGIN IMMEDIATE")
            if _is_empty(file):  # no other process was faster
                numbers = f"PRAGMA application_id = {application}; PRAGMA user_version = {version}"
                for statement in f"{tables};{numbers}".split(";"):
                    file.execute(statement)
            file.execute("COMMIT")
        found = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if found != [application, version]:
            raise BadData(f"{path} is not a {kind} of this version; remove it or name another file")
        file.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        file.close()
        raise
    return file


def _is_empty(file: sqlite3.Connection) -> bool:
    return bool(file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,))


def _write_ahead(file: sqlite3.Connection, patience: float) -> None:
    """Turn the write-ahead log on: here SQLite does not wait for a file that another process holds, so this does."""
    deadline = time.monotonic() + patience
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
