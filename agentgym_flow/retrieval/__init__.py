"""Finding documents by their words: an English analyser and BM25, with the rankings of Lucene."""

from agentgym_flow.retrieval.bm25 import BM25, DocumentHit
from agentgym_flow.retrieval.builder import IndexBuilder, build_folder

__all__ = ["BM25", "DocumentHit", "IndexBuilder", "build_folder"]
