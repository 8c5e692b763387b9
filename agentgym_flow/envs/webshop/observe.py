"""Pages as text: `text`, `text_rich` and `url`; `html` has a file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable

from agentgym_flow.envs.webshop.card import Card, shown
from agentgym_flow.envs.webshop.game import Page, WebShopGame
from agentgym_flow.envs.webshop.page import Element, TextKind, elements, entry, instruction, item, results_head

SEPARATOR = " [SEP] "
"""What stands between two texts of a page."""

ADDRESS = "http://127.0.0.1:3000"
"""Where upstream's shop is; nothing here connects to it."""

SESSION = "session"
"""What addresses call the visit, always the same: upstream's name can tell the goal."""


def text(visit: WebShopGame) -> str:
    """Return the visible texts of the page, joined by `SEPARATOR`.

    Chosen options and visited products look like others.
    """
    card = visit.card
    # These two are nearly all of a visit, and nearly all of their text is the same whenever a product is shown.
    if visit.page is Page.RESULTS:
        head = _joined([*instruction(visit), *results_head(visit)])
        return SEPARATOR.join([head, *map(_entry_text, visit.listed())])
    if visit.page is Page.ITEM and card is not None:
        return f"{_joined(instruction(visit))}{SEPARATOR}{_item_text(card, visit.show_attributes)}"
    return _joined(elements(visit))


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


def text_rich(visit: WebShopGame) -> str:
    """Return the visible texts of the page with the white space around them, one a line, with marks.

    Buttons, products and options are between `[button]` and `[button_]`; products that were opened and options that
    are chosen are between `[clicked button]` and `[clicked button_]`. Each product has an empty line before it, each
    option two blanks. For every chosen option the text starts with a line `You have clicked ....`, the last option of
    the page first.
    """
    clicked: list[str] = []
    lines: list[str] = []
    for element in elements(visit):
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


def url(visit: WebShopGame) -> str:
    """Return the address of the page in the shape of upstream's: page, product, words, page number, text, options.

    Options are JSON on the page of a product. On the pages of its texts and after buying they are what Python's `repr`
    makes of them.
    """
    if visit.page is Page.INDEX:
        return f"{ADDRESS}/{SESSION}"
    parts = [ADDRESS, visit.page.value, SESSION]
    if visit.product is not None:
        parts.append(shown(visit.product.asin))
    if visit.page is not Page.DONE:
        parts += ["+".join(visit.keywords), str(visit.number)]
    if visit.page is Page.SUB_PAGE:
        parts.append(visit.sub_page)
    if visit.page is not Page.RESULTS:
        parts.append(json.dumps(visit.options) if visit.page is Page.ITEM else repr(visit.options))
    return "/".join(parts)
