"""Retrieval: BM25 with Lucene's rankings, dense and hybrid retrieval, corpora on disk, and a client for servers."""

from typing import TYPE_CHECKING

from agentgym_flow._util.importing import on_demand

if TYPE_CHECKING:
    from agentgym_flow.retrieval.bm25 import BM25
    from agentgym_flow.retrieval.builder import IndexBuilder, build_folder
    from agentgym_flow.retrieval.corpus import Corpus, Hit, Passage, Retriever, StoredCorpus
    from agentgym_flow.retrieval.lucene import LuceneIndex
    from agentgym_flow.retrieval.remote import RemoteRetriever
    from agentgym_flow.retrieval.retrievers import DenseRetriever, HybridRetriever, LexicalRetriever

__all__ = [
    "BM25",
    "Corpus",
    "DenseRetriever",
    "Hit",
    "HybridRetriever",
    "IndexBuilder",
    "LexicalRetriever",
    "LuceneIndex",
    "Passage",
    "RemoteRetriever",
    "Retriever",
    "StoredCorpus",
    "build_folder",
]
__getattr__ = on_demand(__name__)
