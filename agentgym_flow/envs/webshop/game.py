"""The rules of the shop: one visit of a customer, one search or click at a time.

Pages, clicks and what they remember are upstream's (Yao et al., 2022), its quirks included:

- A search is possible on every page. It forgets the product and the chosen options.
- `next >` is offered past the last page too, and leads to empty pages.
- `< prev` on a product leads to the results and forgets the options; on a page of its texts it leads to the product
  and keeps them.
- A value that two options share belongs to the later option. A value that is called like a button is the button.
- An option can be changed, but not taken back. Buying needs none.

Different on purpose:

- `search[...]` and `click[...]` run from the first `[` to the last `]` of the line; what follows is ignored.
  Upstream's expression starts at the *last* `[`, so that `search[lamp [set of 2]]` and a click on an option with a `[`
  do nothing there. All other texts are accepted or refused as there.
- A line break in the name of an option or product is a blank in its click, because an action ends with its line.
- `<r>`, `<a>`, `<c>` and `<q>` as the first word of a query are words. Upstream's site gives them a meaning that shows
  what goals are made of.
- After buying nothing is accepted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from agentgym_flow.envs.webshop.card import Card, cards_of, clickable, whole
from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue
from agentgym_flow.envs.webshop.product import Product
from agentgym_flow.seeding import stable_hash

if TYPE_CHECKING:
    from agentgym_flow.envs.webshop.goals import WebShopGoal

PER_PAGE = 10
"""The number of products on a page of results."""

SEARCH = "Search"
BACK_TO_SEARCH = "Back to Search"
PREVIOUS = "< Prev"
NEXT = "Next >"
BUY = "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
ATTRIBUTES = "Attributes"
"""The page of a product's texts that is there only with `show_attributes`: it shows what goals are made of."""

_quoted = json.encoder.encode_basestring_ascii
_ACTION = re.compile(r"(search|click)\[(.+)\]")


class Page(StrEnum):
    """The pages, under the names that upstream's addresses have."""

    INDEX = "index"
    RESULTS = "search_results"
    ITEM = "item_page"
    SUB_PAGE = "item_sub_page"
    DONE = "done"


_INDEX_DIGEST = stable_hash([Page.INDEX.value])


def sub_pages(show_attributes: bool) -> tuple[str, ...]:
    """Return the titles of the pages that a product has besides its own."""
    return (*SUB_PAGES, ATTRIBUTES) if show_attributes else SUB_PAGES


@cache
def _buttons(page: Page, first: bool, show_attributes: bool) -> dict[str, str]:
    """Return what a click calls the buttons of a page -> their labels, in the page's order."""
    labels: tuple[str, ...] = ()
    if page is Page.INDEX:
        labels = (SEARCH,)
    elif page is Page.RESULTS:
        labels = (BACK_TO_SEARCH, NEXT) if first else (BACK_TO_SEARCH, PREVIOUS, NEXT)
    elif page is Page.ITEM:
        labels = (BACK_TO_SEARCH, PREVIOUS, *sub_pages(show_attributes), BUY)
    elif page is Page.SUB_PAGE:
        labels = (BACK_TO_SEARCH, PREVIOUS)
    return {clickable(label): label for label in labels}


@cache
def _clicks(page: Page, first: bool, show_attributes: bool) -> tuple[str, ...]:
    """Return the actions that click the buttons of a page, in its order."""
    return tuple(f"click[{name}]" for name in _buttons(page, first, show_attributes) if name != "search")


