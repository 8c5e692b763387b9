"""Building a large index: runs on disk, so that memory stays bounded and a killed build goes on where it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from agentgym_flow._util.files import check_free, naming, whole_folder
from agentgym_flow.errors import BadIndex
from agentgym_flow.retrieval.arrays import mapped_array
from agentgym_flow.retrieval.bm25 import PROGRESS_EVERY
from agentgym_flow.retrieval.index_folder import write_folder
from agentgym_flow.retrieval.runs import IndexSegment, MergedSegments, SegmentBuilder
from agentgym_flow.retrieval.similarity import check_settings

RUN_TERMS = 1 << 22
"""A run is full with so many terms, repeats included: 34,000 descriptions of products, 150 MB while it is made."""


class IndexBuilder:
    """Indexes texts in runs, each written to a folder before the next begins; `finish` merges them into an index.

    The index is to the last byte the one that `BM25.build(texts).save(folder)` writes. A builder on a folder with runs
    goes on after their last document; the caller gives it the texts from there on.

    Args:
        folder: of the runs; made if it is not there. Remove it when the index is there.

    Attributes:
        documents: how many documents are safe on disk.

    Raises `BadIndex` when the runs in the folder do not fit together, and `OSError` naming the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        with naming(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for left in self._folder.glob("*.partial"):  # of a process that was killed
                shutil.rmtree(left)
        self.documents = 0
        for run in self._runs():
            self.documents += len(run.lengths)
        self._gathered = SegmentBuilder(self.documents)

    def __len__(self) -> int:
        """Return the number of documents, those not yet on disk included."""
        return self.documents + len(self._gathered)

    @property
    def full(self) -> bool:
        """Whether it is time for `flush`."""
        return self._gathered.size >= RUN_TERMS

    def add(self, text: str) -> None:
        """Take in the next document."""
        self._gathered.add(text)

    def flush(self) -> None:
        """Write what was added since the last time as a run. Raises `OSError` naming it when it cannot be written."""
        if len(self._gathered):
            run = self._gathered.run()
            with whole_folder(self._folder / f"{self.documents:010d}") as partial:
                for name, values in run._asdict().items():
                    np.save(partial / f"{name}.npy", values)
            self.documents += len(self._gathered)
            self._gathered = SegmentBuilder(self.documents)

    def rewind(self, documents: int) -> None:
        """Forget everything after the first so many documents, which must be where a run ended.

        Raises `BadIndex` when no run ended there.
        """
        for folder in self._folders():
            if int(folder.name) >= documents:
                with naming(folder):
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
        """Write the index of all documents as a new folder, and return its digest. The runs stay.

        Args:
            folder: where the index will be, whole or not at all.
            k1: as in `BM25.build`.
            b: as in `BM25.build`.
            progress: called with the number of postings merged and that of all, now and then.

        Raises:
            BadData: there is no document.
            BadSetting: `k1` or `b` is out of range.
            OSError: something is at `folder` already, or it cannot be written.
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
            try:
                arrays = [mapped_array(folder / f"{name}.npy") for name in IndexSegment._fields]
            except (OSError, ValueError) as error:
                raise BadIndex(f"{folder} is damaged ({error}); remove {self._folder} and begin again") from error
            found.append(IndexSegment(*arrays))
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
    """Index texts of any number into a new folder for `BM25.open`, and return the index's digest.

    Runs are kept in `<folder>.runs` until all is done. When it was killed, call it again with the same texts: those
    that are safe on disk are read, but not indexed again. With other texts, remove that folder first.

    Args:
        texts: one text a document; the first is document 0.
        folder: where the index will be, whole or not at all.
        k1: as in `BM25.build`.
        b: as in `BM25.build`.
        progress: called with the number of documents indexed, every `PROGRESS_EVERY` and at the end.

    Raises:
        BadData: there is no document.
        BadSetting: `k1` or `b` is out of range.
        BadIndex: the runs of an earlier call are damaged.
        OSError: something is at `folder` already, or it cannot be written.
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
