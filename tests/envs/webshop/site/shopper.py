"""A person in the shop, without a browser: reads pages, presses what is on them, and follows the redirects."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

SHOP_FORMS = {"search", "buttons", "products", "option"}
VOID = {"meta", "input", "link"}


@dataclass
class Form:
    """A form of a page: its class, where it goes, what it carries, and what can be pressed (name, value)."""

    kind: str
    action: str
    inert: bool
    hidden: dict[str, str] = field(default_factory=dict)
    presses: list[tuple[str, str]] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)


class PageReader(HTMLParser):
    """The forms of a page, the text of its main part, and all addresses that are in it."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        self.tags.append(tag)
        self.attributes |= given.keys()
        self.addresses += [given[name] for name in ("href", "src", "action") if given.get(name)]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "form":
            self.forms.append(Form(given.get("class", ""), given.get("action", ""), "inert" in given))
        elif given.get("type") == "hidden":
            self.forms[-1].hidden[given["name"]] = given["value"]
        elif given.get("type") == "radio" or (tag == "button" and given.get("name")):
            self.forms[-1].presses.append((given["name"], given["value"]))
            if "checked" in given:
                self.forms[-1].checked.append(given["value"])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "main" in self._open and data.strip():
            self.texts.append(data.strip())

    def clickables(self) -> list[str]:
        """Return what the shop's forms offer, as `WebShopGame.clickables` orders it."""
        order = ("search", "buttons", "products", "option")
        found = ["search"] if any(form.kind == "search" for form in self.forms) else []
        for kind in order:
            found += [value for form in self.forms if form.kind == kind for _, value in form.presses]
        return list(dict.fromkeys(found))


class Shopper:
    """Shops through a test client.

    Attributes:
        page: the present page.
        address: its address.
        status: the status that it came with.
    """

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.get("/")

    def _take(self, response: Any) -> None:
        self.status, self.source, self.address = response.status_code, response.text, response.url.path
        self.page = PageReader(response.text)

    def get(self, address: str) -> None:
        self._take(self.client.get(address))

    def post(self, address: str, **fields: str) -> None:
        self._take(self.client.post(address, data=fields))

    @property
    def id(self) -> str:
        return self.address.split("/")[2]

    @property
    def text(self) -> str:
        return " ".join(self.page.texts)

    def start(self, split: str = "train", task: int | str = "") -> None:
        self.get("/")
        (form,) = (form for form in self.page.forms if form.kind == "start")
        self.post(form.action, **form.hidden, split=split, task=str(task))

    def search(self, words: str) -> None:
        (form,) = (form for form in self.page.forms if "search" in form.kind.split())
        self.post(form.action, **form.hidden, search=words)

    def click(self, name: str) -> None:
        form = next(
            form for form in self.page.forms if form.kind in SHOP_FORMS and name in [value for _, value in form.presses]
        )
        self.post(form.action, **form.hidden, click=name)

    def act(self, action: str) -> None:
        """Do what an environment's action says, if the page has what it needs."""
        verb, _, rest = action.partition("[")
        self.search(rest[:-1]) if verb == "search" else self.click(rest[:-1])
