"""Reciprocal rank fusion: the formula, ties, and the order of asking."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.corpus import Hit, Passage
from agentgym_flow.retrieval.retrievers import HybridRetriever


class Fixed:
    """Finds the same passages for every query, whose ids are the letters of a word."""

    name = "fixed"

    def __init__(self, letters: str) -> None:
        self.letters = letters
        self.asked: list[int] = []

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        self.asked.append(topk)
        passages = [Hit(Passage(letter, letter, ""), -float(rank)) for rank, letter in enumerate(self.letters)]
        return [passages[:topk] for _ in queries]


def fuse(*rankings: str, topk: int = 100, k: float = 60) -> list[tuple[str, float]]:
    [found] = HybridRetriever([Fixed(ranking) for ranking in rankings], k=k).search(["query"], topk)
    return [(one.passage.id, one.score) for one in found]


def test_scores_are_those_of_the_formula() -> None:
    assert fuse("abc", "bd") == [
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("d", pytest.approx(1 / 62)),
        ("c", pytest.approx(1 / 63)),
    ]
    assert fuse("ab", "cb", k=1) == [("b", pytest.approx(2 / 3)), ("a", 0.5), ("c", 0.5)]


def test_equal_scores_rank_as_the_first_retriever_ranks_them() -> None:
    assert "".join(name for name, _ in fuse("ab", "ba")) == "ab"
    assert "".join(name for name, _ in fuse("ba", "ab")) == "ba"
    assert "".join(name for name, _ in fuse("", "xy", "yx")) == "xy"
    # The three ranks of each come in every order: added up one after the other, the sums would differ in the last bit.
    scores = [score for _, score in fuse("abc", "bca", "cab")]
    assert len(set(scores)) == 1
    for first, second, third in permutations(["abcd", "cdba", "dbac"]):
        assert sorted(fuse(first, second, third)) == sorted(fuse("abcd", "cdba", "dbac"))


def test_a_passage_counts_once_for_each_retriever() -> None:
    assert fuse("aab") == [("a", 1 / 61), ("b", 1 / 63)]


@given(st.lists(st.permutations("abcdefgh").map("".join), min_size=1, max_size=4), st.integers(1, 9))
def test_fewer_are_the_first_of_more(rankings: list[str], topk: int) -> None:
    assert fuse(*rankings, topk=topk) == fuse(*rankings)[:topk]


def test_each_retriever_is_asked_once_for_all_queries_and_deep_enough() -> None:
    parts = [Fixed("abc"), Fixed("cd")]
    retriever = HybridRetriever(parts, depth=2)
    answers = retriever.search(["one", "two"], 1)
    assert [[found.passage.id for found in answer] for answer in answers] == [["a"], ["a"]]  # c is third in the first
    assert [part.asked for part in parts] == [[2], [2]]
    assert [found.passage.id for found in retriever.search(["one"], 3)[0]] == ["c", "a", "b"]
    assert retriever.search([], 3) == []
    assert (retriever.name, repr(retriever)) == ("hybrid", "<HybridRetriever of fixed, fixed>")


def test_settings_are_checked() -> None:
    with pytest.raises(BadSetting, match="at least one"):
        HybridRetriever([])
    for k in (0, -1, float("inf"), float("nan")):
        with pytest.raises(BadSetting, match="k must be"):
            HybridRetriever([Fixed("a")], k=k)
    with pytest.raises(BadSetting, match="depth"):
        HybridRetriever([Fixed("a")], depth=0)
    with pytest.raises(BadSetting, match="topk"):
        HybridRetriever([Fixed("a")]).search(["query"], 0)
