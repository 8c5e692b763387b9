"""Finding passages by their words."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadIndex, BadSetting
from agentgym_flow.retrieval import BM25
from agentgym_flow.retrieval.corpus import Hit, MemoryCorpus, Passage, read_corpus
from agentgym_flow.retrieval.retrievers import LexicalRetriever

PASSAGES = [
    Passage("x", "Oslo", "A city by the fjord."),
    Passage("y", "Bergen", "A city by the sea."),
    Passage("z", "Lake Mjosa", ""),
    Passage("w", "Hamar", "A city by the lake."),
]


def test_titles_and_texts_are_searched_and_equal_scores_come_in_order() -> None:
    retriever = LexicalRetriever(MemoryCorpus(PASSAGES))
    lake, cities, one, nothing, empty = retriever.search(["lake mjosa", "cities", "Bergen?", "zzz the", ""], 3)
    assert [found.passage.id for found in lake] == ["z", "w"]
    assert lake[0].score > lake[1].score > 0
    assert [found.passage.id for found in cities] == ["x", "y", "w"]
    assert len({found.score for found in cities}) == 1
    assert one == [Hit(PASSAGES[1], one[0].score)]
    assert nothing == empty == []
    assert retriever.search([], 3) == []
    assert [found.passage.id for found in retriever.search(["city"], 2)[0]] == ["x", "y"]
    assert retriever.name == "bm25"


def test_scores_are_those_of_the_index_of_title_newline_text() -> None:
    index = BM25.build(f"{title}\n{text}" for _, title, text in PASSAGES)
    found = LexicalRetriever(MemoryCorpus(PASSAGES)).search(["lake city"], 10)[0]
    assert [(PASSAGES.index(passage), score) for passage, score in found] == index.search("lake city", 10)


def test_an_index_of_other_passages_and_no_hits_are_refused() -> None:
    corpus = MemoryCorpus(PASSAGES)
    with pytest.raises(BadIndex, match="an index of 1 documents does not belong to 4 passages"):
        LexicalRetriever(corpus, BM25.build(["x"]))
    with pytest.raises(BadSetting, match="must be at least 1, got 0"):
        LexicalRetriever(corpus).search(["city"], 0)


@given(st.lists(st.text(), max_size=5))
def test_no_text_of_a_query_raises(queries: list[str]) -> None:
    found = LexicalRetriever(MemoryCorpus(PASSAGES)).search([*queries, "\ud800 city \0"], 2)
    assert len(found) == len(queries) + 1
    assert [hit.passage.id for hit in found[-1]] == ["x", "y"]


def test_copies_pickles_and_threads_find_the_same() -> None:
    retriever = LexicalRetriever(MemoryCorpus(PASSAGES))
    assert copy.copy(retriever) is copy.deepcopy(retriever) is retriever
    queries = ["city", "lake", "oslo fjord"] * 20
    expected = retriever.search(queries, 2)
    assert pickle.loads(pickle.dumps(retriever)).search(queries, 2) == expected
    with ThreadPoolExecutor(4) as pool:
        assert [found for [found] in pool.map(lambda query: retriever.search([query], 2), queries)] == expected


def test_the_corpus_of_2wiki_is_found_by_its_titles(sample_data: Path) -> None:
    corpus = read_corpus(sample_data / "search" / "2wikimultihopqa_corpus.json")
    few = MemoryCorpus([corpus[number] for number in range(0, len(corpus), 6)])
    found = LexicalRetriever(few).search([passage.title for passage in few], 3)
    first = sum(hits[0].passage == passage for passage, hits in zip(few, found, strict=True))
    assert first > 0.9 * len(few)
