"""Finding passages by their words: BM25 over title and text."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_flow._util.immutable import Immutable
from agentgym_flow.errors import BadIndex
from agentgym_flow.retrieval.bm25 import BM25
from agentgym_flow.retrieval.passage import Corpus, Hit


class LexicalRetriever(Immutable):
    """BM25 over a corpus. Passages of equal score come in the order of their documents; a copy is the retriever itself.

    Nothing is found for a query without a word that the corpus knows.

    Args:
        corpus: the passages.
        index: of their `index_text`, in order; made if it is not given, a second for six thousand short passages.

    Raises:
        BadIndex: the index has another number of documents than the corpus.
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
        """Return for each query the `topk` best passages that have a word of it, best first.

        Raises `BadSetting` when `topk` is below 1.
        """
        hits = self.index.search_many(queries, topk)
        return [[Hit(self.corpus[document], score) for document, score in found] for found in hits]

    def __repr__(self) -> str:
        return f"<LexicalRetriever over {len(self.corpus):,} passages>"
