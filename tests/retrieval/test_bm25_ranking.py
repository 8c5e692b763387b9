"""Ranking that skips documents: to the last bit what adding up all scores gives, ties and threads included."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval import BM25, bm25
from agentgym_flow.retrieval.bm25 import Postings, Ranker, Ties, plain

DOCUMENTS = 24
# So close that 32 bits cannot tell sums apart, and so far apart that a term cannot matter beside another.
WEIGHTS = (np.float32(1), np.float32(3), np.float32(1e-3), np.float32(1e-8), np.float32(0.9999999), np.float32(7))
SATURATIONS = (np.float32(1), np.float32(2), np.nextafter(np.float32(2), np.float32(3)), np.float32(9))


@st.composite
def postings(draw: st.DrawFn) -> Postings:
    documents = sorted(draw(st.sets(st.integers(0, DOCUMENTS - 1), min_size=1)))
    saturations = draw(st.lists(st.sampled_from(SATURATIONS), min_size=len(documents), max_size=len(documents)))
    return Postings(np.array(documents, np.int32), np.array(saturations), draw(st.sampled_from(WEIGHTS)))


queries = st.lists(postings(), min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def never_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no query be too small for the rule that skips."""
    monkeypatch.setattr(bm25, "FEW", 0)


ties = st.none() | st.permutations(range(DOCUMENTS)).map(lambda order: np.array(order, np.int32))


@given(queries, st.integers(1, DOCUMENTS + 1), ties)
def test_skipping_changes_no_score_and_no_place(terms: list[Postings], k: int, ties: Ties | None) -> None:
    expected = plain(terms, k, DOCUMENTS, ties)
    ranker = Ranker(DOCUMENTS, ties)
    for _ in range(2):  # the second time on the array that the first one left
        found = ranker.best(terms, k)
        assert [values.tolist() for values in found] == [values.tolist() for values in expected]
        assert [values.dtype for values in found] == [values.dtype for values in expected]
    assert not any(sums.any() for sums in ranker._spare)


words = st.lists(st.sampled_from(["red", "blue", "hat", "shoe", "run", "tea", "x1", "x2"]), max_size=9).map(" ".join)


@given(st.lists(words, min_size=1, max_size=30), words, st.integers(1, 8), st.sampled_from([0.9, 1e-6, 1e9]))
def test_an_index_finds_the_same_with_and_without_skipping(documents: list[str], query: str, k: int, k1: float) -> None:
    index = BM25.build(documents, k1=k1)
    found = index.search(query, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "FEW", 1 << 60)
        assert index.search(query, k) == found


@given(st.lists(words, min_size=1, max_size=30), words, st.integers(1, 8), st.randoms(use_true_random=False))
def test_ties_are_broken_as_if_the_documents_were_indexed_in_that_order(
    documents: list[str], query: str, k: int, chance: Random
) -> None:
    order = list(range(len(documents)))  # rank -> document
    chance.shuffle(order)
    ties = np.argsort(order).astype(np.int32)
    sorted_index = BM25.build([documents[number] for number in order])
    expected = [(order[hit.document], hit.score) for hit in sorted_index.search(query, k)]
    index = BM25.build(documents, ties=ties)
    assert index.search(query, k) == expected
    assert pickle.loads(pickle.dumps(index)).search(query, k) == expected


def test_ranks_of_other_documents_are_refused() -> None:
    with pytest.raises(BadSetting, match="ties has 1 ranks, and there are 2 documents"):
        BM25.build(["red", "blue"], ties=np.zeros(1, np.int32))


def test_a_lead_that_rounding_takes_away_is_no_lead() -> None:
    sure = Postings(np.array([0, 1], np.int32), np.array([2, 2], np.float32), np.float32(1))
    tiny = Postings(np.array([1], np.int32), np.array([2], np.float32), np.float32(1e-8))
    for terms in ([sure, tiny], [tiny, sure]):
        documents, scores = Ranker(2).best(terms, 1)
        assert (documents.tolist(), scores.tolist()) == ([0], [0.5])  # document 1 has more, but not in 32 bits


def test_common_terms_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    rare = Postings(np.arange(0, 10_000, 100, dtype=np.int32), np.full(100, 9, np.float32), np.float32(8))
    common = Postings(np.arange(10_000, dtype=np.int32), np.full(10_000, 2, np.float32), np.float32(0.1))
    summed: list[int] = []
    add_up = bm25._Query._add_up
    monkeypatch.setattr(
        bm25._Query, "_add_up", lambda self, term: (summed.append(len(term.documents)), add_up(self, term))[1]
    )
    found = Ranker(10_000).best([common, rare], 10)
    assert summed == [100]
    assert [values.tolist() for values in found] == [values.tolist() for values in plain([common, rare], 10, 10_000)]


def test_threads_do_not_share_an_array_of_sums() -> None:
    rng = np.random.default_rng(3)

    def query() -> list[Postings]:
        documents = [np.sort(rng.choice(5000, size, replace=False)).astype(np.int32) for size in (40, 900, 4000)]
        weights = np.array([6, 2, 0.3], np.float32)
        return [
            Postings(found, 1 + rng.integers(1, 5, len(found)).astype(np.float32), weight)
            for found, weight in zip(documents, weights, strict=True)
        ]

    asked = [query() for _ in range(40)] * 10
    ranker = Ranker(5000)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda terms: ranker.best(terms, 20), asked))
    for terms, found in zip(asked, answers, strict=True):
        assert [values.tolist() for values in found] == [values.tolist() for values in plain(terms, 20, 5000)]
    assert len(ranker._spare) <= 4
