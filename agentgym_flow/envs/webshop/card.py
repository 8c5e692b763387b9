"""Products as the pages need them: what a click names, ready to look up, kept once for all visits to a catalogue."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

from agentgym_flow.envs.webshop.catalogue import Catalogue
from agentgym_flow.envs.webshop.product import Product

MOST_KEPT = 4096
"""So many products of a catalogue are kept ready, some kilobytes each; the oldest make room for new ones."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def shown(text: str) -> str:
    """Return the text as pages show it: without white space around it, and always possible to write as UTF-8."""
    text = text.strip()
    return text if text.isascii() else whole(text)


def whole(text: str) -> str:
    """Return the text with the replacement character for each half of a pair of surrogates."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def clickable(text: str) -> str:
    """Return what the brackets of a click hold for a visible text: the text in lower case, on one line."""
    return shown(text).replace("\n", " ").lower()


class Card:
    """A product that pages show.

    Attributes:
        number: its number in the catalogue.
        product: what the shop knows of it.
        name: what a click calls it: its ASIN in lower case.
        values: what a click calls an option -> the option's name and the value, in the product's order. Where two
            options share a value, it belongs to the later one, as upstream.
        click: the action that opens its page.
        texts: parts of observations, which `observe` keeps here.
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
        """Return the actions of its page: `buttons`, then a click for each option that is called otherwise."""
        found = self._clicks.get(buttons)
        if found is None:
            options = [f"click[{name}]" for name in self.values if name != "search"]
            found = self._clicks[buttons] = tuple(dict.fromkeys([*buttons, *options]))
        return found


class Cards:
    """The cards of one catalogue, at most `MOST_KEPT` at a time."""

    def __init__(self) -> None:
        self._kept: dict[int, Card] = {}

    def get(self, catalogue: Catalogue, number: int) -> Card:
        """Return the card of product `number`."""
        card = self._kept.get(number)
        if card is None:
            card = Card(number, catalogue.listing(number).product)
            if len(self._kept) >= MOST_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[number] = card
        return card


_CARDS: WeakKeyDictionary[Catalogue, Cards] = WeakKeyDictionary()


def cards_of(catalogue: Catalogue) -> Cards:
    """Return the cards of a catalogue, the same for every visit; they go when the catalogue goes."""
    cards = _CARDS.get(catalogue)
    return _CARDS.setdefault(catalogue, Cards()) if cards is None else cards
