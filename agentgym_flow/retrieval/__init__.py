"""Finding documents by their words: an English analyser and BM25, with the rankings of Lucene."""

from agentgym_flow.retrieval.bm25 import BM25, Hit

__all__ = ["BM25", "Hit"]
