"""Pages as HTML, for the observation mode `html` and for the web site.

The stripped text nodes of a page, joined by ` [SEP] `, are equal to `observe.text`. Names that tools for the original
rely on are the same: the class `btn` of buttons, `product-link` of listed products, radio buttons for options, the id
`search_input` of the search bar. All text is escaped, there are no scripts, and pictures are empty boxes that name
their address without loading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import jinja2

from agentgym_flow.envs.webshop.game import WebShopGame
from agentgym_flow.envs.webshop.page import Element, TextKind, elements

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
        if element.kind is TextKind.OPTION and last[1] and _belongs(element, last[1][-1]):
            last[1][-1].append(element)
        elif kind == "products":
            last[1].append((element, []))
        else:
            last[1].append([element] if kind == "options" else element)
    return {"page": game.page.value, "product": game.product, "blocks": blocks, "site": _NO_SITE}


def _belongs(value: Element, group: list[Element]) -> bool:
    """Return whether a value belongs to a group. A blank option name is not an element, so groups may lack a name."""
    return group[-1].kind is TextKind.OPTION_NAME or group[-1].option == value.option


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
