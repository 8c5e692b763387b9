"""Lexical retrieval: BM25 over title and text."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_flow._util.shared import Shared
from agentgym_flow.errors import BadIndex
from agentgym_flow.retrieval.bm25 import BM25
from agentgym_flow.retrieval.passage import Corpus, Hit


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
