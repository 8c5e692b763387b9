"""A cache of a retriever's answers on disk, shared by threads, processes and later runs.

The cache is one SQLite file. The key of an answer consists of the identity of the retriever, the query and the number
of passages. Errors of the cache during use (a full disk, a lock timeout, a damaged page) never fail a search: they are
recorded in `trouble`, and the retriever is queried.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agentgym_flow._util.files import named_in_errors
from agentgym_flow._util.sharing import Lock, Shared
from agentgym_flow._util.sqlite_file import open_sqlite, transaction
from agentgym_flow.core import canonical
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.retrieval.passage import Hit, Passage

T = TypeVar("T")

MAX_BYTES = 256 << 20
"""The default limit of the total size of all answers."""

PATIENCE = 5.0
"""Seconds to wait for another process to finish writing."""

_APPLICATION = 0x41474671
_VERSION = 1
_TABLES = """
CREATE TABLE answers (number INTEGER PRIMARY KEY, key BLOB UNIQUE NOT NULL, answer BLOB NOT NULL);
CREATE TABLE size (bytes INTEGER NOT NULL);
INSERT INTO size VALUES (0)
"""


class QueryCache(Shared):
    """A file of answers. Safe in threads and processes; a pickle opens the same file.

    If the answers exceed the limit, the oldest are removed. The file is somewhat larger than its answers, and does not
    shrink.

    Args:
        path: the file, which is created if necessary.
        max_bytes: the limit of the total size of all answers.

    Attributes:
        trouble: the error message of the last failed access; empty if none has failed.

    Raises:
        BadData: the file has another format or version.
        BadSetting: `max_bytes` is below 1.
        OSError: the folder cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> None:
        if max_bytes < 1:
            raise BadSetting(f"a query cache holds 1 byte or more, not {max_bytes}")
        self.path, self.max_bytes = Path(path), max_bytes
        self.trouble = ""
        self._lock = Lock()
        self._process = os.getpid()
        with named_in_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file: sqlite3.Connection | None = self._opened()
        except sqlite3.Error as error:
            raise BadData(f"{self.path} cannot be used as a query cache: {error}; name another file") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def get(self, identity: str, queries: Sequence[str], topk: int) -> list[list[Hit] | None]:
        """Return for each query the cached answer, or None."""
        keys = [_key(identity, query, topk) for query in queries]

        def read(file: sqlite3.Connection) -> list[list[Hit] | None]:
            rows = (file.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone() for key in keys)
            return [
                None if row is None else [Hit(Passage(*names), float(score)) for *names, score in json.loads(row[0])]
                for row in rows
            ]

        return self._try(read, [None] * len(keys))

    def put(self, identity: str, topk: int, answers: Iterable[tuple[str, list[Hit]]]) -> None:
        """Store pairs of a query and its results. Existing answers are kept."""
        rows = [
            (_key(identity, query, topk), json.dumps([[*one.passage, one.score] for one in found]).encode("ascii"))
            for query, found in answers
        ]
        rows = [row for row in rows if len(row[1]) <= self.max_bytes]

        def write(file: sqlite3.Connection) -> None:
            with transaction(file):
                (size,) = file.execute("SELECT bytes FROM size").fetchone()
                for key, answer in rows:
                    added = file.execute("INSERT OR IGNORE INTO answers (key, answer) VALUES (?, ?)", (key, answer))
                    size += len(answer) * added.rowcount
                file.execute("UPDATE size SET bytes = ?", (self._shrunk(file, size),))

        self._try(write, None)

    def __len__(self) -> int:
        """Return the number of answers."""
        return self._try(lambda file: int(file.execute("SELECT count(*) FROM answers").fetchone()[0]), 0)

    @property
    def size(self) -> int:
        """The total size of all answers in bytes."""
        return self._try(lambda file: int(file.execute("SELECT bytes FROM size").fetchone()[0]), 0)

    def close(self) -> None:
        """Close the file. The next access opens it again."""
        with self._lock:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file = None

    def _shrunk(self, file: sqlite3.Connection, size: int) -> int:
        while size > self.max_bytes:
            number, length = file.execute(
                "SELECT number, length(answer) FROM answers ORDER BY number LIMIT 1"
            ).fetchone()
            file.execute("DELETE FROM answers WHERE number = ?", (number,))
            size -= length
        return size

    def _try(self, use: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        with self._lock:
            try:
                if self._file is None or self._process != os.getpid():
                    self._file = self._opened()  # SQLite connections must not be used after a fork
                    self._process = os.getpid()
                return use(self._file)
            except (sqlite3.Error, BadData, ValueError, TypeError) as error:
                self.trouble = f"{type(error).__name__}: {error}"
                return otherwise

    def _opened(self) -> sqlite3.Connection:
        return open_sqlite(self.path, "query cache", _TABLES, _APPLICATION, _VERSION, patience=PATIENCE)


def _key(identity: str, query: str, topk: int) -> bytes:
    return hashlib.sha256(canonical([identity, query, topk])).digest()
