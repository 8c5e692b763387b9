"""The kinds of retriever that a folder on disk can give: by words, by meaning, and by both.

A folder has a corpus and its BM25 index; the vectors, where they are wanted, are in the folder `dense` inside it.
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
"""The folder of the vectors, and the phase of a build in which they are made."""


def build_retriever(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    kind: str = "bm25",
    index: str | None = None,
    progress: Callable[[ImportProgress], object] | None = None,
) -> Retriever:
    """Make the folder that `open_retriever` opens, and open it. When it was killed, call it again: it goes on.

    Args:
        source: the corpus, as `building.build_index` reads it.
        folder: where. For a kind with vectors it may be finished already: they are added to it, and `source` is not
            read again.
        kind: one of `KINDS`.
        index: of the vectors, for a kind that has them: one of `vector_index.KINDS`; None for the one that suits the
            number of passages.
        progress: called with a `ImportProgress` now and then; its phases are those of `building`, then `dense`.

    Raises:
        UnknownOption: there is no such kind, or no such index.
        BadSetting: the kind has no vectors, and an index of them is named.
        MissingExtra: vectors need a package that is not installed.
        Others: as `building.build_index` and `dense.build_dense` raise.
    """
    _check(kind, index)
    if kind == "bm25":
        return building.build_index(source, folder, progress=progress)
    from agentgym_flow.retrieval.dense import build_dense
    from agentgym_flow.retrieval.encoder import MiniLMEncoder

    encoder = MiniLMEncoder()  # first: a missing extra should be told before the corpus is read
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
    """Return a retriever over a folder that `build_retriever` made.

    Args:
        folder: the folder.
        kind: one of `KINDS`.
        index: of the vectors, as for `build_retriever`; None for the one that was built besides the vectors themselves,
            or where that are several or none, for the one that suits the number of passages.
        verify: read everything once and compare the digests.

    Raises:
        UnknownOption: there is no such kind, or no such index.
        BadSetting: the kind has no vectors, and an index of them is named.
        MissingExtra: vectors need a package that is not installed.
        BadData: there is no such folder, or it is damaged.
        BadIndex: an index in it is missing or damaged.
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
