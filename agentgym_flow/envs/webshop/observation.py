"""Pages as text and HTML: the current page as a list of its visible texts, from which all observation modes are made.

The stripped text nodes of a page in HTML, joined by ` [SEP] `, are equal to its text. The HTML is also that of the web
site. Names that tools for the original rely on are the same: the class `btn` of buttons, `product-link` of listed
products, radio buttons for options, the id `search_input` of the search bar. All text is escaped, there are no scripts,
and pictures are empty boxes that name their address without loading it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import jinja2

from agentgym_flow._util.records import writable
from agentgym_flow.envs.webshop.catalogue import Product
from agentgym_flow.envs.webshop.game import (
    ATTRIBUTES,
    BACK_TO_SEARCH,
    BUY,
    NEXT,
    PREVIOUS,
    SEARCH,
    Card,
    Page,
    WebShopGame,
    clickable,
    shown,
    sub_pages,
)

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
        found.append(Element(TextKind.HEADING, "Thank you for your purchase!"))
        if game.score is not None:
            found.append(Element(TextKind.HEADING, "Your score (min 0.0, max 1.0)"))
            found.append(Element(TextKind.SCORE, str(round(game.score, 4))))
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


SEPARATOR = " [SEP] "
"""The separator of the texts of a page."""

ADDRESS = "http://127.0.0.1:3000"
"""The address of the original shop; nothing here connects to it."""

SESSION = "session"
"""The constant session name in addresses. In the original, the name can reveal the goal."""


def text(game: WebShopGame) -> str:
    """Return the visible texts of the page, joined by `SEPARATOR`.

    Chosen options and visited products look like others.
    """
    card = game.card
    # Most pages are of these two kinds, and most of their text depends only on the product, so it is cached.
    if game.page is Page.RESULTS:
        parts = [_joined([*instruction(game), *results_head(game)])]
        for listed in game.listed():
            if "entry" not in listed.texts:
                listed.texts["entry"] = _joined(entry(listed))
            parts.append(listed.texts["entry"])
        return SEPARATOR.join(parts)
    if game.page is Page.ITEM and card is not None:
        key = "item with attributes" if game.show_attributes else "item"
        if key not in card.texts:
            card.texts[key] = _joined(item(card, game.show_attributes, {}))
        return f"{_joined(instruction(game))}{SEPARATOR}{card.texts[key]}"
    return _joined(elements(game))


def _joined(parts: Iterable[Element]) -> str:
    return SEPARATOR.join([part.text for part in parts if part.node])


def text_rich(game: WebShopGame) -> str:
    """Return the visible texts of the page with their surrounding white space, one per line, with marks.

    Buttons, products and options are enclosed in `[button]` and `[button_]`, or in `[clicked button]` and
    `[clicked button_]` if the product was opened or the option is chosen. Products follow an empty line, options two
    spaces. The text starts with a line `You have clicked ....` for every chosen option, in reverse page order.
    """
    clicked: list[str] = []
    lines: list[str] = []
    for element in elements(game):
        if element.kind is TextKind.OPTION and element.marked:
            clicked.insert(0, f"You have clicked {element.node}.")
        lines.append(_line(element))
    return "\n".join([*clicked, *lines, ""])


def _line(element: Element) -> str:
    if not element.name:
        return element.node
    mark = "clicked button" if element.marked else "button"
    before = {TextKind.PRODUCT: "\n", TextKind.OPTION: "  "}.get(element.kind, "")
    return f"{before}[{mark}] {element.node} [{mark}_]"


def url(game: WebShopGame) -> str:
    """Return the address of the page in the format of the original: page, product, words, page number, text, options.

    The options are JSON on a product page, and Python's `repr` on the pages of texts and after the purchase.
    """
    if game.page is Page.INDEX:
        return f"{ADDRESS}/{SESSION}"
    parts = [ADDRESS, game.page.value, SESSION]
    if game.product is not None:
        parts.append(shown(game.product.asin))
    if game.page is not Page.DONE:
        parts += ["+".join(game.keywords), str(game.number)]
    if game.page is Page.SUB_PAGE:
        parts.append(game.sub_page)
    if game.page is not Page.RESULTS:
        parts.append(json.dumps(game.options) if game.page is Page.ITEM else repr(game.options))
    return "/".join(parts)


_WITH_NEIGHBOURS = {
    TextKind.LABEL: "instruction",
    TextKind.INSTRUCTION: "instruction",
    TextKind.BUTTON: "buttons",
    TextKind.PRODUCT: "products",
    TextKind.OPTION_NAME: "options",
    TextKind.OPTION: "options",
    TextKind.BULLET: "bullets",
}


class Site(NamedTuple):
    """The settings of a page on the web site; observations use the defaults.

    Attributes:
        form_action: the address of forms.
        form_fields: further fields of every form.
        inert: whether all controls are disabled.
        focus: the click name of the option with the keyboard focus.
    """

    form_action: str = ""
    form_fields: Mapping[str, str] = MappingProxyType({})
    inert: bool = False
    focus: str = ""


_NO_SITE = Site()


def html(game: WebShopGame) -> str:
    """Return the source of the current page."""
    return _page_template().render(page_context(game))


def page_context(game: WebShopGame, parts: Iterable[Element] | None = None) -> dict[str, Any]:
    """Return the context of `page.html.j2`: the kind of page, the open product, and blocks of related texts.

    Args:
        game: the current episode.
        parts: the texts of the page; `elements(game)` by default.

    A block is (kind, parts). The parts of `products` are pairs of a link and the texts below it. The parts of `options`
    are lists of an option's name (if it is visible) and its values. All others are elements.
    """
    blocks: list[tuple[str, list[Any]]] = []
    last: tuple[str, list[Any]] = ("", [])
    for element in elements(game) if parts is None else parts:
        kind = _WITH_NEIGHBOURS.get(element.kind, element.kind)  # which is a str
        if kind == "heading" and any(name == "heading" for name, _ in blocks):
            kind = "subheading"
        if last[0] == "products" and element.kind in (TextKind.TITLE, TextKind.PRICE):
            last[1][-1][1].append(element)
            continue
        if last[0] != kind or element.kind not in _WITH_NEIGHBOURS:
            last = (kind, [])
            blocks.append(last)
        before = last[1][-1][-1] if element.kind is TextKind.OPTION and last[1] else None
        # A blank option name is not an element, so groups of values may lack a name.
        if before is not None and (before.kind is TextKind.OPTION_NAME or before.option == element.option):
            last[1][-1].append(element)
        elif kind == "products":
            last[1].append((element, []))
        else:
            last[1].append([element] if kind == "options" else element)
    return {"page": game.page.value, "product": game.product, "blocks": blocks, "site": _NO_SITE}


def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the Jinja environment of the pages; `loaders` add further templates."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("agentgym_flow.envs.webshop"), *loaders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _page_template() -> jinja2.Template:
    return environment().get_template("page.html.j2")
