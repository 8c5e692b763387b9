"""The retrievers over a corpus: BM25, the nearest vectors, and the fusion of several rankings."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from agentgym_flow._util.sharing import Shared
from agentgym_flow.errors import BadIndex, BadSetting
from agentgym_flow.retrieval.bm25 import BM25
from agentgym_flow.retrieval.corpus import Corpus, Hit, Passage, Retriever
from agentgym_flow.retrieval.encoder import Encoder
from agentgym_flow.retrieval.vectors import (
    Embeddings,
    FaissIndex,
    FlatIndex,
    VectorIndex,
    build_faiss,
    check_buildable,
    check_kind,
    finished_kinds,
    kind_for,
)


class LexicalRetriever(Shared):
    """BM25 over a corpus. Passages with equal scores are in document order.

    A query without any term of the corpus finds nothing.

    Args:
        corpus: the passages.
        index: an index of their `index_text`, in order; by default built in memory, a second for 6,000 short passages.

    Raises:
        BadIndex: the numbers of documents in the index and the corpus differ.
    """

    name = "bm25"

    def __init__(self, corpus: Corpus, index: BM25 | None = None) -> None:
        self.corpus = corpus
        if index is None:
            index = BM25.build(corpus[number].index_text for number in range(len(corpus)))
        self.index = index
        if len(self.index) != len(corpus):
            raise BadIndex(f"an index of {len(self.index)} documents does not belong to {len(corpus)} passages")

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` best passages that contain one of its terms, best first.

        Raises `BadSetting` if `topk` is below 1.
        """
        hits = self.index.search_many(queries, topk)
        return [[Hit(self.corpus[document], score) for document, score in found] for found in hits]

    def __repr__(self) -> str:
        return f"<LexicalRetriever over {len(self.corpus):,} passages>"


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
            kind: one of `vectors.KINDS`; None for the default for this number of passages.
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
    again; it continues after the last complete block of `vectors.BLOCK` passages.

    Args:
        corpus: the passages.
        encoder: the encoder.
        folder: the folder, which is created if necessary.
        kind: one of `vectors.KINDS`; None for the default for this number of passages.
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
    if kind != "flat" and kind not in finished_kinds(path):
        build_faiss(embeddings, kind)


class HybridRetriever:
    """Fuses the rankings of several retrievers.

    Passages are identified by their ids. Ties are broken by the ranking of the first retriever, then the second, etc.

    Args:
        retrievers: at least one retriever, all over the same corpus.
        k: the rank constant, positive; larger values give the top ranks less weight.
        depth: the minimum number of passages requested from each retriever.

    Raises `BadSetting` if there is no retriever, or `k` or `depth` is out of range.
    """

    name = "hybrid"

    def __init__(self, retrievers: Sequence[Retriever], *, k: float = 60, depth: int = 100) -> None:
        if not retrievers:
            raise BadSetting("retrievers must name at least one")
        if not 0 < k < math.inf:
            raise BadSetting(f"k must be a number above 0, got {k}")
        if depth < 1:
            raise BadSetting(f"depth must be at least 1, got {depth}")
        self.retrievers = tuple(retrievers)
        self._k = k
        self._depth = depth

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the `topk` passages with the highest fused scores, best first.

        Raises `BadSetting` if `topk` is below 1. Exceptions of the retrievers propagate.
        """
        if topk < 1:
            raise BadSetting(f"topk must be at least 1, got {topk}")
        depth = max(self._depth, topk)
        answers = [retriever.search(queries, depth) for retriever in self.retrievers]
        return [self._fuse([answer[number] for answer in answers])[:topk] for number in range(len(queries))]

    def _fuse(self, rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
        parts: dict[str, list[float]] = {}
        passages: dict[str, Passage] = {}
        for ranking in rankings:
            met: set[str] = set()
            for rank, found in enumerate(ranking, 1):
                name = found.passage.id
                if name not in met:  # a remote retriever may return a passage twice
                    met.add(name)
                    passages.setdefault(name, found.passage)
                    parts.setdefault(name, []).append(1 / (self._k + rank))
        # `fsum` does not depend on the order, so ties are exact; the stable sort keeps the order of the rankings.
        fused = [Hit(passages[name], math.fsum(shares)) for name, shares in parts.items()]
        return sorted(fused, key=lambda found: -found.score)

    def __repr__(self) -> str:
        return f"<HybridRetriever of {', '.join(retriever.name for retriever in self.retrievers)}>"
