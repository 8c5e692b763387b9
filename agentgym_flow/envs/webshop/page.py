"""The present page as a list of its visible texts: what every way of showing it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from agentgym_flow.envs.webshop.card import Card, clickable, whole
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
    """What a text of a page is."""

    HEADING = "heading"  # the shop's name, which page of results this is, the thanks, the line above the score
    LABEL = "label"  # the word before the instruction
    INSTRUCTION = "instruction"
    SEARCH = "search"  # the button of the search form
    BUTTON = "button"
    PRODUCT = "product"  # the link of a listed product: its ASIN; its title and price follow
    TITLE = "title"  # of the listed or the open product
    PRICE = "price"
    RATING = "rating"
    OPTION_NAME = "option_name"  # its values follow
    OPTION = "option"  # a value to choose
    PARAGRAPH = "paragraph"
    BULLET = "bullet"
    SCORE = "score"


class Element(NamedTuple):
    """A visible text of a page: exactly one text node of its HTML.

    Attributes:
        kind: what it is.
        node: the text with the white space around it, as in the original's page; never empty.
        name: what a click calls it, one of `WebShopGame.clickables()`; empty where nothing can be clicked.
        option: of a value, the option that it belongs to, as the product spells it.
        value: of a value, the value as the product spells it.
        marked: of a product, whether it was opened before; of a value, whether it is chosen.
        product: of a product, the product.
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
        """The text without white space around it; empty for a bullet that has no text."""
        return self.node.strip()

    @property
    def action(self) -> str:
        """The action that a click on it stands for; empty where there is none, as for the button of the search form."""
        return f"click[{self.name}]" if self.name and self.kind is not TextKind.SEARCH else ""


def elements(visit: WebShopGame) -> list[Element]:
    """Return the visible texts of the present page in the document's order; a fresh list."""
    page, card = visit.page, visit.card
    found = instruction(visit)
    if page is Page.INDEX:
        found = [Element(TextKind.HEADING, "WebShop"), *found, Element(TextKind.SEARCH, SEARCH, clickable(SEARCH))]
    elif page is Page.RESULTS:
        found += results_head(visit)
        for listed in visit.listed():
            found += entry(listed, visited=listed.product.asin in visit.visited)
    elif page is Page.ITEM and card is not None:
        found += item(card, visit.show_attributes, visit.options)
    elif page is Page.SUB_PAGE and card is not None:
        found += [_button(BACK_TO_SEARCH), _button(PREVIOUS), *_sub_page(card.product, visit.sub_page)]
    elif page is Page.DONE:
        found += _done(visit.score)
    return [element for element in found if element.node]


def instruction(visit: WebShopGame) -> list[Element]:
    """Return what is on every page: the instruction, with a word before it.

    On the index page a blank follows the word, on the others it does not, as in the original.
    """
    label = "Instruction: " if visit.page is Page.INDEX else "Instruction:"
    return [Element(TextKind.LABEL, label), Element(TextKind.INSTRUCTION, _node(visit.goal.instruction))]


def results_head(visit: WebShopGame) -> list[Element]:
    """Return what stands above the products of a page of results."""
    count = Element(TextKind.HEADING, f"Page {visit.number} (Total results: {len(visit.found)})")
    buttons = [_button(NEXT)] if visit.number == 1 else [_button(PREVIOUS), _button(NEXT)]
    return [_button(BACK_TO_SEARCH), count, *buttons]


def entry(card: Card, visited: bool = False) -> list[Element]:
    """Return how a page of results lists a product. Nodes may be empty."""
    product = card.product
    return [
        Element(TextKind.PRODUCT, _node(product.asin) if card.name else "", card.name, marked=visited, product=product),
        Element(TextKind.TITLE, _node(product.name)),
        Element(TextKind.PRICE, _node(product.price_tag)),
    ]


def item(card: Card, show_attributes: bool, options: Mapping[str, str]) -> list[Element]:
    """Return what is on the page of a product below the instruction. Nodes may be empty."""
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
    return Element(TextKind.BULLET, _node(f" {text}"))  # the blank is the original's: an empty bullet is a text, too


def _node(text: str) -> str:
    """Return the text node that the original's HTML parser (Beautiful Soup) makes of a text; empty for none.

    Of nothing but white space it keeps one blank; the original leaves it out when there is a line break in it.
    """
    if text.strip(_ASCII_SPACES):
        return text if text.isascii() else whole(text)
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
    return []  # no public data have reviews


def _done(score: float | None) -> list[Element]:
    thanks = Element(TextKind.HEADING, "Thank you for your purchase!")
    if score is None:
        return [thanks]
    return [
        thanks,
        Element(TextKind.HEADING, "Your score (min 0.0, max 1.0)"),
        Element(TextKind.SCORE, str(round(score, 4))),
    ]
