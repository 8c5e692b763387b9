"""Builds a folder with a corpus of any size and its index: in one pass, with bounded memory, resumable after a kill.

The build writes to `<folder>.partial`, which is renamed at the end. Whenever a run of the index is complete, the
passages and the state of the import are committed together; a resumed build drops everything after the last commit. If
the corpus is damaged, nothing is kept. Memory grows by about 50 bytes per passage.

`open_index` maps the folder. Its `store.json` states the `kind` of the index, `bm25`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np

from agentgym_flow._util.files import partial_folder, resumed_folder
from agentgym_flow.data import content_digest, write_statement
from agentgym_flow.errors import BadData, BadIndex
from agentgym_flow.retrieval.bm25 import BM25
from agentgym_flow.retrieval.builder import IndexBuilder
from agentgym_flow.retrieval.corpus import FilePosition, PassageDigest, record_of, same_id, stream_passages
from agentgym_flow.retrieval.lexical import LexicalRetriever
from agentgym_flow.retrieval.passage import Passage
from agentgym_flow.retrieval.resuming import (
    ImportProgress,
    ImportState,
    database_errors,
    exclusive_database,
    fingerprint,
    merge_runs,
)
from agentgym_flow.retrieval.stored import OFFSETS, PASSAGES, STORE, StoredCorpus

__all__ = ["PHASES", "ImportProgress", "build_index", "open_index"]

PHASES = ("passages", "index")
"""The phases of a build, in order: reading the corpus, and merging the runs of the index."""

_STEP = 1000  # passages between two reports
_IMPORT, _RUNS, _INDEX = "import.sqlite", "runs", "index"
_FIRST_CHECK = 1 << 16  # passages before the first check for repeated ids; the number doubles after each check


def build_index(
    corpus_file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    progress: Callable[[ImportProgress], object] | None = None,
) -> LexicalRetriever:
    """Build a new folder with a corpus and its BM25 index, and open it. To resume a killed build, call it again.

    Args:
        corpus_file: a file that `corpus.stream_passages` can read.
        folder: the folder of the index.
        progress: called from time to time with an `ImportProgress` whose phase is one of `PHASES`.

    Raises:
        BadData: the file cannot be read, is damaged or has no passage; two passages have the same id; an unfinished
            build is of another file or version; or another process is building the same folder.
        BadIndex: the index of an unfinished build is damaged.
        OSError: `folder` exists or cannot be written (a full disk); the unfinished build is kept.
    """
    source, path = Path(corpus_file), Path(os.path.abspath(folder))
    tell = progress or (lambda _: None)
    fingerprint(source)  # fails before any folder is created if the file cannot be read
    with _spoiled_by_source(path) as reading, resumed_folder(path) as partial, database_errors(path):
        with closing(exclusive_database(partial / _IMPORT)) as database:
            state = ImportState(database)
            state.check_source([source], STORE.format, "bm25")
            if not state.complete:
                with reading():
                    _import_passages(source, partial, state, tell)
            index = merge_runs(partial / _RUNS, partial / _INDEX, state.documents, tell)
        # Left by a killed build; SQLite has already rolled it back.
        (partial / f"{_IMPORT}-journal").unlink(missing_ok=True)
        facts = {"format": STORE.format, "documents": state.documents, "kind": "bm25", "index": index}
        write_statement(
            partial, STORE.kind, state.digest, {**facts, "arrays": {OFFSETS: content_digest(partial / OFFSETS)}}
        )
    return open_index(path)


@contextmanager
def _spoiled_by_source(path: Path) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yield a context for reading the source: if it raises `BadData`, `<path>.partial` is removed at the end.

    Otherwise a corrected source file would be refused, because it differs from that of the unfinished build.
    """
    spoiled = False

    @contextmanager
    def reading() -> Iterator[None]:
        nonlocal spoiled
        try:
            yield
        except BadData:
            spoiled = True
            raise

    try:
        yield reading
    finally:
        if spoiled:
            shutil.rmtree(partial_folder(path), ignore_errors=True)


