"""The compact prompt of any environment: its words, what is cut, and what the indices stand for."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_flow.prompts import FIXED, WordTemplate, words_of
from agentgym_flow.prompts.words import INDICES, MOST, MOST_WORDS


def policy_input(
    observation: str = "You see a door.",
    candidates: tuple[str, ...] = ("left", "right"),
    goal: str = "Get out.",
    past: tuple[tuple[str, bool, str], ...] = (),
) -> Any:
    turns = [SimpleNamespace(action=a, action_valid=valid, observation=seen) for a, valid, seen in past]
    episode = SimpleNamespace(turns=turns)
    return SimpleNamespace(
        observation=observation, info={"goal": goal}, episode=episode, candidates=lambda: list(candidates)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("You're in Room 12, hot!", "you're in room 1 +2 hot"),
        ("7 12 105", "7 1 +2 1 +0 +5"),
        ("#.@ .", "# . @ ."),
        ("#A.b#", "# A . b #"),
        ("search[red shoes] (x)", "search [ red shoes ] x"),
        ("WGKY WG Go", "W G K Y W G go"),
        ("+--+--+ | P |", "-- | P |"),
        ("-3.5 c3", "- 3 . 5 c 3"),
        ("\ud800 \x00", "? \x00"),
        ("", ""),
    ],
)
def test_a_text_is_split_into_words(text: str, words: str) -> None:
    assert words_of(text) == tuple(words.split())


def test_texts_have_no_index_and_no_mark() -> None:
    assert not {*words_of(" ".join(FIXED))} & {*INDICES, "goal:", "now:", "did:", "saw:", "choose:"}


def test_the_prompt_says_what_was_shown_the_newest_first() -> None:
    template = WordTemplate()
    here = policy_input(past=(("left", True, "One wall."), ("fly", False, "One hole.")))
    assert template.prompt(here) == (
        "goal: get out now: you see a door left #0 right #1 "
        "did: fly refused: saw: one hole did: left saw: one wall choose:"
    )
    assert template.parse_action(" #1 ", here) == "right"
    assert [template.parse_action(text, here) for text in ("1", "right", "#2", "")] == [""] * 4
    assert (template.format_action("left", here), template.format_action("fly", here)) == ("#0", None)
    assert template.name == "compact"
    assert template.vocabulary == ()


def test_equal_words_stand_for_the_first_candidate() -> None:
    here = policy_input(candidates=("take the key", "take the key!", "drop"))
    template = WordTemplate()
    assert [template.format_action(action, here) for action in here.candidates()] == ["#0", "#0", "#1"]
    assert template.parse_action("#0", here) == "take the key"


def words(count: int, letter: str) -> str:
    return " ".join(letter * (number + 2) for number in range(count))


def test_what_does_not_fit_is_cut_in_order() -> None:
    template = WordTemplate()

    def said(**parts: Any) -> list[str]:
        found = template.prompt(policy_input(**parts)).split()
        assert len(found) <= MOST_WORDS
        assert found[-1] == "choose:"
        return found

    long_past = (("left", True, words(200, "p")), ("left", True, words(30, "p")))
    found = said(past=long_past)
    assert len(found) == MOST_WORDS
    assert [found.count(word) for word in ("now:", "#1", "did:")] == [1, 1, 2]  # of the oldest turn the end is left out

    many = tuple(f"go {words(9, chr(97 + number % 26))} {number}" for number in range(64))
    found = said(observation=words(200, "o"), goal=words(200, "g"), candidates=many, past=long_past)
    assert "did:" not in found
    assert [word for word in found if word in INDICES] == list(INDICES)
    now = found.index("now:")
    assert (now - 1, found.index("go") - now - 1) == (19, 40)
    assert said(candidates=many[:2])[:9].count("go") == 1  # whole where there is room
    assert template.format_action(many[MOST - 1], policy_input(candidates=many)) == INDICES[-1]
    assert template.format_action(many[MOST], policy_input(candidates=many)) is None

    found = said(observation=words(200, "o"), goal="out")
    assert len(found) == MOST_WORDS
    assert found[:3] == ["goal:", "out", "now:"]  # a short goal leaves its room to the observation


def test_what_is_kept_of_long_texts_is_little() -> None:
    tracemalloc.start()
    try:
        for number in range(10):
            long = f"{number} " + "room " * 200_000
            assert (
                len(WordTemplate().prompt(policy_input(observation=long, past=(("left", True, long),))).split())
                == MOST_WORDS
            )
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * len(long) / 2