class WebShopGame:
    """A visit to the shop with a goal. Copies are independent; they share the catalogue and the goal.

    Args:
        catalogue: the products and their search engine.
        goal: what is wanted; its instruction is on every page.
        show_attributes: whether products have a page with the attributes that goals are made of.

    Attributes:
        page: where the customer is.
        query: what was searched for last, in lower case; empty on the index page.
        found: the numbers of the products that this search found, best first.
        number: which page of results this is, or was before a product was opened, from 1.
        sub_page: the title of the page of texts, empty on others.
        options: the chosen options of the present product, name -> value, in the order of the first choice.
        visited: the ASINs of the products that were opened since the index page; they only mark links.
        bought: whether the visit is over.
        score: what the purchase is worth; whoever knows that sets it, so that the last page shows it.
    """

    __slots__ = (
        "_cards",
        "_found_text",
        "_listed",
        "_opened",
        "bought",
        "catalogue",
        "found",
        "goal",
        "number",
        "options",
        "page",
        "query",
        "score",
        "show_attributes",
        "sub_page",
        "visited",
    )

    def __init__(self, catalogue: Catalogue, goal: WebShopGoal, *, show_attributes: bool = False) -> None:
        self.catalogue = catalogue
        self.goal = goal
        self.show_attributes = show_attributes
        self.bought = False
        self.score: float | None = None
        self._cards = cards_of(catalogue)
        self._enter()

    def _enter(self) -> None:
        """Go to the index page, where nothing is remembered."""
        self.page = Page.INDEX
        self.query = ""
        self.found: tuple[int, ...] = ()
        self._listed: tuple[int, tuple[Card, ...], tuple[str, ...]] | None = None
        self._found_text = ""
        self.number = 1
        self._opened: int | None = None
        self.sub_page = ""
        self.options: dict[str, str] = {}
        self.visited: set[str] = set()

    # ---------------------------------------------------------------- copies
    def __copy__(self) -> WebShopGame:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> WebShopGame:
        return self.copy()

    def copy(self) -> WebShopGame:
        """Return an independent copy."""
        other = object.__new__(type(self))
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.options, other.visited = self.options.copy(), self.visited.copy()
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("_cards", "_listed")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._cards = cards_of(self.catalogue)
        self._listed = None

    # ---------------------------------------------------------------- what is here
    @property
    def keywords(self) -> tuple[str, ...]:
        """The words of the query: what stands between single blanks. Empty on the index page."""
        return tuple(self.query.split(" ")) if self.query else ()

    @property
    def card(self) -> Card | None:
        """The product of this page as the pages need it; None on pages without one."""
        return None if self._opened is None else self._cards.get(self.catalogue, self._opened)

    @property
    def product(self) -> Product | None:
        """The product that is open, or was bought; None on other pages."""
        return None if self._opened is None else self._cards.get(self.catalogue, self._opened).product

    def listed(self) -> list[Card]:
        """Return the products that this page of results lists; none past the last page, and on other pages."""
        return list(self._results()[1]) if self.page is Page.RESULTS else []

    def _results(self) -> tuple[int, tuple[Card, ...], tuple[str, ...]]:
        """Return the number of the page of results, its products, and its clicks; each step asks for them again."""
        if self._listed is None or self._listed[0] != self.number:
            start = (self.number - 1) * PER_PAGE
            cards = [self._cards.get(self.catalogue, number) for number in self.found[start : start + PER_PAGE]]
            buttons = _clicks(Page.RESULTS, self.number == 1, self.show_attributes)
            clicks = dict.fromkeys([*buttons, *[card.click for card in cards if card.name]])
            self._listed = self.number, tuple(cards), tuple(clicks)
        return self._listed

    def buttons(self) -> Mapping[str, str]:
        """Return what a click calls the buttons of this page -> their labels, in the page's order."""
        return _buttons(self.page, self.number == 1, self.show_attributes)

    def clickables(self) -> list[str]:
        """Return what `click[...]` may hold here, in lower case: the buttons, then the products or the options.

        A fresh list, in the page's order. `search` is listed as upstream lists it, but clicking it does nothing.
        """
        names = list(self.buttons())
        if self.page is Page.RESULTS:
            names += [card.name for card in self.listed() if card.name]
        elif self.page is Page.ITEM and (card := self.card):
            names += card.values
        return list(dict.fromkeys(names))

    def clicks(self) -> list[str]:
        """Return the actions that click what `clickables` names, `search` left out, in the same order; a fresh list."""
        if self.page is Page.RESULTS:
            return [*self._results()[2]]
        buttons = _clicks(self.page, self.number == 1, self.show_attributes)
        card = self.card if self.page is Page.ITEM else None
        return [*buttons] if card is None else [*card.clicks(buttons)]

    def identity(self) -> list[Any]:
        """Return what decides the future, JSON-able: equal identities, equal clicks and equal pages from here on.

        Queries that found the same products in the same order are one state, because nothing but going back to these
        results remembers them. The pages of a product's texts are one state, because all lead to the same places; so
        are visits that saw different products before, whatever marks the links. The index page remembers nothing.
        """
        if self.page is Page.INDEX:
            return [self.page.value]
        options = sorted(self.options.items())
        if self.page is Page.DONE:
            return [self.page.value, self._opened, options]
        return [self.page.value, self._found_text, self.number, self._opened, options]

    def digest(self) -> str:
        """Return `stable_hash(identity())`; of most pages it is written down here, in a fraction of the time."""
        if self.page is Page.INDEX:
            return _INDEX_DIGEST
        if self.page is Page.DONE:
            return stable_hash(self.identity())
        opened = "null" if self._opened is None else self._opened
        chosen = sorted(self.options.items()) if self.options else ()
        options = ",".join([f"[{_quoted(name)},{_quoted(value)}]" for name, value in chosen])
        written = f'["{self.page}","{self._found_text}",{self.number},{opened},[{options}]]'
        return hashlib.sha256(written.encode("ascii")).hexdigest()

    # ---------------------------------------------------------------- searches and clicks
    def act(self, text: str) -> bool:
        """Do what a text says; return whether it is an action of this page. If not, nothing changes.

        Never raises, whatever the text.
        """
        match = None if self.bought else _ACTION.match(text)
        if match is None:
            return False
        argument = match[2].lower()
        if match[1] == "search":
            self._search(whole(argument))
            return True
        return self._click(argument)

    def _search(self, query: str) -> None:
        self._listed = None
        self.found = tuple(self.catalogue.search(query, HITS))
        self._found_text = ",".join(map(str, self.found))
        self.query = query
        self.number = 1
        self._to_results()

    def _to_results(self) -> None:
        self.page = Page.RESULTS
        self._opened = None
        self.sub_page = ""
        self.options = {}

    def _click(self, name: str) -> bool:
        if name == "search":
            return False
        label = self.buttons().get(name)
        if label is not None:
            self._press(label)
            return True
        if self.page is Page.RESULTS:
            for card in self.listed():
                if card.name == name:
                    self._open(card)
                    return True
        elif self.page is Page.ITEM and (opened := self.card) and name in opened.values:
            option, value = opened.values[name]
            self.options[option] = value
            return True
        return False

    def _open(self, card: Card) -> None:
        self.page = Page.ITEM
        self._opened = card.number
        self.visited.add(card.product.asin)

    def _press(self, label: str) -> None:
        if label == BACK_TO_SEARCH:
            self._enter()
        elif label == NEXT:
            self.number += 1
        elif label == BUY:
            self.page = Page.DONE
            self.bought = True
        elif label != PREVIOUS:
            self.page = Page.SUB_PAGE
            self.sub_page = label
        elif self.page is Page.RESULTS:
            self.number -= 1
        elif self.page is Page.SUB_PAGE:
            self.page = Page.ITEM
            self.sub_page = ""
        else:
            self._to_results()
