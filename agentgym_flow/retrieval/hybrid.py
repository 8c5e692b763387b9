"""Several retrievers as one: reciprocal rank fusion.

    score(passage) = sum over the retrievers that found it of 1 / (k + its rank there), from 1

(Cormack, Clarke and Buettcher, SIGIR 2009). Only ranks count, so scores of different kinds need not be comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.passage import Hit, Passage, Retriever


class HybridRetriever:
    """Ranks passages by what several retrievers think of them.

    A passage is known by its id. Equal scores rank as the first retriever ranks them, then the second, and so on.

    Args:
        retrievers: at least one, over the same corpus.
        k: above 0: the larger it is, the less the first ranks stand out.
        depth: how many passages each retriever is asked for, where fewer are wanted.

    Raises `BadSetting` when there is no retriever, or `k` or `depth` is out of range.
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
        """Return for each query the `topk` passages of the highest fused score, best first.

        Raises `BadSetting` when `topk` is below 1, and whatever one of the retrievers raises.
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
                if name not in met:  # a remote index may hold a passage twice
                    met.add(name)
                    passages.setdefault(name, found.passage)
                    parts.setdefault(name, []).append(1 / (self._k + rank))
        # A sum that does not depend on the order, so that ties are ties; the sort keeps the order of meeting for them.
        fused = [Hit(passages[name], math.fsum(shares)) for name, shares in parts.items()]
        return sorted(fused, key=lambda found: -found.score)

    def __repr__(self) -> str:
        return f"<HybridRetriever of {', '.join(retriever.name for retriever in self.retrievers)}>"
