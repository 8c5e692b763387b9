"""Products with precomputed click names, cached for all episodes of a catalogue."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from agentgym_flow._util.records import writable
from agentgym_flow.envs.webshop.catalogue import Catalogue
from agentgym_flow.envs.webshop.product import Product

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
        texts: a cache for parts of observations, used by `observe`.
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


class Cards:
    """The cached cards of one catalogue."""

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
    """Return the cards of a catalogue, shared by all episodes; they are freed with the catalogue."""
    cards = _CARDS.get(catalogue)
    return _CARDS.setdefault(catalogue, Cards()) if cards is None else cards
