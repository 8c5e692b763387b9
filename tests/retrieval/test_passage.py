"""Passages: Search-R1's `contents` and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.retrieval.corpus import Passage


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Evan Morris"\nEvan L. Morris was', "Evan Morris", "Evan L. Morris was"),
        ("Evan Morris\nwas\nhere", "Evan Morris", "was\nhere"),
        ('""Heroes""\na song', '"Heroes"', "a song"),
        ("only a title", "only a title", ""),
        ('"half\nopen"', '"half', 'open"'),
        ('"\nx', '"', "x"),
        ('""\nx', "", "x"),
        ("\n\nx", "", "\nx"),
        ("", "", ""),
    ],
)
def test_contents_are_split_at_the_first_newline_and_the_title_loses_its_quotes(
    contents: str, title: str, text: str
) -> None:
    assert Passage.of_contents("7", contents) == ("7", title, text)


@given(st.text(), st.text().map(lambda title: title.replace("\n", " ")), st.text())
def test_contents_hold_all_of_a_passage(name: str, title: str, text: str) -> None:
    passage = Passage(name, title, text)
    assert Passage.of_contents(name, passage.contents) == passage


def test_title_and_text_are_indexed() -> None:
    assert Passage("7", "Oslo", "A city.").index_text == "Oslo\nA city."
