"""Recall: what is counted, and which titles a question names."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.corpus import Hit, Passage, read_corpus
from agentgym_flow.retrieval.retrievers import LexicalRetriever

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from _recall import NeededTitles, Recall, TitleFinder, recall_at

TITLES = [
    "Oslo",
    "Lake of Fire",
    "Fire",
    "One Day",
    "Place of birth",
    "The Den (2013 film)",
    "The Den (album)",
    "Gola (film)",
    "St. Mary's School, Patiala",
    "21 Grams",
    "Fire",
    "",
    "Run (song)",
    "Run",
]


class Fixed:
    """Finds for a query the titles that stand in it, one passage a letter."""

    name = "fixed"

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        return [[Hit(Passage(str(at), title, ""), -at) for at, title in enumerate(query)][:topk] for query in queries]


def test_recall_is_the_mean_share_and_the_share_of_all() -> None:
    questions = [
        NeededTitles("abcde", ("a", "e")),
        NeededTitles("xyz", ("z",)),
        NeededTitles("", ("a",)),
        NeededTitles("aab", ("b", "b")),
    ]
    found = recall_at(Fixed(), questions, [1, 2, 3, 5])
    assert found == {1: Recall(0.125, 0), 2: Recall(0.125, 0), 3: Recall(0.625, 0.5), 5: Recall(0.75, 0.75)}
    assert recall_at(Fixed(), questions * 50, [3, 1]) == {3: found[3], 1: found[1]}


@pytest.mark.parametrize(
    ("questions", "ks"),
    [
        ([], [3]),
        ([NeededTitles("a", ("a",))], []),
        ([NeededTitles("a", ("a",))], [3, 0]),
        ([NeededTitles("a", ())], [3]),
    ],
)
def test_what_has_no_recall_is_refused(questions: list[NeededTitles], ks: list[int]) -> None:
    with pytest.raises(BadSetting, match="recall"):
        recall_at(Fixed(), questions, ks)


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("Is Oslo older than Lake Of Fire?", ("Oslo", "Lake of Fire")),
        ("Fire or Lake of Fire, or Oslo, or oslo?", ("Fire", "Lake of Fire", "Oslo")),
        ("What is the place of birth of Oslo's mayor?", ("Oslo",)),
        ("Who made One Day In The Life?", ()),
        ("Who made Oslo Fire?", ()),
        ("Who directed The Den?", ()),
        ("Who directed The Den (2013 Film)?", ("The Den (2013 film)",)),
        ("Who sang The Den (Album) or Gola?", ("The Den (album)", "Gola (film)")),
        ("Where is St. Mary'S School, Patiala?", ("St. Mary's School, Patiala",)),
        ("Did 21 grams or 21 Grams win?", ("21 Grams",)),
        ("Who wrote Run?", ("Run",)),
        ("", ()),
        ("?! ( ", ()),
    ],
)
def test_titles_are_found_where_they_are_names(text: str, titles: tuple[str, ...]) -> None:
    assert TitleFinder(TITLES).find(text) == titles


@given(st.text())
def test_any_text_and_any_title_can_be_looked_at(text: str) -> None:
    assert set(TitleFinder([text, "Oslo"]).find(f"{text} Oslo {text}")) <= {text, "Oslo"}
    assert TitleFinder([]).find(text) == ()


def test_recall_on_the_questions_of_2wiki_is_as_recorded(sample_data: Path) -> None:
    folder = sample_data / "search"
    corpus = read_corpus(folder / "2wikimultihopqa_corpus.json")
    finder = TitleFinder(passage.title for passage in corpus)
    texts = [json.loads(line)["question"] for line in (folder / "2wiki_500.jsonl").read_text("utf-8").splitlines()]
    questions = [NeededTitles(text, titles) for text in texts if (titles := finder.find(text))]
    assert [len(questions), sum(len(needed.titles) == 2 for needed in questions)] == [71, 29]
    found = recall_at(LexicalRetriever(corpus), questions, [3, 5, 10])
    assert [round(found[k].mean, 3) for k in (3, 5, 10)] == [0.951, 0.972, 1.0]
    assert [round(found[k].complete, 3) for k in (3, 5, 10)] == [0.915, 0.944, 1.0]
