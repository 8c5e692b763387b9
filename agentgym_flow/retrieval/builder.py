"""Builds large indexes with bounded memory; a killed build or import can be resumed.

An index is built in segments on disk. An import fills a folder (`files.resumed_folder`) and saves its state in a
database in that folder, in the same transaction as the data; a resumed import drops everything after the last commit.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentgym_flow._util.files import check_free, file_digest, named_in_errors, write_folder_atomically
from agentgym_flow.errors import BadData, BadIndex
from agentgym_flow.retrieval.bm25 import BM25, PROGRESS_EVERY
from agentgym_flow.retrieval.index_files import (
    IndexSegment,
    MergedSegments,
    SegmentBuilder,
    check_settings,
    mapped_array,
    write_folder,
)

RUN_TERMS = 1 << 22
"""The size of a full run in terms, with repetitions: 34,000 product descriptions, which need 150 MB of memory."""


class IndexBuilder:
    """Indexes texts in runs that are written to disk one after the other; `finish` merges them into an index.

    The index is byte-identical to that of `BM25.build(texts).save(folder)`. A builder on a folder with runs continues
    after their last document; the caller passes the texts from there on.

    Args:
        folder: the folder of the runs, which is created if necessary. Remove it after `finish`.

    Attributes:
        documents: the number of documents on disk.

    Raises `BadIndex` if the runs in the folder are inconsistent, and `OSError` with the name of the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        with named_in_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for left in self._folder.glob("*.partial"):  # from a killed process
                shutil.rmtree(left)
        self.documents = sum(len(run.lengths) for run in self._runs())
        self._gathered = SegmentBuilder(self.documents)

    def __len__(self) -> int:
        """Return the number of documents, including those that are not on disk yet."""
        return self.documents + len(self._gathered)

    @property
    def full(self) -> bool:
        """Whether the run in memory is full, so that `flush` should be called."""
        return self._gathered.size >= RUN_TERMS

    def add(self, text: str) -> None:
        """Add the next document."""
        self._gathered.add(text)

    def flush(self) -> None:
        """Write the documents since the last call as a run. Raises `OSError` with its name if it cannot be written."""
        if len(self._gathered):
            run = self._gathered.run()
            with write_folder_atomically(self._folder / f"{self.documents:010d}") as partial:
                for name, values in run._asdict().items():
                    np.save(partial / f"{name}.npy", values)
            self.documents += len(self._gathered)
            self._gathered = SegmentBuilder(self.documents)

    def rewind(self, documents: int) -> None:
        """Drop everything after the first `documents` documents. Raises `BadIndex` if no run ends there."""
        for folder in self._folders():
            if int(folder.name) >= documents:
                with named_in_errors(folder):
                    shutil.rmtree(folder)
        self.documents = sum(len(run.lengths) for run in self._runs())
        if self.documents != documents:
            raise BadIndex(f"{self._folder} holds {self.documents} documents where {documents} should be; remove it")
        self._gathered = SegmentBuilder(documents)

    def finish(
        self,
        folder: str | os.PathLike[str],
        *,
        k1: float = 0.9,
        b: float = 0.4,
        progress: Callable[[int, int], object] | None = None,
    ) -> str:
        """Write the index of all documents to a new folder, atomically, and return its digest. The runs are kept.

        Args:
            folder: the folder of the index.
            k1: as in `BM25.build`.
            b: as in `BM25.build`.
            progress: called from time to time with the number of merged postings and their total.

        Raises:
            BadData: there is no document.
            BadSetting: `k1` or `b` is out of range.
            OSError: `folder` exists or cannot be written.
        """
        self.flush()
        merged = MergedSegments(self._runs(), k1, b)
        return write_folder(folder, merged.sizes, merged.pieces(progress), merged.settings)

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if path.name.isdigit())

    def _runs(self) -> list[IndexSegment]:
        """Return the runs on disk in order, mapped."""
        found: list[IndexSegment] = []
        documents = 0
        for folder in self._folders():
            if int(folder.name) != documents:
                raise BadIndex(f"a run is missing before {folder}; remove {self._folder} and begin again")
            remedy = f"{folder} is damaged: remove {self._folder} and begin again"
            found.append(IndexSegment(*(mapped_array(folder / f"{name}.npy", remedy) for name in IndexSegment._fields)))
            documents += len(found[-1].lengths)
        return found


def build_folder(
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    *,
    k1: float = 0.9,
    b: float = 0.4,
    progress: Callable[[int], object] | None = None,
) -> str:
    """Index any number of texts into a new folder for `BM25.open`, and return the digest of the index.

    The runs are in `<folder>.runs` until the index is complete. To resume a killed build, call the function again with
    the same texts; the texts on disk are skipped. To index other texts, remove that folder first.

    Args:
        texts: one text per document; the first is document 0.
        folder: the folder of the index, which is created atomically.
        k1: as in `BM25.build`.
        b: as in `BM25.build`.
        progress: called with the number of documents indexed, every `PROGRESS_EVERY` documents and at the end.

    Raises:
        BadData: there is no document.
        BadSetting: `k1` or `b` is out of range.
        BadIndex: the runs of an earlier call are damaged.
        OSError: `folder` exists or cannot be written.
    """
    check_settings(k1, b)
    check_free(Path(folder))
    runs = Path(f"{os.fspath(folder)}.runs")
    builder = IndexBuilder(runs)
    for text in islice(texts, builder.documents, None):
        builder.add(text)
        if builder.full:
            builder.flush()
        if progress and len(builder) % PROGRESS_EVERY == 0:
            progress(len(builder))
    if progress and len(builder):
        progress(len(builder))
    digest = builder.finish(folder, k1=k1, b=b)
    shutil.rmtree(runs)
    return digest


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
