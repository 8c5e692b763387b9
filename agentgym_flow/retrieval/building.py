"""Builds and opens folders with a corpus and its retriever of one of three kinds: BM25, dense and hybrid.

A folder has a corpus of any size and its BM25 index (its `store.json` states the `kind` of the index, `bm25`). Its
subfolder `dense` has the vectors, if there are any. Corpus and index are built in one pass, with bounded memory, in
`<folder>.partial`, which is renamed at the end. Whenever a segment of the index is complete, the passages and the state
of the import are committed together; a build that is resumed after a kill drops everything after the last commit. If
the corpus is damaged, nothing is kept. Memory grows by about 50 bytes per passage.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from agentgym_flow._util.files import partial_folder, resumed_folder
from agentgym_flow.data import content_digest, write_statement
from agentgym_flow.errors import BadData, BadIndex, BadSetting, UnknownOption
from agentgym_flow.retrieval.bm25 import BM25
from agentgym_flow.retrieval.builder import (
    ImportProgress,
    ImportState,
    IndexBuilder,
    database_errors,
    exclusive_database,
    fingerprint,
    merge_runs,
)
from agentgym_flow.retrieval.corpus import (
    OFFSETS,
    PASSAGES,
    STORE,
    FilePosition,
    Passage,
    Retriever,
    StoredCorpus,
    record_of,
    same_id,
    stream_passages,
)
from agentgym_flow.retrieval.encoder import MiniLMEncoder
from agentgym_flow.retrieval.retrievers import DenseRetriever, HybridRetriever, LexicalRetriever, build_dense
from agentgym_flow.retrieval.vectors import check_kind, finished_kinds

KINDS = ("bm25", "dense", "hybrid")
"""The kinds of retriever. `hybrid` fuses the rankings of the other two."""

VECTORS = "dense"
"""The subfolder of the vectors, and the name of the build phase that computes them."""


def build_retriever(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    kind: str = "bm25",
    index: str | None = None,
    progress: Callable[[ImportProgress], object] | None = None,
) -> Retriever:
    """Build a folder for `open_retriever`, and open it. To resume a killed build, call the function again.

    Args:
        source: the corpus, see `build_index`.
        folder: the folder. Vectors can be added to an existing folder, without reading `source` again.
        kind: one of `KINDS`.
        index: the index of the vectors, one of `vectors.KINDS`; None for the default for this number of passages.
        progress: called from time to time with an `ImportProgress`; the phases are `PHASES`, then `dense`.

    Raises:
        UnknownOption: the kind or the index is unknown.
        BadSetting: an index of vectors is given for a kind without vectors.
        MissingExtra: a package for vectors is not installed.
        Others: like `build_index` and `retrievers.build_dense`.
    """
    _check(kind, index)
    if kind == "bm25":
        return build_index(source, folder, progress=progress)

    encoder = MiniLMEncoder()  # before reading the corpus, so that a missing extra is reported early
    finished = Path(folder).is_dir() and any(Path(folder).iterdir())
    words = open_index(folder) if finished else build_index(source, folder, progress=progress)
    total = len(words.corpus)
    tell = progress or (lambda _: None)
    build_dense(
        words.corpus,
        encoder,
        Path(folder) / VECTORS,
        kind=index,
        progress=lambda done: tell(ImportProgress(VECTORS, done, total, done)),
    )
    return open_retriever(folder, kind=kind, index=index)


def open_retriever(
    folder: str | os.PathLike[str], *, kind: str = "bm25", index: str | None = None, verify: bool = False
) -> Retriever:
    """Return a retriever over a folder created by `build_retriever`.

    Args:
        folder: the folder.
        kind: one of `KINDS`.
        index: the index of the vectors, as for `build_retriever`; None for the only approximate index in the folder, or
            if there are none or several, for the default for this number of passages.
        verify: read everything and compare the digests.

    Raises:
        UnknownOption: the kind or the index is unknown.
        BadSetting: an index of vectors is given for a kind without vectors.
        MissingExtra: a package for vectors is not installed.
        BadData: the folder is missing or damaged.
        BadIndex: an index in the folder is missing or damaged.
    """
    _check(kind, index)
    words = open_index(folder, verify=verify)
    if kind == "bm25":
        return words

    place = Path(folder) / VECTORS
    built = finished_kinds(place)
    chosen = built[0] if index is None and len(built) == 1 else index
    vectors = DenseRetriever.open(place, words.corpus, MiniLMEncoder(), kind=chosen, verify=verify)
    return vectors if kind == "dense" else HybridRetriever([words, vectors])


def _check(kind: str, index: str | None) -> None:
    if kind not in KINDS:
        raise UnknownOption.among(kind, KINDS, "These are the kinds of retriever.")
    if index is None:
        return

    check_kind(index)
    if kind == "bm25":
        raise BadSetting(
            f"bm25 has no vectors, so there is no index {index!r} of them; choose the kind dense or hybrid"
        )


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
    damaged = False
    try:
        with resumed_folder(path) as partial, database_errors(path):
            with closing(exclusive_database(partial / _IMPORT)) as database:
                state = ImportState(database)
                state.check_source([source], STORE.format, "bm25")
                try:
                    if not state.complete:
                        _import_passages(source, partial, state, tell)
                except BadData:
                    damaged = True
                    raise
                index = merge_runs(partial / _RUNS, partial / _INDEX, state.documents, tell)
            # Left by a killed build; SQLite has already rolled it back.
            (partial / f"{_IMPORT}-journal").unlink(missing_ok=True)
            facts = {"format": STORE.format, "documents": state.documents, "kind": "bm25", "index": index}
            facts["arrays"] = {OFFSETS: content_digest(partial / OFFSETS)}
            write_statement(partial, STORE.kind, state.digest, facts)
    finally:
        if damaged:  # otherwise the corrected file would be refused, because it is not that of the unfinished build
            shutil.rmtree(partial_folder(path), ignore_errors=True)
    return open_index(path)


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
        self.digest = hashlib.sha256()
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
        self.digest.update(record)
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
