"""The rules of a visit, one by one: what a text means, and what searches and clicks do."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.game import Page, WebShopGame

UPSTREAM = re.compile(r"(.+)\[(.+)\]")
"""The expression of upstream's grammar, matched at the start."""


# -------------------------------------------------------------------- the grammar
@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("search[Red SHOES]", "red shoes"),
        ("search[red shoes] because [it says so", "red shoes"),
        ("search[a] and [b]", "a] and [b"),
        ("search[a]]", "a]"),
        ("search[lamp [set of 2] with shade]", "lamp [set of 2] with shade"),
        ("search[a]\nsearch[b]", "a"),
        ("search[ ]", " "),
        ("search[<r> shoes]", "<r> shoes"),
        ("search[a\x00\u202eb]", "a\x00\u202eb"),
        ("search[half \ud83d pair]", "half \ufffd pair"),
    ],
)
def test_a_search_runs_from_the_first_bracket_to_the_last_of_its_line(
    shop: MemoryCatalogue, trip: SimpleNamespace, action: str, query: str
) -> None:
    visit = trip.at(action)
    assert visit.page is Page.RESULTS
    assert visit.keywords == tuple(query.split(" "))
    assert visit.found == tuple(shop.search(query))


@pytest.mark.parametrize(
    "action",
    [
        "", "search", "search[]", "search[shoes", "search shoes]", "Search[shoes]", "SEARCH[shoes]", " search[shoes]",
        "search [shoes]", "search[a\nb]", "\nsearch[shoes]", "think[shoes]", "research[shoes]", "<act>search[a]</act>",
        "click", "click[]", "Click[back to search]", "click[ back to search]", "click[nothing]", "click[search]",
    ],
)  # fmt: skip
def test_other_texts_are_refused(trip: SimpleNamespace, action: str) -> None:
    for visit in (trip.at(), trip.at("search[shoe]"), trip.item("full"), trip.item("full", "click[reviews]")):
        before = trip.shown(visit)
        assert not visit.act(action)
        assert trip.shown(visit) == before


@given(
    st.one_of(
        st.text(max_size=20),
        st.text("ab[] \n", max_size=8).map("search[{}".format),
        st.text("serch[] ]\n", max_size=12),
    )
)
def test_the_grammar_is_upstreams_but_for_brackets_within(trip: SimpleNamespace, action: str) -> None:
    """Every search that upstream reads is read alike; what only we read has a `[` in it."""
    visit, match = trip.at(), UPSTREAM.match(action)
    accepted = visit.act(action)
    if match is not None and match[1] == "search":
        assert accepted
        assert " ".join(visit.keywords) == match[2].lower()
    elif accepted:
        assert "[" in " ".join(visit.keywords)


