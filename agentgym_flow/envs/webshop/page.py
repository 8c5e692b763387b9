"""The current page as a list of its visible texts, from which all observation modes are made."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from agentgym_flow._util.records import writable
from agentgym_flow.envs.webshop.card import Card, clickable
from agentgym_flow.envs.webshop.game import (
    ATTRIBUTES,
    BACK_TO_SEARCH,
    BUY,
    NEXT,
    PREVIOUS,
    SEARCH,
    Page,
    WebShopGame,
    sub_pages,
)
from agentgym_flow.envs.webshop.product import Product

_ASCII_SPACES = " \n\t\f\r"


class TextKind(StrEnum):
    """The kind of a text on a page."""

    HEADING = "heading"  # the shop's name, the number of the page of results, the thanks, the line above the score
    LABEL = "label"  # the word before the instruction
    INSTRUCTION = "instruction"
    SEARCH = "search"  # the button of the search form
    BUTTON = "button"
    PRODUCT = "product"  # the link of a listed product: its ASIN; its title and price follow
    TITLE = "title"  # of a listed or open product
    PRICE = "price"
    RATING = "rating"
    OPTION_NAME = "option_name"  # its values follow
    OPTION = "option"  # a value to choose
    PARAGRAPH = "paragraph"
    BULLET = "bullet"
    SCORE = "score"


class Element(NamedTuple):
    """A visible text of a page, corresponding to one text node of its HTML.

    Attributes:
        kind: the kind of text.
        node: the text with surrounding white space, as in the original; never empty.
        name: its name in a click, one of `WebShopGame.clickables()`; empty if it cannot be clicked.
        option: for an option value, the option, as the product spells it.
        value: for an option value, the value, as the product spells it.
        marked: for a product, whether it was opened before; for an option value, whether it is chosen.
        product: for a product, the product.
    """

    kind: TextKind
    node: str
    name: str = ""
    option: str = ""
    value: str = ""
    marked: bool = False
    product: Product | None = None

    @property
    def text(self) -> str:
        """The stripped text; empty for an empty bullet."""
        return self.node.strip()

    @property
    def action(self) -> str:
        """The action of a click on the text; empty if there is none, as for the button of the search form."""
        return f"click[{self.name}]" if self.name and self.kind is not TextKind.SEARCH else ""


def elements(game: WebShopGame) -> list[Element]:
    """Return the visible texts of the current page in document order."""
    page, card = game.page, game.card
    found = instruction(game)
    if page is Page.INDEX:
        found = [Element(TextKind.HEADING, "WebShop"), *found, Element(TextKind.SEARCH, SEARCH, clickable(SEARCH))]
    elif page is Page.RESULTS:
        found += results_head(game)
        for listed in game.listed():
            found += entry(listed, visited=listed.product.asin in game.visited)
    elif page is Page.ITEM and card is not None:
        found += item(card, game.show_attributes, game.options)
    elif page is Page.SUB_PAGE and card is not None:
        found += [_button(BACK_TO_SEARCH), _button(PREVIOUS), *_sub_page(card.product, game.sub_page)]
    elif page is Page.DONE:
        found += _done(game.score)
    return [element for element in found if element.node]


def instruction(game: WebShopGame) -> list[Element]:
    """Return the instruction and its label. As in the original, only the label of the index page ends with a space."""
    label = "Instruction: " if game.page is Page.INDEX else "Instruction:"
    return [Element(TextKind.LABEL, label), Element(TextKind.INSTRUCTION, _node(game.goal.instruction))]


def results_head(game: WebShopGame) -> list[Element]:
    """Return the texts above the products of a page of results."""
    count = Element(TextKind.HEADING, f"Page {game.number} (Total results: {len(game.found)})")
    buttons = [_button(NEXT)] if game.number == 1 else [_button(PREVIOUS), _button(NEXT)]
    return [_button(BACK_TO_SEARCH), count, *buttons]


def entry(card: Card, visited: bool = False) -> list[Element]:
    """Return the texts of a product on a page of results. Nodes may be empty."""
    product = card.product
    return [
        Element(TextKind.PRODUCT, _node(product.asin) if card.name else "", card.name, marked=visited, product=product),
        Element(TextKind.TITLE, _node(product.name)),
        Element(TextKind.PRICE, _node(product.price_tag)),
    ]


def item(card: Card, show_attributes: bool, options: Mapping[str, str]) -> list[Element]:
    """Return the texts of a product page below the instruction. Nodes may be empty."""
    product = card.product
    found = [_button(BACK_TO_SEARCH), _button(PREVIOUS)]
    for name, values in product.options.items():
        found.append(Element(TextKind.OPTION_NAME, _node(name)))
        found += [
            Element(TextKind.OPTION, _node(value), click, name, value, options.get(name) == value)
            for value in values
            if (click := clickable(value))
        ]
    return [
        *found,
        Element(TextKind.TITLE, _node(product.name)),
        Element(TextKind.PRICE, _node(f"Price: {product.price_tag}")),
        Element(TextKind.RATING, "Rating: N.A."),
        *map(_button, sub_pages(show_attributes)),
        _button(BUY),
    ]


def _button(label: str) -> Element:
    return Element(TextKind.BUTTON, label, clickable(label))


def _bullet(text: str) -> Element:
    return Element(TextKind.BULLET, _node(f" {text}"))  # as in the original, where an empty bullet is a text


def _node(text: str) -> str:
    """Return the text node that the original's HTML parser (Beautiful Soup) produces; empty if it produces none.

    White space becomes a single space, or is dropped if it contains a line break.
    """
    if text.strip(_ASCII_SPACES):
        return writable(text)
    return " " if text and "\n" not in text else ""


def _sub_page(product: Product, title: str) -> list[Element]:
    if title == "Description":
        return [Element(TextKind.PARAGRAPH, _node(product.description))]
    if title == "Features":
        return [_bullet(bullet) for bullet in product.bullets]
    if title == ATTRIBUTES:
        kinds = (product.category, product.query, product.product_category)
        return [
            *map(_bullet, product.attributes),
            *(Element(TextKind.PARAGRAPH, _node(kind)) for kind in kinds),
        ]
    return []  # the public data have no reviews


def _done(score: float | None) -> list[Element]:
    thanks = Element(TextKind.HEADING, "Thank you for your purchase!")
    if score is None:
        return [thanks]
    return [
        thanks,
        Element(TextKind.HEADING, "Your score (min 0.0, max 1.0)"),
        Element(TextKind.SCORE, str(round(score, 4))),
    ]
