"""Making a folder of a corpus of any size and its index: one pass, in bounded memory, resumable after a kill.

The work is done in `<folder>.partial`, which gets the name `folder` at the end. There, the passages are committed
together with the state of the import, every time a run of the index has been written; what a kill leaves beyond the
last commit is dropped when the build is called again. Of a damaged corpus nothing is kept. Memory grows with the number
of passages, by some 50 bytes each.

`open_index` maps the folder back. Its `store.json` says the `kind` of the index, `bm25`.
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
"""The phases of a build in their order: reading the corpus, and merging the index from its runs."""

_STEP = 1000  # passages between two reports
_IMPORT, _RUNS, _INDEX = "import.sqlite", "runs", "index"
_FIRST_CHECK = 1 << 16  # passages after which names are first compared; then whenever there are twice as many


def build_index(
    corpus_file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    progress: Callable[[ImportProgress], object] | None = None,
) -> LexicalRetriever:
    """Make a new folder of a corpus and its BM25 index, and open it; call it again with the same file after a kill.

    Args:
        corpus_file: as `corpus.stream_passages` reads it.
        folder: where the index will be.
        progress: called with a `ImportProgress` now and then; its phase is one of `PHASES`.

    Raises:
        BadData: the file cannot be read, is damaged or holds no passage; two passages have one id; what an earlier
            call left is of another file or version; or another process is building the same folder.
        BadIndex: what an earlier call left of the index is damaged.
        OSError: something is at `folder` already, or it cannot be written (a full disk); what was done is kept.
    """
    source, path = Path(corpus_file), Path(os.path.abspath(folder))
    tell = progress or (lambda _: None)
    fingerprint(source)  # first: of a file that cannot be read, nothing should stay behind
    with _spoiled_by_source(path) as reading, resumed_folder(path) as partial, database_errors(path):
        with closing(exclusive_database(partial / _IMPORT)) as database:
            state = ImportState(database)
            state.check_source([source], STORE.format, "bm25")
            if not state.complete:
                with reading():
                    _import_passages(source, partial, state, tell)
            index = merge_runs(partial / _RUNS, partial / _INDEX, state.documents, tell)
        # A killed build leaves one; it was played back when the database was opened again, and nothing needs it now.
        (partial / f"{_IMPORT}-journal").unlink(missing_ok=True)
        facts = {"format": STORE.format, "documents": state.documents, "kind": "bm25", "index": index}
        write_statement(
            partial, STORE.kind, state.digest, {**facts, "arrays": {OFFSETS: content_digest(partial / OFFSETS)}}
        )
    return open_index(path)


@contextmanager
def _spoiled_by_source(path: Path) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Give the context in which the source is read: if it raises `BadData`, `<path>.partial` is removed at the end.

    With it there, the source could not be mended: it would be another file than the one that was begun with.
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
    """Return the retriever over a folder that `build_index` made; nothing is read before it is needed.

    Args:
        folder: the index.
        verify: read everything once and compare the digests, about a second a gigabyte.

    Raises:
        BadIndex: there is no such folder, it is damaged, or of another version or kind.
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
    """Read the passages that were not read yet into the file of passages and into runs of the index."""
    database = state.database
    total = 0 if source.suffix == ".gz" else source.stat().st_size  # how much a packed file holds is not known
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
    """The file of passages while it grows.

    Args:
        path: of the file.
        documents: so many passages of it are kept; what comes after them is dropped.
        where: begins the message when two passages have one id.

    Attributes:
        offsets: the first byte of each passage, and the byte after the last.
        digest: of the passages.
    """

    def __init__(self, path: Path, documents: int, where: str) -> None:
        self.offsets = array("q", [0])
        self.digest = PassageDigest()
        self._names = array("Q")  # 64 bits of each: the names themselves may not fit into memory
        self._next_check = _FIRST_CHECK
        self._where = where
        self._file = path.open("r+b" if path.exists() else "w+b")
        try:
            for _ in range(documents):  # a digest cannot be stored half done
                record = self._file.readline()
                self._count(json.loads(record)[0], record)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self.close()
            raise BadData(f"{path} is damaged ({error}); remove {path.parent} and build again") from None
        self._file.seek(self.offsets[-1])
        self._file.truncate()

    def append(self, passage: Passage) -> None:
        """Write the next passage."""
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
        """Raise `BadData` when two passages have one id."""
        names = np.array(self._names, np.uint64)
        order = np.argsort(names, kind="stable")
        for at in np.flatnonzero(names[order[1:]] == names[order[:-1]]).tolist():
            first, second = order[at : at + 2].tolist()
            name = self._name(first)
            if name == self._name(second):  # and not only 64 bits of them
                raise BadData(same_id(name, first, second, self._where))

    def _name(self, number: int) -> str:
        here = self._file.tell()
        self._file.seek(self.offsets[number])
        name = str(json.loads(self._file.readline())[0])
        self._file.seek(here)
        return name

    def sync(self) -> None:
        """Let all that was written be on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
