"""Hybrid retrieval: reciprocal rank fusion of several retrievers.

    score(passage) = sum over the retrievers that found it of 1 / (k + rank), with ranks from 1

(Cormack, Clarke and Buettcher, SIGIR 2009). It uses only ranks, so the scores of the retrievers need not be comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.passage import Hit, Passage, Retriever


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
