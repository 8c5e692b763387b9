"""Builds and opens folders for the three kinds of retriever: BM25, dense and hybrid.

A folder has a corpus and its BM25 index. Its subfolder `dense` has the vectors, if there are any.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.retrieval import building
from agentgym_flow.retrieval.passage import Retriever
from agentgym_flow.retrieval.resuming import ImportProgress

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
        source: the corpus, see `building.build_index`.
        folder: the folder. Vectors can be added to an existing folder, without reading `source` again.
        kind: one of `KINDS`.
        index: the index of the vectors, one of `vector_index.KINDS`; None for the default for this number of passages.
        progress: called from time to time with an `ImportProgress`; the phases are those of `building`, then `dense`.

    Raises:
        UnknownOption: the kind or the index is unknown.
        BadSetting: an index of vectors is given for a kind without vectors.
        MissingExtra: a package for vectors is not installed.
        Others: like `building.build_index` and `dense.build_dense`.
    """
    _check(kind, index)
    if kind == "bm25":
        return building.build_index(source, folder, progress=progress)
    from agentgym_flow.retrieval.dense import build_dense
    from agentgym_flow.retrieval.encoder import MiniLMEncoder

    encoder = MiniLMEncoder()  # before reading the corpus, so that a missing extra is reported early
    finished = Path(folder).is_dir() and any(Path(folder).iterdir())
    words = building.open_index(folder) if finished else building.build_index(source, folder, progress=progress)
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
    words = building.open_index(folder, verify=verify)
    if kind == "bm25":
        return words
    from agentgym_flow.retrieval.dense import DenseRetriever
    from agentgym_flow.retrieval.encoder import MiniLMEncoder
    from agentgym_flow.retrieval.hybrid import HybridRetriever
    from agentgym_flow.retrieval.vector_index import finished_kinds

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
    from agentgym_flow.retrieval.vector_index import check_kind

    check_kind(index)
    if kind == "bm25":
        raise BadSetting(
            f"bm25 has no vectors, so there is no index {index!r} of them; choose the kind dense or hybrid"
        )
