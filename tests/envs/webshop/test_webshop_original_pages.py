"""Observations equal what the original's own parser reads: pages built as upstream builds them, through Beautiful Soup.

`page_of` lays out the text nodes of a page with upstream's white space, and `read` is upstream's reading of it
(`specs/webshop_search.md` A1). Nothing here uses our list of elements.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue, Product
from agentgym_flow.envs.webshop.game import Page, WebShopGame, sub_pages
from agentgym_flow.envs.webshop.observation import text, text_rich, url
from agentgym_flow.envs.webshop.official import official_files, read_listings

soup = pytest.importorskip("bs4")

UNSEEN = {"style", "script", "head", "title", "meta", "[document]"}


def page_of(visit: WebShopGame) -> str:
    """Return the page's HTML: each text node between its tags, with upstream's blanks, and line breaks around."""
    blank = " " if visit.page is Page.INDEX else ""
    parts = [f"<h4>Instruction:{blank}<br>{escape(visit.goal.instruction)}</h4>"]
    product = visit.product
    if visit.page is Page.INDEX:
        parts = ["<h2>WebShop</h2>", *parts, "<input id='search_input'/>", button("Search")]
    else:
        parts.append(button("Back to Search"))
    if visit.page is Page.RESULTS:
        parts.append(f"<h3>Page {visit.number} (Total results: {len(visit.found)})</h3>")
        parts += [button(label) for label in (["< Prev"] if visit.number > 1 else []) + ["Next >"]]
        for card in visit.listed():
            parts.append(f'<h4><a class="product-link" href="/">{escape(card.product.asin)}</a></h4>')
            parts.append(f"<h4>{escape(card.product.name)}</h4>")
            parts.append(f"<h5>{escape(card.product.price_tag)}</h5>")
    elif product is not None:
        parts.append(button("< Prev"))
        parts += item(product, visit.show_attributes) if visit.page is Page.ITEM else texts(product, visit.sub_page)
    return "<html><head><title>WebShop</title></head><body>\n  " + "\n    ".join(parts) + "\n </body></html>"


def button(label: str) -> str:
    return f'<form>\n  <button class="btn">{escape(label)}</button>\n</form>'


def item(product: Product, show_attributes: bool) -> list[str]:
    parts = []
    for name, values in product.options.items():
        parts.append(f"<h4>{escape(name)}</h4>")
        parts += [f'<input type="radio">\n  <label>{escape(value)}</label>' for value in values]
    parts += [f"<h2>{escape(product.name)}</h2>", f"<h4>Price: {escape(product.price_tag)}</h4>"]
    return [*parts, "<h4>Rating: N.A.</h4>", *map(button, sub_pages(show_attributes)), button("Buy Now")]


def texts(product: Product, title: str) -> list[str]:
    if title == "Description":
        return [f"<p>{escape(product.description)}</p>"]
    if title == "Features":
        return [f"<li><p> {escape(bullet)}</p></li>" for bullet in product.bullets]
    if title == "Attributes":
        kinds = (product.category, product.query, product.product_category)
        attributes = [f"<li><p> {escape(attribute)}</p></li>" for attribute in product.attributes]
        return attributes + [f"<h5>{escape(kind)}</h5>" for kind in kinds]
    return []


def read(visit: WebShopGame) -> tuple[str, str]:
    """Return what upstream's environment shows of the page in the modes `text` and `text_rich`."""
    nodes = [
        node
        for node in soup.BeautifulSoup(page_of(visit), "html.parser").find_all(string=True)
        if node.parent.name not in UNSEEN and node != "\n"
    ]
    shown = ""
    for node in nodes:
        line = str(node)
        if node.parent.name == "button":
            line = f"[button] {node} [button_]"
        elif node.parent.name == "label":
            chosen = f'"{node}"' in url(visit)
            line = f"  [clicked button] {node} [clicked button_]" if chosen else f"  [button] {node} [button_]"
            shown = f"You have clicked {node}.\n{shown}" if chosen else shown
        elif node.parent.get("class") == ["product-link"]:
            opened = node in visit.visited
            line = f"\n[clicked button] {node} [clicked button_]" if opened else f"\n[button] {node} [button_]"
        shown += f"{line}\n"
    return " [SEP] ".join(node.strip() for node in nodes), shown


def options_to_choose(product: Product) -> list[str]:
    """Return a click for the last value of each option; not where upstream's reading differs on purpose.

    It looks for the quoted value in the page's address, so that it marks a value that two options share in both of
    them, and does not find one that JSON writes in another way.
    """
    values = [value for own in product.options.values() for value in own]
    plain = {value for value in values if values.count(value) == 1 and value.isascii() and not {'"', "\\"} & {*value}}
    return [f"click[{own[-1]}]" for own in product.options.values() if own and own[-1] in plain]


def compare(catalogue: MemoryCatalogue, number: int, show_attributes: bool) -> None:
    """Walk over all pages of a product and compare what is read with what we show."""
    product = catalogue.listing(number).product
    goal: Any = SimpleNamespace(instruction="i want trail shoes in red, and price lower than 40.00 dollars ")
    visit = WebShopGame(catalogue, goal, show_attributes=show_attributes)
    query = " ".join(f"{product.name} {product.query}".split()) or product.asin
    back = [f"click[{page.lower()}]" for page in sub_pages(show_attributes)]
    way = ["", f"search[{query}]", f"click[{product.asin}]", *options_to_choose(product)]
    for page in back:
        way += [page, "click[< prev]"]
    for action in [*way, "click[< prev]", "click[next >]"]:
        visit.act(action)
        assert (text(visit), text_rich(visit)) == read(visit)


def test_pages_are_read_as_upstreams_parser_reads_them(shop: MemoryCatalogue) -> None:
    for number in range(len(shop)):
        compare(shop, number, show_attributes=number % 2 == 0)


def test_official_products_are_read_alike(sample_data: Path) -> None:
    catalogue = MemoryCatalogue(read_listings(*official_files(sample_data / "webshop")))
    products = [catalogue.listing(number).product for number in range(len(catalogue))]
    peculiar = [
        number
        for number, product in enumerate(products)
        if "" in product.bullets or any("\xa0" in own for own in (product.name, product.description))
    ]
    assert len(peculiar) > 50
    for number in [*peculiar[::10], *range(0, len(products), 100)]:
        compare(catalogue, number, show_attributes=True)


def test_white_space_in_data_is_kept_or_dropped_as_upstream_does(small_shop: SimpleNamespace) -> None:
    blanks = ("", " ", "  ", "\n", " \n", "\xa0", "\t", " sole ", "two\nlines\n", "\u2003")
    products = [
        small_shop.product(
            f"B00000000{number}",
            f"shoe{blank}",
            description=blank,
            bullets=(blank, "arch", blank),
            options={f"size{blank}": ("7", "8")},
            attributes=(blank, "tea"),
            category=blank,
        )
        for number, blank in enumerate(blanks)
    ]
    catalogue = small_shop.catalogue(*products)
    for number in range(len(blanks)):
        compare(catalogue, number, show_attributes=True)
