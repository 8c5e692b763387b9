"""The rules and state of one episode in the shop.

Pages, clicks and state are those of the original WebShop (Yao et al., 2022), including its quirks:

- A search is possible on every page. It clears the product and the chosen options.
- `next >` is also offered after the last page of results, and leads to empty pages.
- `< prev` on a product page leads to the results and clears the options. On a page of the product's texts it leads to
  the product page and keeps the options.
- A value that two options share belongs to the later option. A value with the name of a button means the button.
- A chosen option can be changed, but not removed. Buying does not require options.

Intentional differences:

- The text in the brackets of `search[...]` and `click[...]` runs from the first `[` to the last `]` of the line; the
  rest is ignored. In the original it starts at the *last* `[`, so `search[lamp [set of 2]]` and clicks on options with
  `[` do nothing. All other texts are valid or invalid as in the original.
- A line break in the name of an option or product becomes a space in its click, because an action is one line.
- `<r>`, `<a>`, `<c>` and `<q>` as the first word of a query are ordinary words. In the original site they have special
  meanings, which reveal the data of goals.
- All actions after the purchase are invalid.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agentgym_flow._util.records import writable
from agentgym_flow.core import stable_hash
from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue, Product

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
"""A further page of texts, only with `show_attributes`. It reveals the attributes that goals are made of."""

_quoted = json.encoder.encode_basestring_ascii
_ACTION = re.compile(r"(search|click)\[(.+)\]")


class Page(StrEnum):
    """The kinds of page, named as in the addresses of the original."""

    INDEX = "index"
    RESULTS = "search_results"
    ITEM = "item_page"
    SUB_PAGE = "item_sub_page"
    DONE = "done"


_INDEX_DIGEST = stable_hash([Page.INDEX.value])


def sub_pages(show_attributes: bool) -> tuple[str, ...]:
    """Return the titles of the pages with a product's texts."""
    return (*SUB_PAGES, ATTRIBUTES) if show_attributes else SUB_PAGES


@cache
def _buttons(page: Page, first: bool, show_attributes: bool) -> dict[str, str]:
    """Return the buttons of a page in order: name in a click -> label."""
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
    """Return the click actions for the buttons of a page, in order."""
    return tuple(f"click[{name}]" for name in _buttons(page, first, show_attributes) if name != "search")


