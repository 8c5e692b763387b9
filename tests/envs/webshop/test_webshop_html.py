"""The page source: its visible text and its clickables are those of the other modes, and its text stays text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.game import Page, WebShopGame
from agentgym_flow.envs.webshop.goals import Goals
from agentgym_flow.envs.webshop.observation import html, page_context, text

VOID = {"meta", "input"}
UNSEEN = {"style", "script", "head", "title", "meta"}
ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "body",
        "main",
        "section",
        "form",
        "div",
        "h1",
        "h2",
        "h3",
        "p",
        "ul",
        "ol",
        "li",
    ),
    *("ul", "ol", "li", "button", "input", "fieldset", "legend", "label"),
}
OWN_ATTRIBUTES = {
    *("lang", "charset", "id", "class", "method", "role", "aria-label", "aria-hidden", "data-image", "type", "name"),
    *("value", "required", "checked", "autofocus", "autocomplete", "maxlength"),
}


class Read(HTMLParser):
    """What upstream reads of a page: visible texts, and what can be clicked; and which tags and attributes it has."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.buttons: list[str] = []
        self.products: list[str] = []
        self.radios: list[str] = []
        self.has_search_bar = False
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self._open: list[str] = ["[document]"]
        self._clicked: list[str] | None = None
        self.feed(source)
        self.close()
        assert self._open == ["[document]"], "every tag is closed"

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.add(tag)
        self.attributes |= given.keys()
        classes = (given.get("class") or "").split()
        if tag not in VOID:
            self._open.append(tag)
        if given.get("type") == "radio":
            self.radios.append(given["value"])
        self.has_search_bar |= given.get("id") == "search_input"
        self._clicked = self.buttons if "btn" in classes else self.products if "product-link" in classes else None

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        self._clicked = None

    def handle_data(self, data):
        if self._open[-1] not in UNSEEN | {"[document]"} and data != "\n":
            self.texts.append(data.strip())
        if self._clicked is not None:
            self._clicked.append(data)

    @property
    def text(self) -> str:
        return " [SEP] ".join(self.texts)

    @property
    def clickables(self) -> list[str]:
        names = [*self.buttons, *self.products, *self.radios]
        return list(dict.fromkeys(name.strip().lower().replace("\n", " ") for name in names))


def check(visit: WebShopGame) -> None:
    """Assert that the page says what the other modes say, and that only our tags and attributes are in it."""
    page = Read(html(visit))
    assert page.text == text(visit)
    assert page.clickables == visit.clickables()
    assert page.has_search_bar == (visit.page is Page.INDEX)
    assert page.tags <= ALLOWED
    assert page.attributes <= OWN_ATTRIBUTES


def walk(visit: WebShopGame, rng: Stream, steps: int) -> set[str]:
    """Check the pages of a random walk and return their kinds."""
    seen = set()
    for _ in range(steps):
        check(visit)
        seen.add(visit.page.value)
        clicks = [name for name in visit.clickables() if name not in ("search", "buy now")]
        if not clicks or rng.below(8) == 0:
            visit.act(f"search[{rng.choice(['trail shoe', 'lamp', 'cup mug', 'nothing at all'])}]")
        else:
            visit.act(f"click[{rng.choice(clicks)}]")
    return seen


@pytest.mark.parametrize("show_attributes", [False, True])
def test_visible_text_and_clickables_are_those_of_the_visit(shop, show_attributes) -> None:
    seen: set[str] = set()
    for number in range(12):
        visit = WebShopGame(shop, Goals(shop, "synthetic")[0], show_attributes=show_attributes)
        seen |= walk(visit, Stream("test", "html", number), 60)
    assert seen == {"index", "search_results", "item_page", "item_sub_page"}


def open_page(catalogue, asin: str) -> WebShopGame:
    visit = WebShopGame(catalogue, Goals(catalogue, "synthetic")[0])
    visit.act("search[lamp shoe]")
    while not visit.act(f"click[{asin.lower()}]"):
        assert visit.act("click[next >]")
        assert visit.number < 9
    return visit


@pytest.mark.parametrize("score", [None, 0.0, 0.75, 1.0])
def test_the_last_page_has_the_score(shop, score) -> None:
    visit = open_page(shop, "B07S7HDC88")
    visit.act("click[buy now]")
    visit.score = score
    check(visit)
    assert ("Your score (min 0.0, max 1.0)" in html(visit)) == (score is not None)


def test_chosen_options_and_opened_products_are_marked(shop) -> None:
    visit = open_page(shop, "B07S7HDC88")
    visit.act("click[red]")
    source = html(visit)
    assert source.count(" checked") == 1
    assert 'value="red" required checked' in source
    visit.act("click[< prev]")
    assert html(visit).count('class="product-link visited"') == 1


def test_hostile_text_stays_text_and_no_picture_is_loaded(small_shop) -> None:
    evil = '"><script>alert(1)</script><img src=//x.invalid/a onerror=alert(1)>{{ 7 * 7 }}'
    catalogue = small_shop.catalogue(
        small_shop.product(
            "B0EVIL0001",
            f"lamp {evil}",
            description=evil,
            bullets=(evil,),
            options={evil: (evil, "plain")},
            attributes=("tea",),
            image=f"javascript:{evil}",
        )
    )
    visit = open_page(catalogue, "B0EVIL0001")
    for action in ("click[features]", "click[< prev]", "click[description]", "click[< prev]", f"click[{evil}]"):
        check(visit)
        source = html(visit)
        assert "<script" not in source
        assert "<img" not in source
        assert "src=" not in source.replace("src=//x.invalid", "")
        assert "49" not in source
        assert visit.act(action)


words = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)


@given(name=words, asin=words, option=words, values=st.lists(words, min_size=1, max_size=4), others=words, bullet=words)
def test_any_text_of_a_product_survives(small_shop, name, asin, option, values, others, bullet) -> None:
    catalogue = small_shop.catalogue(
        small_shop.product(
            asin or "x",
            f"lamp {name}",
            options={option: tuple(dict.fromkeys(values)), others + "2": ("7", others)},
            bullets=(bullet, name),
            description=others,
            attributes=("tea",),
            image=bullet,
        )
    )
    visit = WebShopGame(catalogue, Goals(catalogue, "synthetic")[0], show_attributes=True)
    for action in ("search[lamp]", f"click[{asin.lower()}]", "click[features]", "click[< prev]", "click[attributes]"):
        visit.act(action)
        check(visit)


def test_texts_that_belong_together_are_one_block(shop) -> None:
    visit = open_page(shop, "B07S7HDC88")
    kinds = [kind for kind, _ in page_context(visit)["blocks"]]
    assert kinds == ["instruction", "buttons", "options", "title", "price", "rating", "buttons"]
    (groups,) = (parts for kind, parts in page_context(visit)["blocks"] if kind == "options")
    assert [[part.text for part in group] for group in groups] == [
        ["size", "6.5", "7", "8 wide"],
        ["color", "dark grey", "navy | white", "red"],
    ]
    visit.act("click[< prev]")
    products = [parts for kind, parts in page_context(visit)["blocks"] if kind == "products"]
    assert len(products) == 1
    assert len(products[0]) == 10
    assert all(len(texts) == 2 for _, texts in products[0])
