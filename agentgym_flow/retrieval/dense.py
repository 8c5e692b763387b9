"""Finding passages by meaning: the nearest vectors of an encoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from agentgym_flow._util.immutable import Immutable
from agentgym_flow.errors import BadIndex, BadSetting
from agentgym_flow.retrieval.embeddings import Embeddings
from agentgym_flow.retrieval.encoder import Encoder
from agentgym_flow.retrieval.passage import Corpus, Hit
from agentgym_flow.retrieval.vector_index import (
    FaissIndex,
    FlatIndex,
    VectorIndex,
    build_faiss,
    check_buildable,
    check_kind,
    has_faiss,
    kind_for,
)


class DenseRetriever(Immutable):
    """Ranks passages by the cosine between a query's vector and theirs. A copy is the retriever itself.

    Every query finds something, however far from it. Vectors differ in their last bits from machine to machine, so
    what it finds may too: an environment keeps it on the tape.

    Args:
        corpus: the passages.
        encoder: gives the vectors of queries; the one that gave those of the passages.
        index: of the passages, in order; made in memory if it is not given, which takes about 25 ms a passage.

    Raises:
        BadIndex: the index has another number of vectors than the corpus has passages.
    """

    name = "dense"

    def __init__(self, corpus: Corpus, encoder: Encoder, index: VectorIndex | None = None) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self.index = FlatIndex(Embeddings.encode(corpus, encoder)) if index is None else index
        if len(self.index) != len(corpus):
            raise BadIndex(f"an index of {len(self.index)} vectors does not belong to {len(corpus)} passages")

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        corpus: Corpus,
        encoder: Encoder,
        *,
        kind: str | None = None,
        effort: int | None = None,
        verify: bool = True,
    ) -> Self:
        """Open what `build_dense` wrote for this corpus and encoder, mapped.

        Args:
            folder: of the vectors.
            corpus: the passages.
            encoder: gives the vectors of queries.
            kind: one of `vector_index.KINDS`; None for the one that suits the number of passages.
            effort: of an approximate index, as `FaissIndex` takes it.
            verify: read everything once and compare the digests. An approximate index is always read: faiss would
                crash on a damaged one.

        Raises:
            BadIndex: the folder is missing, damaged, of another corpus or encoder, or lacks this kind of index.
            MissingExtra: the kind needs faiss, which is not installed.
            UnknownOption: there is no such kind.
        """
        kind = kind_for(len(corpus)) if kind is None else check_kind(kind)
        embeddings = Embeddings.open(folder, corpus, encoder, verify=verify)
        if kind == "flat":
            return cls(corpus, encoder, FlatIndex(embeddings))
        return cls(corpus, encoder, FaissIndex(embeddings, kind, effort=effort))

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` nearest passages, best first; the score is the cosine.

        Raises `BadSetting` when `topk` is below 1.
        """
        if topk < 1:
            raise BadSetting(f"topk must be at least 1, got {topk}")
        found = self.index.search(self.encoder.encode(queries), topk)
        return [[Hit(self.corpus[hit.document], hit.score) for hit in hits] for hits in found]

    def __repr__(self) -> str:
        return f"<DenseRetriever over {len(self.corpus):,} passages, {self.encoder.name}>"


def build_dense(
    corpus: Corpus,
    encoder: Encoder,
    folder: str | os.PathLike[str],
    *,
    kind: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Write the vectors of a corpus and an index of them into a folder, for `DenseRetriever.open`.

    Vectors that are there already stay, so a further kind of index costs no encoding. When it was killed, call it
    again: it goes on after the last whole block of `embeddings.BLOCK` passages.

    Args:
        corpus: the passages.
        encoder: gives the vectors.
        folder: where; made if it is not there.
        kind: one of `vector_index.KINDS`; None for the one that suits the number of passages.
        progress: called with the number of passages that are encoded, at the start and after every block.

    Raises:
        BadIndex: the folder is damaged, or of another corpus or encoder.
        BadSetting: another process is building this folder, or there are too few passages for this kind.
        MissingExtra: the kind needs faiss, which is not installed.
        UnknownOption: there is no such kind.
        OSError: the folder cannot be written.
    """
    kind = kind_for(len(corpus)) if kind is None else kind
    check_buildable(kind, len(corpus), encoder.dimension)
    path = Path(folder)
    if path.is_dir() and any(path.iterdir()):
        embeddings = Embeddings.open(path, corpus, encoder)
        if progress:
            progress(len(embeddings))
    else:
        embeddings = Embeddings.build(corpus, encoder, path, progress=progress)
    if kind != "flat" and not has_faiss(embeddings, kind):
        build_faiss(embeddings, kind)