@pytest.mark.parametrize("filling", ["shoe ", "[", "]", " ", "a]b[", "\u0301"])
def test_a_text_of_a_million_characters_is_one_action(trip: SimpleNamespace, filling: str) -> None:
    many = filling * (1_000_000 // len(filling))
    visit = trip.at(f"search[{many}]")
    assert not visit.act(f"click[{many}]")
    assert not visit.act("search[" * 100_000)


# -------------------------------------------------------------------- searches and pages of results
def test_a_search_is_accepted_on_every_page_and_forgets_product_and_options(
    shop: MemoryCatalogue, trip: SimpleNamespace
) -> None:
    visits = [
        trip.at(),
        trip.at("search[lamp]", "click[next >]"),
        trip.item("full", "click[red]"),
        trip.item("full", "click[red]", "click[description]"),
    ]
    assert [visit.page for visit in visits] == [Page.INDEX, Page.RESULTS, Page.ITEM, Page.SUB_PAGE]
    for visit in visits:
        trip.walk(visit, "search[cup]")
        assert (visit.page, visit.number, visit.product, visit.sub_page) == (Page.RESULTS, 1, None, "")
        assert visit.options == {}
        assert visit.found == tuple(shop.search("cup"))


def test_a_search_keeps_the_marks_of_visited_products(trip: SimpleNamespace) -> None:
    assert trip.item("full", "search[trail shoe]").visited == {"B07S7HDC88"}


def test_fifty_products_are_found_ten_a_page_and_next_goes_past_the_end(
    small_shop: SimpleNamespace, trip: SimpleNamespace
) -> None:
    shop = small_shop.catalogue(*(small_shop.product(f"B{n:09}", "red shoe") for n in range(60)))
    visit = trip.walk(WebShopGame(shop, trip.wish), "search[shoe]")
    assert visit.found == tuple(range(50))
    for number in range(1, 9):
        assert visit.number == number
        listed = [f"b{n:09}" for n in range(10 * (number - 1), 10 * number) if n < 50]
        before = ["back to search", "next >"] if number == 1 else ["back to search", "< prev", "next >"]
        assert visit.clickables() == before + listed
        trip.walk(visit, "click[next >]")
    for number in range(8, 0, -1):
        trip.walk(visit, "click[< prev]")
        assert visit.number == number
    assert not visit.act("click[< prev]")
    assert not visit.act("click[b000000010]"), "a product of the second page, while the first is shown"


def test_a_search_that_finds_nothing_is_valid(trip: SimpleNamespace) -> None:
    visit = trip.at("search[zzz]")
    assert (visit.page, visit.found, visit.clickables()) == (Page.RESULTS, (), ["back to search", "next >"])
    assert trip.walk(visit, "click[next >]").clickables() == ["back to search", "< prev", "next >"]


@pytest.mark.parametrize("word", ["<r>", "<a>", "<c>", "<q>"])
def test_first_words_that_upstreams_site_treats_specially_are_words(
    shop: MemoryCatalogue, trip: SimpleNamespace, word: str
) -> None:
    assert trip.at(f"search[{word} cup]").found == tuple(shop.search("cup"))
    assert trip.at(f"search[{word} garden]").found == ()  # a category is no text of any product


# -------------------------------------------------------------------- the way back
def test_prev_on_a_product_leads_to_its_page_of_results_and_forgets_options(trip: SimpleNamespace) -> None:
    way = ("search[trail shoe]", "click[next >]")
    visit = trip.at(*way, "click[b0collide1]", "click[thick]")
    assert visit.options == {"sole": "thick"}
    trip.walk(visit, "click[< prev]")
    assert (visit.page, visit.number, visit.product, visit.options) == (Page.RESULTS, 2, None, {})
    assert trip.shown(visit)[2:] == trip.shown(trip.at(*way))[2:]
    assert trip.walk(visit, "click[b0collide1]").options == {}


@pytest.mark.parametrize("title", ["Description", "Features", "Reviews"])
def test_prev_on_a_text_leads_to_the_product_and_keeps_options(trip: SimpleNamespace, title: str) -> None:
    visit = trip.item("full", "click[red]", f"click[{title}]")
    assert (visit.page, visit.sub_page) == (Page.SUB_PAGE, title)
    assert visit.clickables() == ["back to search", "< prev"]
    assert not visit.act("click[buy now]")
    assert not visit.act("click[7]")
    trip.walk(visit, "click[< prev]")
    assert (visit.page, visit.sub_page, visit.options) == (Page.ITEM, "", {"color": "red"})


@pytest.mark.parametrize("last", ["click[red]", "click[reviews]", "click[< prev]"])
def test_back_to_search_forgets_everything(trip: SimpleNamespace, last: str) -> None:
    back = trip.item("full", last, "click[back to search]")
    assert trip.shown(back) == trip.shown(trip.at())
    assert (back.keywords, back.found, back.product, back.options, back.visited) == ((), (), None, {}, set())
    # and so nothing is marked as visited when the product is found again
    assert "clicked" not in trip.shown(trip.walk(back, "search[trail shoe]"))[1]


# -------------------------------------------------------------------- options
def test_an_option_has_one_value_which_can_be_changed_but_not_taken_back(trip: SimpleNamespace) -> None:
    visit = trip.item("full", "click[red]", "click[8 WIDE]", "click[navy | white]", "click[navy | white]")
    assert visit.options == {"color": "navy | white", "size": "8 wide"}


def test_a_value_of_two_options_belongs_to_the_later_one(trip: SimpleNamespace) -> None:
    visit = trip.item("colliding")
    assert visit.clickables() == [
        "back to search", "< prev", "description", "features", "reviews", "buy now",
        "red", "thick", "white", "long", "search",
    ]  # fmt: skip
    assert trip.walk(visit, "click[thick]", "click[red]").options == {"sole": "thick", "lace": "red"}


def test_a_value_called_like_a_button_is_the_button(trip: SimpleNamespace) -> None:
    assert not trip.item("colliding").act("click[search]")
    bought = trip.item("colliding", "click[buy now]")
    assert (bought.bought, bought.options) == (True, {})


def test_options_with_brackets_or_line_breaks_can_be_chosen(trip: SimpleNamespace) -> None:
    for value in ("[2-pack]", "set of [4", "5]"):
        assert trip.item("brackets", f"click[{value}]").options == {"pack": value}
    assert trip.item("lines", "click[first second]").options == {"note": "first\nsecond"}


def test_a_value_without_a_name_is_not_offered(trip: SimpleNamespace) -> None:
    assert trip.at("search[warm]", "click[B0NOTITLE1]").clickables()[-2:] == ["buy now", "warm"]


# -------------------------------------------------------------------- buying, and the page of attributes
def test_buying_needs_no_option_and_ends_everything(trip: SimpleNamespace) -> None:
    visit = trip.item("full", "click[Buy Now]")
    assert (visit.page, visit.bought, visit.options, visit.clickables()) == (Page.DONE, True, {}, [])
    assert visit.product.asin == "B07S7HDC88"
    before = trip.shown(visit)
    for action in ("search[shoe]", "click[back to search]", "click[buy now]"):
        assert not visit.act(action)
        assert trip.shown(visit) == before


def test_attributes_are_a_page_only_where_they_are_shown(trip: SimpleNamespace) -> None:
    assert not trip.item("full").act("click[attributes]")
    visit = trip.item("full", show_attributes=True)
    assert visit.clickables()[:7] == [
        "back to search", "< prev", "description", "features", "reviews", "attributes", "buy now",
    ]  # fmt: skip
    assert trip.walk(visit, "click[attributes]").sub_page == "Attributes"
