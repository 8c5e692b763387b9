"""Pages as HTML, for the observation mode `html` and for the shop that a person sees.

The visible text nodes of a page, stripped and joined by ` [SEP] `, are its `observe.text`. What upstream's tools look
for has upstream's names: the class `btn` on buttons, `product-link` on listed products, radio buttons for options, the
id `search_input` on the search bar. All text is escaped, there is no script, and a picture is an empty box that names
its address and loads nothing.
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
    """What a page is part of; an observation is part of nothing.

    Attributes:
        form_action: the address that forms go to.
        form_fields: what every form carries besides.
        inert: whether nothing can be pressed.
        focus: the click of the option that has the keyboard's focus.
    """

    form_action: str = ""
    form_fields: Mapping[str, str] = MappingProxyType({})
    inert: bool = False
    focus: str = ""


_NO_SITE = Site()


def html(visit: WebShopGame) -> str:
    """Return the source of the present page."""
    return _page_template().render(page_context(visit))


def page_context(visit: WebShopGame, parts: Iterable[Element] | None = None) -> dict[str, Any]:
    """Return what `page.html.j2` needs: the kind of page, the open product, and blocks of texts that belong together.

    Args:
        visit: where the customer is.
        parts: the texts of the page; `elements(visit)` unless they are given.

    A block is (kind, parts). The parts of `products` are pairs of a link and the texts below it, those of `options`
    lists of a name, if there is one, and its values; all others are elements.
    """
    blocks: list[tuple[str, list[Any]]] = []
    last: tuple[str, list[Any]] = ("", [])
    for element in elements(visit) if parts is None else parts:
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
    return {"page": visit.page.value, "product": visit.product, "blocks": blocks, "site": _NO_SITE}


def _belongs(value: Element, group: list[Element]) -> bool:
    """Return whether a value goes on with a group of values; options whose name is blank have no text before them."""
    return group[-1].kind is TextKind.OPTION_NAME or group[-1].option == value.option


def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the template environment of the pages; further loaders add templates that extend `page.html.j2`."""
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