class WebShopGame:
    """One episode. Copies are independent, but share the catalogue and the goal.

    Args:
        catalogue: the products and their search engine.
        goal: the goal, whose instruction is on every page.
        show_attributes: whether products have a page with the attributes that goals are made of.

    Attributes:
        page: the current page.
        query: the last query in lower case; empty on the index page.
        found: the numbers of the products that this query found, best first.
        number: the number of the current or last page of results, from 1.
        sub_page: the title of the page of texts; empty on other pages.
        options: the chosen options of the open product, name -> value, in the order of the first choice.
        visited: the ASINs of the products that were opened since the index page; they only affect marks of links.
        bought: whether the episode is over.
        score: the score of the purchase, set by the environment and shown on the last page.
    """

    def __init__(self, catalogue: Catalogue, goal: WebShopGoal, *, show_attributes: bool = False) -> None:
        self.catalogue = catalogue
        self.goal = goal
        self.show_attributes = show_attributes
        self.bought = False
        self.score: float | None = None
        self._cards = _CARDS.setdefault(catalogue, {})
        self._enter()

    def _enter(self) -> None:
        """Go to the index page, which resets the state."""
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
    def __deepcopy__(self, memo: dict[int, Any]) -> WebShopGame:
        return self.copy()

    def copy(self) -> WebShopGame:
        """Return an independent copy."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.options, other.visited = self.options.copy(), self.visited.copy()
        return other

    __copy__ = copy

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_cards", "_listed")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _cards=_CARDS.setdefault(state["catalogue"], {}), _listed=None)

    # ---------------------------------------------------------------- state
    @property
    def keywords(self) -> tuple[str, ...]:
        """The words of the query, separated by single spaces; empty on the index page."""
        return tuple(self.query.split(" ")) if self.query else ()

    @property
    def card(self) -> Card | None:
        """The card of the open or bought product; None on other pages."""
        return None if self._opened is None else self._card_of(self._opened)

    @property
    def product(self) -> Product | None:
        """The open or bought product; None on other pages."""
        return None if self._opened is None else self._card_of(self._opened).product

    def _card_of(self, number: int) -> Card:
        card = self._cards.get(number)
        if card is None:
            card = Card(number, self.catalogue.listing(number).product)
            if len(self._cards) >= MOST_KEPT:
                self._cards.pop(next(iter(self._cards)), None)
            self._cards[number] = card
        return card

    def listed(self) -> list[Card]:
        """Return the products on the current page of results; empty after the last page, and on other pages."""
        return list(self._results()[1]) if self.page is Page.RESULTS else []

    def _results(self) -> tuple[int, tuple[Card, ...], tuple[str, ...]]:
        """Return the number of the page of results, its products, and its clicks (cached)."""
        if self._listed is None or self._listed[0] != self.number:
            start = (self.number - 1) * PER_PAGE
            cards = [self._card_of(number) for number in self.found[start : start + PER_PAGE]]
            buttons = _clicks(Page.RESULTS, self.number == 1, self.show_attributes)
            clicks = dict.fromkeys([*buttons, *[card.click for card in cards if card.name]])
            self._listed = self.number, tuple(cards), tuple(clicks)
        return self._listed

    def buttons(self) -> Mapping[str, str]:
        """Return the buttons of the current page in order: name in a click -> label."""
        return _buttons(self.page, self.number == 1, self.show_attributes)

    def clickables(self) -> list[str]:
        """Return the valid contents of `click[...]` in lower case and page order: buttons, then products or options.

        `search` is in the list, as in the original, although a click on it is invalid.
        """
        names = list(self.buttons())
        if self.page is Page.RESULTS:
            names += [card.name for card in self.listed() if card.name]
        elif self.page is Page.ITEM and (card := self.card):
            names += card.values
        return list(dict.fromkeys(names))

    def clicks(self) -> list[str]:
        """Return the click actions for `clickables()` without `search`, in the same order."""
        if self.page is Page.RESULTS:
            return [*self._results()[2]]
        buttons = _clicks(self.page, self.number == 1, self.show_attributes)
        card = self.card if self.page is Page.ITEM else None
        return [*buttons] if card is None else [*card.clicks(buttons)]

    def identity(self) -> list[Any]:
        """Return the state as JSON values. Equal identities imply equal clicks and results of all further actions.

        Queries that found the same products in the same order are one state, because the state depends on a query only
        through its results. The pages of a product's texts are one state, because they have the same successors.
        `visited` is not part of the state, because it only affects marks. The index page has no further state.
        """
        if self.page is Page.INDEX:
            return [self.page.value]
        options = sorted(self.options.items())
        if self.page is Page.DONE:
            return [self.page.value, self._opened, options]
        return [self.page.value, self._found_text, self.number, self._opened, options]

    def digest(self) -> str:
        """Return `stable_hash(identity())`, with a faster serialisation for most pages."""
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
        """Apply an action and return whether it was valid. Never raises; an invalid action changes nothing."""
        match = None if self.bought else _ACTION.match(text)
        if match is None:
            return False
        argument = match[2].lower()
        if match[1] == "click":
            return self._click(argument)
        self._listed = None
        self.query = writable(argument)
        self.found = tuple(self.catalogue.search(self.query, HITS))
        self._found_text = ",".join(map(str, self.found))
        self.number = 1
        self._to_results()
        return True

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
                    self.page = Page.ITEM
                    self._opened = card.number
                    self.visited.add(card.product.asin)
                    return True
        elif self.page is Page.ITEM and (opened := self.card) and name in opened.values:
            option, value = opened.values[name]
            self.options[option] = value
            return True
        return False

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


MOST_KEPT = 4096
"""The number of cached cards per catalogue, some kilobytes each; the oldest are dropped first."""


def shown(text: str) -> str:
    """Return the text as on a page: stripped, with lone surrogates replaced."""
    return writable(text.strip())


def clickable(text: str) -> str:
    """Return the name of a visible text in a click: in lower case, on one line."""
    return shown(text).replace("\n", " ").lower()


class Card:
    """A product for display on pages.

    Attributes:
        number: its number in the catalogue.
        product: the product.
        name: its name in a click: the ASIN in lower case.
        values: name of an option value in a click -> (option, value), in the product's order. A value that two options
            share belongs to the later one, as in the original.
        click: the action that opens its page.
        texts: a cache for parts of observations, used by `observation`.
    """

    __slots__ = ("_clicks", "click", "name", "number", "product", "texts", "values")

    def __init__(self, number: int, product: Product) -> None:
        self.number = number
        self.product = product
        self.name = clickable(product.asin)
        self.values = {
            name: (option, value)
            for option, values in product.options.items()
            for value in values
            if (name := clickable(value))
        }
        self.click = f"click[{self.name}]"
        self.texts: dict[str, str] = {}
        self._clicks: dict[tuple[str, ...], tuple[str, ...]] = {}

    def clicks(self, buttons: tuple[str, ...]) -> tuple[str, ...]:
        """Return the actions of the product page: `buttons`, then a click for each option value with another name."""
        found = self._clicks.get(buttons)
        if found is None:
            options = [f"click[{name}]" for name in self.values if name != "search"]
            found = self._clicks[buttons] = tuple(dict.fromkeys([*buttons, *options]))
        return found


_CARDS: WeakKeyDictionary[Catalogue, dict[int, Card]] = WeakKeyDictionary()
"""The cards of a catalogue by number, shared by all episodes; they are freed with the catalogue."""
