"""Visits on random walks: beside a second, naive shop; what states are; what copies share."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.webshop import game as game_module
from agentgym_flow.envs.webshop.catalogue import Catalogue, MemoryCatalogue
from agentgym_flow.envs.webshop.game import Page, WebShopGame

QUERIES = ["trail shoe", "shoe TRAIL", "lamp", "warm weiß", "red", "cup", "nothing zzz", "<r>", " ", "[x]", "a\ud800b"]

JUNK = st.one_of(
    st.text(st.characters(), max_size=20),
    st.builds(
        "{}[{}]".format,
        st.sampled_from(["search", "click", "Search", "CLICK", "searches", "think"]),
        st.text("ab[] \n<r>\x00\u202e\ud800", max_size=8),
    ),
    st.sampled_from(["click[search]", "click[]", "search[]", "click[< prev", "buy now", "click[b0cup00001]", "search"]),
)
"""Any text, and texts that look like actions."""

STEPS = st.lists(
    st.one_of(
        *[st.integers(0, 30)] * 5,
        st.sampled_from(QUERIES).map("search[{}]".format),
        JUNK,
    ),
    max_size=40,
)
"""A walk: numbers are places among the clicks of the page, so that walks get somewhere."""


def told(visit: WebShopGame, step: int | str) -> str:
    """Return the action that a step of a walk means here. Buying comes last among the clicks."""
    if isinstance(step, str):
        return step
    names = sorted(visit.clickables(), key=lambda name: name == "buy now")
    return f"click[{names[step % len(names)]}]" if names else "click[buy now]"


def walked(visit: WebShopGame, steps: list[int | str]) -> WebShopGame:
    """Return the visit after a walk."""
    for step in steps:
        visit.act(told(visit, step))
    return visit


class NaiveShop:
    """The rules once more, the slow way: every page is made anew, and `< prev` searches again."""

    def __init__(self, catalogue: Catalogue, show_attributes: bool) -> None:
        self.catalogue = catalogue
        self.tabs = ["description", "features", "reviews"] + ["attributes"] * show_attributes
        self.product: Any = None
        self.go_home()

    def go_home(self) -> None:
        self.seen: set[str] = set()
        self.search("", 1)
        self.at = "index"

    def search(self, query: str, number: int) -> None:
        self.at, self.query, self.number, self.product, self.tab = "search_results", query, number, None, ""
        self.options: dict[str, str] = {}

    def listed(self) -> list[Any]:
        found = self.catalogue.search(self.query, 50)[10 * (self.number - 1) :][:10]
        return [self.catalogue.listing(n).product for n in found]

    def clickables(self) -> dict[str, Any]:
        if self.at in ("index", "done"):
            return {"search": "nothing"} if self.at == "index" else {}
        names: dict[str, Any] = {"back to search": "home"}
        if self.at != "search_results" or self.number > 1:
            names["< prev"] = "back"
        if self.at == "search_results":
            names["next >"] = "on"
            names |= {product.asin.lower(): product for product in self.listed()}
        if self.at == "item_page":
            names |= dict.fromkeys(self.tabs, "tab") | {"buy now": "buy"}
            for option, values in self.product.options.items():
                for value in values:
                    if value and not isinstance(names.get(value), str):
                        names[value.replace("\n", " ")] = (option, value)
        return names

    def act(self, action: str) -> bool:
        verb, _, rest = action.partition("[")
        argument = rest.partition("\n")[0].rpartition("]")[0].lower()
        if self.at == "done" or not argument or verb not in ("search", "click"):
            return False
        if verb == "search":
            self.search(argument.replace("\ud800", "\ufffd"), 1)
            return True
        what = self.clickables().get(argument)
        if what is None or argument == "search":
            return False
        if what == "home":
            self.go_home()
        elif what == "on":
            self.search(self.query, self.number + 1)
        elif what == "back" and self.tab:
            self.at, self.tab = "item_page", ""
        elif what == "back":
            self.search(self.query, self.number - (self.at == "search_results"))
        elif what == "tab":
            self.at, self.tab = "item_sub_page", argument
        elif what == "buy":
            self.at = "done"
        elif isinstance(what, tuple):
            self.options[what[0]] = what[1]
        else:
            self.at, self.product = "item_page", what
            self.seen.add(what.asin)
        return True


# -------------------------------------------------------------------- all rules at once
@settings(max_examples=300)
@given(steps=STEPS, show_attributes=st.booleans())
def test_a_visit_goes_as_the_naive_shop_does(
    shop: MemoryCatalogue, trip: SimpleNamespace, steps: list[int | str], show_attributes: bool
) -> None:
    visit, naive = WebShopGame(shop, trip.wish, show_attributes=show_attributes), NaiveShop(shop, show_attributes)
    for step in ["search[trail shoe]", *steps]:
        action = told(visit, step)
        assert visit.act(action) == naive.act(action), action
        assert visit.clickables() == list(naive.clickables())
        assert visit.clicks() == [f"click[{name}]" for name in naive.clickables() if name != "search"]
        assert visit.digest() == stable_hash(visit.identity())
        assert (visit.page.value, visit.sub_page.lower()) == (naive.at, naive.tab)
        assert (visit.product, visit.options) == (naive.product, naive.options)
        assert (visit.visited, visit.bought) == (naive.seen, naive.at == "done")
        assert (visit.number, " ".join(visit.keywords)) == (naive.number, naive.query)
        assert visit.found == tuple(shop.search(naive.query, 50))


@given(steps=STEPS, show_attributes=st.booleans())
def test_every_clickable_but_search_is_accepted_in_any_case(
    shop: MemoryCatalogue, trip: SimpleNamespace, steps: list[int | str], show_attributes: bool
) -> None:
    visit = walked(WebShopGame(shop, trip.wish, show_attributes=show_attributes), ["search[lamp]", *steps])
    for name in visit.clickables():
        assert name == name.lower()
        for argument in (name, name.upper() if name.isascii() else name):
            assert visit.copy().act(f"click[{argument}] and more") == (name != "search")


@given(steps=STEPS, junk=JUNK)
@example(steps=[], junk="click[search]")
@example(steps=[3, 0], junk="click[next >]")
def test_what_is_refused_changes_nothing(trip: SimpleNamespace, steps: list[int | str], junk: str) -> None:
    visit = trip.at("search[trail shoe]")
    for step in [*steps, junk]:
        before = trip.shown(visit)
        if not visit.act(told(visit, step)):
            assert trip.shown(visit) == before


@given(steps=STEPS)
def test_whatever_is_said_pages_can_be_written_as_utf8_and_states_as_json(
    trip: SimpleNamespace, steps: list[int | str]
) -> None:
    visit = trip.at()
    for step in steps:
        visit.act(told(visit, step))
        for part in trip.shown(visit):
            assert json.dumps(part, ensure_ascii=False).encode()


# -------------------------------------------------------------------- what a state is
def reachable(start: WebShopGame, actions: list[str], most: int) -> list[WebShopGame]:
    """Return visits that differ in anything that is kept, nearest first, trying `actions` and all clicks on each."""

    def kept(visit: WebShopGame) -> str:
        return repr((visit.query, visit.sub_page, sorted(visit.visited), visit.identity()))

    known, visits = {kept(start)}, [start]
    for visit in visits:
        for action in [*actions, *(f"click[{name}]" for name in visit.clickables())]:
            other = visit.copy()
            if other.act(action) and len(known) < most and kept(other) not in known:
                known.add(kept(other))
                visits.append(other)
    return visits


def test_equal_identities_have_equal_clicks_and_equal_futures(
    small_shop: SimpleNamespace, trip: SimpleNamespace
) -> None:
    make = small_shop.product
    shop = small_shop.catalogue(
        make("B000000001", "red shoe", options={"size": ("7", "8"), "width": ("8", "wide")}),
        make("B000000002", "red shoe again", options={"size": ("7",)}),
        *(make(f"B0000001{n:02}", "blue shoe") for n in range(11)),
    )
    actions = ["search[red]", "search[red red]", "search[blue]", "search[nothing]"]
    same = defaultdict(list)
    for visit in reachable(WebShopGame(shop, trip.wish), actions, 3000):
        same[json.dumps(visit.identity())].append(visit)
    for group in same.values():
        futures = set()
        for visit in group:
            future = [repr((visit.page, visit.clickables()))]
            for action in [*actions, *(f"click[{name}]" for name in visit.clickables())]:
                other = visit.copy()
                future.append(f"{action} {other.act(action)} {other.identity()}")
            futures.add("\n".join(future))
        assert len(futures) == 1
    merged = {visit.page for group in same.values() if len(group) > 1 for visit in group}
    assert merged == set(Page) - {Page.INDEX}  # the index page has only one state to begin with
    assert len(same) < 1500


@pytest.mark.parametrize(
    "then",
    [[], ["click[next >]"], ["click[b07s7hdc88]", "click[red]"], ["click[b07s7hdc88]", "click[reviews]"]],
)
def test_queries_that_find_the_same_are_one_state_on_every_page(trip: SimpleNamespace, then: list[str]) -> None:
    one, other = trip.at("search[trail shoe]", *then), trip.at("search[SHOES of trails]", *then)
    assert one.found == other.found
    assert one.keywords != other.keywords
    assert one.identity() == other.identity()


def test_the_order_of_choosing_the_texts_read_and_the_products_seen_do_not_make_a_state(trip: SimpleNamespace) -> None:
    one = trip.item("full", "click[red]", "click[7]")
    other = trip.item("brackets", "search[ridge runner]", "click[b07s7hdc88]", "click[6.5]", "click[7]", "click[red]")
    assert one.visited != other.visited
    assert one.identity() == other.identity()
    trip.walk(one, "click[description]")
    trip.walk(other, "click[features]")
    assert trip.shown(one)[0] != trip.shown(other)[0]
    assert one.identity() == other.identity()


def test_options_the_text_and_where_prev_leads_are_part_of_a_state(trip: SimpleNamespace) -> None:
    near, far = trip.at("search[trail shoe]", "click[b07s7hdc88]"), trip.item("full")
    assert near.clickables() == far.clickables()
    states = [near, far, trip.item("full", "click[red]"), trip.item("full", "click[reviews]")]
    states += [trip.item("full", "click[buy now]"), trip.item("full", "click[red]", "click[buy now]")]
    states += [trip.at("search[trail shoe]"), trip.at("search[trail shoe]", "click[next >]"), trip.at()]
    assert len({repr(visit.identity()) for visit in states}) == len(states)


# -------------------------------------------------------------------- copies, and what is shared
@given(steps=STEPS, more=STEPS)
def test_copies_go_their_own_way(
    shop: MemoryCatalogue, trip: SimpleNamespace, steps: list[int | str], more: list[int | str]
) -> None:
    visit = walked(trip.at("search[trail shoe]"), steps)
    before = trip.shown(visit)
    others = [copy.deepcopy(visit), copy.copy(visit), visit.copy()]
    for other in others:
        assert other.catalogue is shop
        assert trip.shown(other) == before
        walked(other, more)
        assert trip.shown(visit) == before
    assert len({repr(trip.shown(other)) for other in others}) == 1


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, WebShopGame.copy])
def test_a_copy_chooses_and_visits_for_itself(
    trip: SimpleNamespace, make: Callable[[WebShopGame], WebShopGame]
) -> None:
    visit = trip.item("full", "click[red]")
    other = trip.walk(make(visit), "click[7]", "click[navy | white]", "search[twin]", "click[b0collide1]")
    assert (visit.options, visit.visited) == ({"color": "red"}, {"B07S7HDC88"})
    assert (other.options, other.visited) == ({}, {"B07S7HDC88", "B0COLLIDE1"})
    trip.walk(make(visit), "click[7]")
    assert visit.options == {"color": "red"}


@pytest.mark.parametrize("actions", [[], ["search[trail shoe]"], ["search[runner]", "click[b07s7hdc88]", "click[red]"]])
def test_a_pickle_goes_on_where_the_visit_was(trip: SimpleNamespace, actions: list[str]) -> None:
    visit = trip.at(*actions)
    other = pickle.loads(pickle.dumps(visit))
    assert trip.shown(other) == trip.shown(visit)
    for action in ("click[features]", "click[< prev]", "search[lamp]", "click[b0brackets]"):
        assert other.act(action) == visit.act(action)
        assert trip.shown(other) == trip.shown(visit)


def test_what_is_handed_out_is_not_the_visits_own(trip: SimpleNamespace) -> None:
    visit = trip.item("full")
    before = trip.shown(visit)
    visit.clickables().clear()
    visit.identity().clear()
    assert trip.shown(visit) == before


def test_products_are_kept_ready_up_to_a_bound(
    shop: MemoryCatalogue, trip: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(game_module, "MOST_KEPT", 12)
    loaded: list[int] = []

    class Counting(MemoryCatalogue):
        def listing(self, number: int) -> Any:
            loaded.append(number)
            return super().listing(number)

    visit = WebShopGame(Counting(shop.listing(n) for n in range(len(shop))), trip.wish)
    first = trip.shown(trip.walk(visit, "search[trail shoe]"))
    trip.shown(trip.walk(visit, "click[b07s7hdc88]", "click[features]", "click[< prev]", "click[< prev]"))
    assert len(loaded) == 10, "a product that is kept is not loaded again"
    for query in ("lamp", "cup", "lamp"):
        trip.shown(trip.walk(visit, f"search[{query}]"))
        assert len(game_module._CARDS[visit.catalogue]) <= 12
    assert len(loaded) > 10
    assert trip.shown(trip.walk(visit, "click[back to search]", "search[trail shoe]")) == first


def test_a_shop_that_nobody_visits_is_forgotten(small_shop: SimpleNamespace, trip: SimpleNamespace) -> None:
    shop = small_shop.catalogue(small_shop.product("B000000001", "shoe"))
    trip.shown(trip.walk(WebShopGame(shop, trip.wish), "search[shoe]", "click[b000000001]"))
    seen = weakref.ref(shop)
    del shop
    gc.collect()
    assert seen() is None
