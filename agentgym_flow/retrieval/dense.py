"""Dense retrieval: the passages whose vectors are nearest to that of the query."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from agentgym_flow._util.shared import Shared
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


class DenseRetriever(Shared):
    """Ranks passages by the cosine similarity of their vectors with that of the query.

    Every query finds passages, even if none is close. The last bits of vectors differ between machines, and therefore
    the results may, too; environments record them in the recording.

    Args:
        corpus: the passages.
        encoder: the encoder of the queries, which must be the one that encoded the passages.
        index: the vectors of the passages, in order; by default computed in memory, in about 25 ms per passage.

    Raises:
        BadIndex: the numbers of vectors and passages differ.
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
        """Map the vectors that `build_dense` wrote for this corpus and encoder.

        Args:
            folder: the folder of the vectors.
            corpus: the passages.
            encoder: the encoder of the queries.
            kind: one of `vector_index.KINDS`; None for the default for this number of passages.
            effort: the search effort of an approximate index, see `FaissIndex`.
            verify: read everything and compare the digests. An approximate index is always verified, because faiss
                crashes on damaged files.

        Raises:
            BadIndex: the folder is missing, damaged, of another corpus or encoder, or lacks this kind of index.
            MissingExtra: the kind needs faiss, which is not installed.
            UnknownOption: the kind is unknown.
        """
        kind = kind_for(len(corpus)) if kind is None else check_kind(kind)
        embeddings = Embeddings.open(folder, corpus, encoder, verify=verify)
        if kind == "flat":
            return cls(corpus, encoder, FlatIndex(embeddings))
        return cls(corpus, encoder, FaissIndex(embeddings, kind, effort=effort))

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` nearest passages, best first; the score is the cosine similarity.

        Raises `BadSetting` if `topk` is below 1.
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
    """Write the vectors of a corpus and an index of them to a folder, for `DenseRetriever.open`.

    Existing vectors are reused, so another kind of index needs no encoding. To resume a killed build, call the function
    again; it continues after the last complete block of `embeddings.BLOCK` passages.

    Args:
        corpus: the passages.
        encoder: the encoder.
        folder: the folder, which is created if necessary.
        kind: one of `vector_index.KINDS`; None for the default for this number of passages.
        progress: called with the number of encoded passages, at the start and after every block.

    Raises:
        BadIndex: the folder is damaged, or of another corpus or encoder.
        BadSetting: another process is building this folder, or there are too few passages for this kind.
        MissingExtra: the kind needs faiss, which is not installed.
        UnknownOption: the kind is unknown.
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