def open_index(folder: str | os.PathLike[str], *, verify: bool = False) -> LexicalRetriever:
    """Return a retriever over a folder created by `build_index`, which is read on demand.

    Args:
        folder: the folder of the index.
        verify: read everything and compare the digests, which takes about a second per gigabyte.

    Raises `BadIndex` if the folder is missing, damaged, or of another version or kind.
    """
    corpus = StoredCorpus(folder)
    if corpus.statement["kind"] != "bm25":
        raise BadIndex(f"the index at {corpus.folder} is of the kind {corpus.statement['kind']!r}; known here: bm25")
    if verify:
        corpus.verify()
    index = BM25.open(corpus.folder / _INDEX, verify=verify)
    if index.digest != corpus.statement["index"]:
        raise BadIndex(f"the search index of {corpus.folder} belongs to another corpus; build it again")
    return LexicalRetriever(corpus, index)


def _import_passages(source: Path, partial: Path, state: ImportState, tell: Callable[[ImportProgress], object]) -> None:
    """Import the remaining passages into the file of passages and the runs of the index."""
    database = state.database
    total = 0 if source.suffix == ".gz" else source.stat().st_size  # the uncompressed size is unknown
    builder = IndexBuilder(partial / _RUNS)
    builder.rewind(state.documents)
    with ExitStack() as stack:
        passages = stack.enter_context(closing(_PassageFile(partial / PASSAGES, state.documents, f"{source}: ")))

        def commit() -> None:
            builder.flush()
            passages.sync()
            state.save()
            database.execute("COMMIT")

        database.execute("BEGIN")
        tell(ImportProgress("passages", state.offset, total, state.documents))
        start = FilePosition(state.offset, state.records, state.documents)
        for passage, (state.offset, state.records, state.documents) in stream_passages(source, start):
            passages.append(passage)
            builder.add(passage.index_text)
            if state.documents % _STEP == 0:
                tell(ImportProgress("passages", state.offset, total, state.documents))
            if builder.full:
                commit()
                database.execute("BEGIN")
        if not state.documents:
            raise BadData(f"{source}: the corpus has no passage")
        passages.check_names()
        np.save(partial / OFFSETS, np.array(passages.offsets, "<i8"))
        state.digest, state.complete = passages.digest.hexdigest(), True
        commit()
    tell(ImportProgress("passages", state.offset, total, state.documents))


class _PassageFile:
    """The file of passages during a build.

    Args:
        path: the file.
        documents: the number of passages to keep; the rest of the file is dropped.
        where: the beginning of the message for a repeated id.

    Attributes:
        offsets: the position of each passage in bytes, and the end of the last.
        digest: the digest of the passages.
    """

    def __init__(self, path: Path, documents: int, where: str) -> None:
        self.offsets = array("q", [0])
        self.digest = PassageDigest()
        self._names = array("Q")  # 64-bit hashes of the ids, because the ids may not fit into memory
        self._next_check = _FIRST_CHECK
        self._where = where
        self._file = path.open("r+b" if path.exists() else "w+b")
        try:
            for _ in range(documents):  # the state of a SHA-256 computation cannot be stored
                record = self._file.readline()
                self._count(json.loads(record)[0], record)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self.close()
            raise BadData(f"{path} is damaged ({error}); remove {path.parent} and build again") from None
        self._file.seek(self.offsets[-1])
        self._file.truncate()

    def append(self, passage: Passage) -> None:
        """Append a passage."""
        record = record_of(passage)
        self._file.write(record)
        self._count(passage.id, record)
        if len(self._names) == self._next_check:
            self.check_names()
            self._next_check *= 2

    def _count(self, name: str, record: bytes) -> None:
        self.digest.add_record(record)
        self.offsets.append(self.offsets[-1] + len(record))
        self._names.append(int.from_bytes(hashlib.blake2b(name.encode("utf-8"), digest_size=8).digest(), "little"))

    def check_names(self) -> None:
        """Raise `BadData` if two passages have the same id."""
        names = np.array(self._names, np.uint64)
        order = np.argsort(names, kind="stable")
        for at in np.flatnonzero(names[order[1:]] == names[order[:-1]]).tolist():
            first, second = order[at : at + 2].tolist()
            name = self._name(first)
            if name == self._name(second):  # not just a hash collision
                raise BadData(same_id(name, first, second, self._where))

    def _name(self, number: int) -> str:
        here = self._file.tell()
        self._file.seek(self.offsets[number])
        name = str(json.loads(self._file.readline())[0])
        self._file.seek(here)
        return name

    def sync(self) -> None:
        """Flush the file to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
