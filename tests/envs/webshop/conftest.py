"""What WebShop's tests share: a small shop made by hand, in which every peculiarity of a product occurs once."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_flow.envs.webshop.catalogue import Listing, MemoryCatalogue, Product, ProductRequest
from agentgym_flow.envs.webshop.game import WebShopGame
from agentgym_flow.envs.webshop.observation import text, text_rich, url


def make_product(asin: str, name: str, price: float | tuple[float, ...] = 20.0, **fields: Any) -> Product:
    """Return a product; what is not given is empty, except a category and a query."""
    options: Mapping[str, tuple[str, ...]] = fields.pop("options", {})
    return Product(
        asin=asin,
        name=name,
        description=fields.pop("description", ""),
        bullets=tuple(fields.pop("bullets", ())),
        prices=price if isinstance(price, tuple) else (price,),
        options={key: tuple(values) for key, values in options.items()},
        attributes=tuple(fields.pop("attributes", ())),
        category=fields.pop("category", "fashion"),
        product_category=fields.pop("product_category", "Clothing \u203a Shoes \u203a Trail"),
        query=fields.pop("query", "trail shoes"),
        image=fields.pop("image", ""),
        **fields,
    )


def _shoes() -> list[Product]:
    """Return 13 products that one query finds, the two first of them with options and texts."""
    plain = [
        make_product(f"B0SHOE{n:02d}XX", f"Plain Trail Shoe Number {n}", 10.0 + n, options={"size": ("7", "8")})
        for n in range(11)
    ]
    full = make_product(
        "B07S7HDC88",
        "Ridge Runner Trail Shoe for Men",
        (15.99, 32.99),
        description="A light shoe for stony paths.",
        bullets=("rubber sole", "machine washable", "arch support"),
        options={"size": ("6.5", "7", "8 wide"), "color": ("dark grey", "navy | white", "red")},
        attributes=("rubber sole", "arch support"),
        image="https://shop.invalid/ridge.jpg",
    )
    colliding = make_product(
        "B0COLLIDE1",
        "Twin Trail Shoe",
        options={"sole": ("red", "thick"), "lace": ("red", "white"), "description": ("buy now", "long", "search")},
    )
    return [full, colliding, *plain]


def _oddities() -> list[Product]:
    """Return products whose texts are as real ones can be, and worse."""
    return [
        make_product("B0BRACKETS", "Lamp [set of 2] with Shade", options={"pack": ("[2-pack]", "set of [4", "5]")}),
        make_product(
            "B0MARKUP01", "<b>Lamp</b> & \"Shade\" </script><script>alert('x')</script>", bullets=("<i>a</i>",)
        ),
        make_product("B0NOTITLE1", "", options={"light": ("", "warm")}, query="lamp"),
        make_product(
            "B0UNICODE1", "Lampe für draußen 灯 \u202egnp.exe\u202c", options={"farbe": ("weiß", "i̇ris", "灯")}
        ),
        make_product(
            "B0LINES001", "Lamp\nin two lines", options={"note": ("first\nsecond",)}, description="one\n\ntwo"
        ),
        make_product("B0SEP00001", "Lamp [SEP] Shade", bullets=("bright [SEP] light", "  ", "cosy")),
        make_product("B0NUL00001", "Lamp \x00 with NUL", 100.0),
        make_product("B0LONG0001", "Lamp " + "very " * 200 + "long", description="words " * 2000),
    ]


def _others() -> list[Product]:
    garden = {"category": "garden", "product_category": "Home \u203a Kitchen \u203a Cups", "query": "cups"}
    return [
        make_product("B0CUP00001", "Blue Tea Cup", 5.5, attributes=("tea",), bullets=("dishwasher safe",), **garden),
        make_product("B0CUP00002", "Green Tea Cup", 7.0, options={"size": ("small", "large")}, **garden),
        make_product("B0CUP00003", "Coffee Mug", 34.0, **garden),
        make_product("B0CUP00004", "Travel Mug of Steel", 21.0, options={"color": ("black",)}, **garden),
    ]


def _listing(product: Product) -> Listing:
    asked = ProductRequest(f"i want {product.query}", product.attributes) if product.attributes else None
    human = (ProductRequest(f"get me the {product.name.lower()}", product.attributes),) if product.attributes else ()
    return Listing(product, asked, human)


@pytest.fixture(scope="session")
def shop() -> MemoryCatalogue:
    """A shop of 25 products: 13 that `trail shoe` finds, eight odd lamps, and four cups."""
    return MemoryCatalogue(_listing(product) for product in [*_shoes(), *_oddities(), *_others()])


@pytest.fixture(scope="session")
def small_shop() -> SimpleNamespace:
    """What makes small shops: `product(asin, name, price, **fields)` and `catalogue(*products)`."""
    return SimpleNamespace(
        product=make_product, catalogue=lambda *products: MemoryCatalogue(_listing(product) for product in products)
    )


WISH: Any = SimpleNamespace(instruction="i want trail shoes in red, and price lower than 40.00 dollars")
"""All that a visit needs of a goal."""


def walk(visit: WebShopGame, *actions: str) -> WebShopGame:
    """Return the visit after actions that must all be valid."""
    for action in actions:
        assert visit.act(action), (action, visit.clickables())
    return visit


def shown(visit: WebShopGame) -> list[Any]:
    """Return all that can be seen of a visit."""
    return [text(visit), text_rich(visit), url(visit), visit.clickables(), visit.identity()]


@pytest.fixture(scope="session")
def trip(shop: MemoryCatalogue) -> SimpleNamespace:
    """What tests of visits need: `wish`, `walk`, `shown`, and visits to the small shop.

    `at(*actions, show_attributes=False)` is a visit after some valid actions. `item(name, ...)` is one at a product:
    at the `full` one, the one with `colliding` values, that with `brackets`, or that with `lines`.
    """
    ways = {
        "full": ("search[ridge runner]", "click[b07s7hdc88]"),
        "colliding": ("search[twin]", "click[b0collide1]"),
        "brackets": ("search[lamp shade]", "click[b0brackets]"),
        "lines": ("search[two lines]", "click[b0lines001]"),
    }

    def at(*actions: str, show_attributes: bool = False) -> WebShopGame:
        return walk(WebShopGame(shop, WISH, show_attributes=show_attributes), *actions)

    def item(name: str, *actions: str, show_attributes: bool = False) -> WebShopGame:
        return at(*ways[name], *actions, show_attributes=show_attributes)

    return SimpleNamespace(wish=WISH, walk=walk, shown=shown, at=at, item=item)
