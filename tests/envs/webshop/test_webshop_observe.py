"""How pages are shown as text, and the list of their texts that all ways of showing them are made from."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.game import WebShopGame
from agentgym_flow.envs.webshop.observation import Element, TextKind, elements, text, text_rich, url

INSTRUCTION = "Instruction: [SEP] i want trail shoes in red, and price lower than 40.00 dollars"

FULL = (
    "Back to Search [SEP] < Prev [SEP] size [SEP] 6.5 [SEP] 7 [SEP] 8 wide"
    " [SEP] color [SEP] dark grey [SEP] navy | white [SEP] red [SEP] Ridge Runner Trail Shoe for Men"
    " [SEP] Price: $15.99 to $32.99 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
)


def everywhere(shop: MemoryCatalogue, trip: SimpleNamespace) -> list[WebShopGame]:
    """Return visits to every page of every product, and to pages of results, with and without attributes."""
    found = [trip.at()]
    for number in range(len(shop)):
        product = shop.listing(number).product
        for shows in (False, True):
            visit = WebShopGame(shop, trip.wish, show_attributes=shows)
            visit.act(f"search[{product.index_text}]".replace("\n", " "))
            found.append(visit.copy())
            assert visit.act(f"click[{product.asin}]")
            for name in visit.clickables()[2:]:
                if name != "search":
                    found.append(visit.copy())
                    found[-1].act(f"click[{name}]")
    return found


# -------------------------------------------------------------------- text
def test_the_index_page_shows_instruction_and_search(trip: SimpleNamespace) -> None:
    assert text(trip.at()) == f"WebShop [SEP] {INSTRUCTION} [SEP] Search"


def test_a_page_of_results_shows_its_number_products_and_prices(trip: SimpleNamespace) -> None:
    visit = trip.at("search[cup]")
    cups = "B0CUP00001 [SEP] Blue Tea Cup [SEP] $5.5 [SEP] B0CUP00002 [SEP] Green Tea Cup [SEP] $7.0"
    head = f"{INSTRUCTION} [SEP] Back to Search [SEP] Page"
    assert text(visit) == f"{head} 1 (Total results: 2) [SEP] Next > [SEP] {cups}"
    trip.walk(visit, "click[next >]")
    assert text(visit) == f"{head} 2 (Total results: 2) [SEP] < Prev [SEP] Next >"
    assert text(trip.at("search[zzz]")) == f"{head} 1 (Total results: 0) [SEP] Next >"


def test_text_of_a_product_does_not_show_what_is_chosen(trip: SimpleNamespace) -> None:
    assert text(trip.item("full")) == f"{INSTRUCTION} [SEP] {FULL}"
    assert text(trip.item("full", "click[red]", "click[7]")) == f"{INSTRUCTION} [SEP] {FULL}"
    shows = trip.item("full", show_attributes=True)
    assert text(shows) == f"{INSTRUCTION} [SEP] {FULL}".replace("Reviews", "Reviews [SEP] Attributes")
    assert text(trip.item("full")) == f"{INSTRUCTION} [SEP] {FULL}"  # what is kept of the one is not for the other


@pytest.mark.parametrize(
    ("title", "body"),
    [
        ("description", " [SEP] A light shoe for stony paths."),
        ("features", " [SEP] rubber sole [SEP] machine washable [SEP] arch support"),
        ("reviews", ""),
        (
            "attributes",
            " [SEP] rubber sole [SEP] arch support [SEP] fashion [SEP] trail shoes"
            " [SEP] Clothing \u203a Shoes \u203a Trail",
        ),
    ],
)
def test_each_page_of_texts_shows_its_own_texts(trip: SimpleNamespace, title: str, body: str) -> None:
    visit = trip.item("full", f"click[{title}]", show_attributes=True)
    assert text(visit) == f"{INSTRUCTION} [SEP] Back to Search [SEP] < Prev{body}"


def test_text_after_buying_tells_the_score_once_it_is_known(trip: SimpleNamespace) -> None:
    visit = trip.item("full", "click[buy now]")
    assert text(visit) == f"{INSTRUCTION} [SEP] Thank you for your purchase!"
    visit.score = 2 / 3
    score = "Your score (min 0.0, max 1.0) [SEP] 0.6667"
    assert text(visit) == f"{INSTRUCTION} [SEP] Thank you for your purchase! [SEP] {score}"
    assert text_rich(visit) == text(visit).replace(" [SEP] ", "\n") + "\n"


def test_empty_texts_are_left_out_and_empty_bullets_are_not(trip: SimpleNamespace) -> None:
    assert text(trip.at("search[bright]", "click[b0sep00001]", "click[features]")).endswith(
        "< Prev [SEP] bright [SEP] light [SEP]  [SEP] cosy"
    )
    assert text(trip.item("lines", "click[reviews]")).endswith("[SEP] < Prev")
    untitled = text(trip.at("search[warm]"))
    assert untitled.endswith("Next > [SEP] B0NOTITLE1 [SEP] $20.0")
    assert "light [SEP] warm [SEP] Price: $20.0" in text(trip.at("search[warm]", "click[b0notitle1]"))


# -------------------------------------------------------------------- text_rich
def test_text_rich_marks_the_button_of_the_index_page(trip: SimpleNamespace) -> None:
    assert text_rich(trip.at()).splitlines() == [
        "WebShop",
        "Instruction: ",
        INSTRUCTION.split(" [SEP] ")[1],
        "[button] Search [button_]",
    ]
    assert text_rich(trip.at()).endswith("[button_]\n")


def test_text_rich_marks_visited_products(trip: SimpleNamespace) -> None:
    visit = trip.item("full", "search[ridge runner number 3]")
    lines = text_rich(visit).split("\n")
    assert lines[:7] == [
        *INSTRUCTION.split(" [SEP] "),
        "[button] Back to Search [button_]",
        "Page 1 (Total results: 12)",
        "[button] Next > [button_]",
        "",
        "[clicked button] B07S7HDC88 [clicked button_]",
    ]
    assert lines[7:12] == [
        "Ridge Runner Trail Shoe for Men",
        "$15.99 to $32.99",
        "",
        "[button] B0SHOE03XX [button_]",
        "Plain Trail Shoe Number 3",
    ]


def test_text_rich_marks_chosen_options_and_tells_them_first(trip: SimpleNamespace) -> None:
    visit = trip.item("full", "click[red]", "click[navy | white]", "click[7]")
    assert text_rich(visit).split("\n") == [
        "You have clicked navy | white.",
        "You have clicked 7.",
        *INSTRUCTION.split(" [SEP] "),
        "[button] Back to Search [button_]",
        "[button] < Prev [button_]",
        "size",
        "  [button] 6.5 [button_]",
        "  [clicked button] 7 [clicked button_]",
        "  [button] 8 wide [button_]",
        "color",
        "  [button] dark grey [button_]",
        "  [clicked button] navy | white [clicked button_]",
        "  [button] red [button_]",
        "Ridge Runner Trail Shoe for Men",
        "Price: $15.99 to $32.99",
        "Rating: N.A.",
        "[button] Description [button_]",
        "[button] Features [button_]",
        "[button] Reviews [button_]",
        "[button] Buy Now [button_]",
        "",
    ]
    assert "You have" not in text_rich(trip.walk(visit, "click[features]"))


def test_text_rich_marks_a_shared_value_under_the_option_that_has_it(trip: SimpleNamespace) -> None:
    lines = text_rich(trip.item("colliding", "click[red]")).split("\n")
    assert lines.count("You have clicked red.") == 1
    at = lines.index("lace")
    assert lines[at - 2 : at + 2] == [
        "  [button] red [button_]",
        "  [button] thick [button_]",
        "lace",
        "  [clicked button] red [clicked button_]",
    ]


# -------------------------------------------------------------------- url
def test_urls_have_the_shape_of_upstreams(trip: SimpleNamespace) -> None:
    shop = "http://127.0.0.1:3000"
    assert url(trip.at()) == f"{shop}/session"
    assert url(trip.at("search[Ridge  Runner]", "click[next >]")) == f"{shop}/search_results/session/ridge++runner/2"
    visit = trip.item("full", "click[red]", "click[7]")
    options = '{"color": "red", "size": "7"}'
    assert url(visit) == f"{shop}/item_page/session/B07S7HDC88/ridge+runner/1/{options}"
    trip.walk(visit, "click[features]")
    options = "{'color': 'red', 'size': '7'}"
    assert url(visit) == f"{shop}/item_sub_page/session/B07S7HDC88/ridge+runner/1/Features/{options}"
    trip.walk(visit, "click[< prev]", "click[buy now]")
    assert url(visit) == f"{shop}/done/session/B07S7HDC88/{options}"


def test_no_way_of_showing_a_page_tells_which_goal_it_is(shop: MemoryCatalogue) -> None:
    """Two goals that differ in all but the instruction look alike."""
    for actions in ([], ["search[trail shoe]"], ["search[trail shoe]", "click[b07s7hdc88]", "click[buy now]"]):
        seen = set()
        for number in (123_456, 654_321):
            goal = SimpleNamespace(number=number, product=number, asin=f"B{number:09}", instruction="buy it")
            visit = WebShopGame(shop, goal)  # type: ignore[arg-type]
            for action in actions:
                assert visit.act(action)
            seen.add((text(visit), text_rich(visit), url(visit), repr(elements(visit)), repr(visit.identity())))
        assert len(seen) == 1


# -------------------------------------------------------------------- the list of texts
def test_all_ways_of_showing_a_page_have_its_texts(shop: MemoryCatalogue, trip: SimpleNamespace) -> None:
    for visit in everywhere(shop, trip):
        parts = elements(visit)
        assert text(visit) == " [SEP] ".join(part.text for part in parts)
        rich = text_rich(visit)
        at = 0
        for part in parts:
            at = rich.index(part.text, at) + len(part.text)


def test_clicks_of_the_texts_are_the_clickables(shop: MemoryCatalogue, trip: SimpleNamespace) -> None:
    for visit in everywhere(shop, trip):
        parts = elements(visit)
        named = {part.name for part in parts if part.name}
        assert named == set(visit.clickables())
        # Buttons and products come in the document's order, and options, which stand between buttons, after them.
        first = [part.name for part in parts if part.name and part.kind is not TextKind.OPTION]
        last = [part.name for part in parts if part.kind is TextKind.OPTION and part.name]
        assert visit.clickables() == list(dict.fromkeys(first + last))
        for part in parts:
            if part.action and part.name != "search":
                assert visit.copy().act(part.action)


def test_texts_are_single_and_writable(shop: MemoryCatalogue, trip: SimpleNamespace) -> None:
    for visit in everywhere(shop, trip):
        for part in elements(visit):
            assert part.node != ""
            assert part.text or part.kind is TextKind.BULLET
            assert part.node.encode()


@given(name=st.text(max_size=20), value=st.text(max_size=8), bullet=st.text(max_size=12), told=st.text(max_size=12))
def test_any_text_of_a_product_or_goal_can_be_shown(
    small_shop: SimpleNamespace, name: str, value: str, bullet: str, told: str
) -> None:
    hostile = {"description": name, "bullets": [bullet], "options": {name: (value, bullet)}, "category": bullet}
    shop = small_shop.catalogue(small_shop.product("B000000001", f"shoe {name}\ud800", **hostile))
    visit = WebShopGame(shop, SimpleNamespace(instruction=told + "\udfff"), show_attributes=True)  # type: ignore[arg-type]
    for action in ("search[shoe]", "click[b000000001]", "click[features]", "click[< prev]", "click[attributes]"):
        assert visit.act(action)
        for page in (text(visit), text_rich(visit), url(visit)):
            assert page.encode()
        assert {part.name for part in elements(visit) if part.name} == set(visit.clickables())
        assert all(visit.copy().act(f"click[{clicked}]") for clicked in visit.clickables() if clicked != "search")


def test_elements_tell_action_mark_product_and_option(trip: SimpleNamespace) -> None:
    visit = trip.item("full", "click[red]", "search[ridge runner]")
    link = next(part for part in elements(visit) if part.kind is TextKind.PRODUCT)
    assert (link.action, link.marked, link.product) == ("click[b07s7hdc88]", True, trip.item("full").product)
    visit = trip.item("full", "click[red]")
    chosen = [part for part in elements(visit) if part.marked]
    assert chosen == [Element(TextKind.OPTION, "red", "red", "color", "red", True)]
    bar = [part for part in elements(trip.at()) if part.name]
    assert [(part.kind, part.name, part.action) for part in bar] == [(TextKind.SEARCH, "search", "")]
