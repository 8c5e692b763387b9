"""What an instruction asks for, as a reader finds it, and what is proposed to search for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.webshop.requirements import (
    MOST_PHRASES,
    MOST_PROPOSALS,
    most_relevant,
    phrases_of,
    proposals,
    requirements_of,
    sentence_parts,
)

SHORTS = (
    "Find me machine washable, quick drying biker shorts with deep pockets and thumb holes for summer trips "
    "with color: navy, and size: x-large, and price lower than 40.00 dollars"
)
CUPS = "i'm looking for some glass cups with lids that are free of bpa, in the color red and size large. thank you"


def test_an_instruction_in_the_form_of_the_shop_has_parts() -> None:
    parts = sentence_parts(SHORTS)
    assert parts.options == (("color", "navy"), ("size", "x-large"))
    assert parts.limit == 40
    assert parts.plain.endswith("thumb holes for summer trips")
    assert phrases_of(SHORTS) == (
        ("machine", "washable"),
        ("quick", "drying", "biker", "shorts"),
        ("deep", "pockets"),
        ("thumb", "holes"),
        ("summer", "trips"),
    )


@pytest.mark.parametrize(
    ("instruction", "options", "limit"),
    [
        ("Find me a lamp", (), math.inf),
        ("Find me a lamp with a shade, for: reading", (), math.inf),
        ("Find me a lamp, and price lower than 20.00 dollars", (), 20.0),
        ("Find me a lamp with bulb: with plug, and no: 3: b", (("bulb", "with plug"), ("no", "3: b")), math.inf),
        ("Find me a lamp with fit type: a, and b", (("fit type", "a, and b"),), math.inf),
        ("and price lower than much dollars", (), math.inf),
    ],
)  # fmt: skip
def test_options_and_limit_are_found_where_they_are_named(
    instruction: str, options: tuple[tuple[str, str], ...], limit: float
) -> None:
    assert sentence_parts(instruction)[1:] == (options, limit)


def test_free_wording_has_phrases_without_polite_words_and_names_of_options() -> None:
    assert phrases_of(CUPS) == (("glass", "cups"), ("lids",), ("free", "bpa"), ("red",), ("large",), ("thank",))
    assert len(phrases_of(", ".join(f"word{n}" for n in range(50)))) == MOST_PHRASES


@pytest.mark.parametrize(
    ("texts", "lacking"),
    [
        ([], 5),
        (["Machine Washable Quick Drying Biker Shorts"], 3),
        (["Biker Shorts, Quick Drying"], 4),
        (["Thumb Holes for Summer Trips"], 3),
        (["Machine Wash"], 5),  # another word
        (["Washable by machine"], 4),  # the order does not matter
        (["Deep blue", "pockets"], 5),  # `deep` needs its neighbour, and another text has no neighbours here
        (["Deep", "pockets"], 4),  # unless it says nothing else
        (["It is deep: two pockets."], 4),
        (["Hand wash only, no machine, washable"], 4),
    ],
)
def test_a_phrase_is_known_when_each_of_its_words_was_seen_beside_a_neighbour(texts: list[str], lacking: int) -> None:
    wish = requirements_of(SHORTS)
    assert wish.phrases == 5
    assert wish.lacking(wish.known_from(texts)) == lacking


def test_words_of_a_trap_do_not_make_a_phrase() -> None:
    wish = requirements_of("Find me slip resistant clogs")
    assert wish.lacking(wish.known_from(["Easy Slip on Water Resistant Clogs"])) == 1
    assert wish.lacking(wish.known_from(["Slip Resistant Nursing Clogs"])) == 0


def test_options_say_what_they_say_in_any_order() -> None:
    wish = requirements_of("i want bowls, in the 3 piece set size and basic bundle")
    shown = ["set size", "2 piece", "3 piece", "bundle", "basic"]
    assert wish.lacking(wish.known_among(shown)) == 1
    assert wish.lacking(wish.known_among([*shown, "bowls"])) == 0
    assert wish.lacking(wish.known_among([])) == 3


def test_named_options_are_wanted_by_name_and_others_by_their_words() -> None:
    named, free = requirements_of(SHORTS), requirements_of(CUPS)
    assert named.wants("color", "navy")
    assert not named.wants("style", "navy")
    assert not named.wants("size", "large")
    assert free.wants("color", "red")
    assert free.wants("anything", "large")
    assert not free.wants("color", "blue")
    assert not free.wants("color", "")
    assert named.lacks_option(["navy", "large"])
    assert not named.lacks_option(["navy", "x-large", "red"])
    assert not free.lacks_option([])


def test_proposals_begin_with_all_that_is_wanted_but_options() -> None:
    assert proposals(SHORTS) == (
        "machine washable quick drying biker shorts deep pockets thumb holes summer trips",
        "machine washable quick drying biker shorts deep pockets thumb holes summer trips color navy size x-large",
        "quick drying biker shorts",
        "machine washable deep pockets thumb holes summer trips",
    )
    assert proposals("lamp") == ("lamp",)
    assert proposals("[[]] i want") == ("product",)


@given(st.text(max_size=300))
def test_every_sentence_can_be_read(text: str) -> None:
    found = proposals(text)
    assert 1 <= len(found) <= MOST_PROPOSALS
    for query in found:
        assert query.strip() == query != ""
        assert not set("[]\n") & set(query)
    wish = requirements_of(text)
    assert 0 <= wish.phrases <= MOST_PHRASES
    known = wish.known_from([text]) | wish.known_among([text])
    assert 0 <= wish.lacking(known) <= wish.lacking(0) == wish.phrases


@given(st.lists(st.text(max_size=20), max_size=6), st.lists(st.text(max_size=20), max_size=6))
def test_more_texts_never_lack_more(some: list[str], more: list[str]) -> None:
    wish = requirements_of(SHORTS)
    assert wish.known_from([*some, *more]) == wish.known_from(some) | wish.known_from(more)


def test_buttons_stay_and_the_clicks_that_the_instruction_names_come_before_others() -> None:
    buttons = [f"click[b{n}]" for n in range(7)]
    clicks = [*buttons, *(f"click[{n} inches]" for n in range(100)), "click[navy]"]
    assert most_relevant(clicks, SHORTS, 9) == [*buttons, "click[0 inches]", "click[navy]"]
