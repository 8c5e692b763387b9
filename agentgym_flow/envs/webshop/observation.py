"""The observation modes `text`, `text_rich` and `url`; the module `html` has the mode `html`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from agentgym_flow.envs.webshop.card import Card, shown
from agentgym_flow.envs.webshop.game import Page, WebShopGame
from agentgym_flow.envs.webshop.page import Element, TextKind, elements, entry, instruction, item, results_head

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
        head = _joined([*instruction(game), *results_head(game)])
        return SEPARATOR.join([head, *map(_entry_text, game.listed())])
    if game.page is Page.ITEM and card is not None:
        return f"{_joined(instruction(game))}{SEPARATOR}{_item_text(card, game.show_attributes)}"
    return _joined(elements(game))


def _joined(parts: Iterable[Element]) -> str:
    return SEPARATOR.join([part.text for part in parts if part.node])


def _entry_text(card: Card) -> str:
    if "entry" not in card.texts:
        card.texts["entry"] = _joined(entry(card))
    return card.texts["entry"]


def _item_text(card: Card, show_attributes: bool) -> str:
    key = "item with attributes" if show_attributes else "item"
    if key not in card.texts:
        card.texts[key] = _joined(item(card, show_attributes, {}))
    return card.texts[key]


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
