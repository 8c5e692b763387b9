"""Builds large indexes in runs on disk, with bounded memory; a killed build can be resumed."""

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
        with naming(self._folder):
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
            with whole_folder(self._folder / f"{self.documents:010d}") as partial:
                for name, values in run._asdict().items():
                    np.save(partial / f"{name}.npy", values)
            self.documents += len(self._gathered)
            self._gathered = SegmentBuilder(self.documents)

    def rewind(self, documents: int) -> None:
        """Drop everything after the first `documents` documents. Raises `BadIndex` if no run ends there."""
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
