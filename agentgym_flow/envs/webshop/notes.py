"""What an episode has told so far: a memory that reads actions and observations and nothing else.

Where the customer is follows from the actions that were accepted, whatever a page says. What products are like is read
from the pages, in the observation modes `text` and `text_rich`; in the others the products stay unknown.

Notes never change. Those after one more turn are made once and kept with the notes before it, so the attempts of a
group, which share their first turns, share the reading of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.webshop.game import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS, Page, sub_pages
from agentgym_flow.envs.webshop.observe import SEPARATOR
from agentgym_flow.envs.webshop.requirements import GoalRequirements, read_wish
from agentgym_flow.episode import Turn
from agentgym_flow.prompts import PromptContext

TEXTS = tuple(title.lower() for title in sub_pages(show_attributes=True))
"""The pages of a product besides its own, as a click names them."""

TELLING_TEXTS = ("description", "features")
"""Those of them that a product has something to say on."""

_TAG = re.compile(r"\$(\d{1,9}(?:\.\d{1,9})?)(?: to \$(\d{1,9}(?:\.\d{1,9})?))?")
_BUTTON = re.compile(r"\[(clicked )?button\] (.*) \[(clicked )?button_\]")
_STARTS = (f"Instruction:{SEPARATOR}", f"WebShop{SEPARATOR}")  # of a page in the mode `text`

_REMEMBERED = 512  # instructions
_MOST_NOTES = 8_000  # after them; about 50 MB. Beyond, all is forgotten and read again by those who still play.


class SeenProduct(NamedTuple):
    """What is known of a product.

    Attributes:
        title: as the results show it; empty when it was never listed.
        low: the price in dollars, or the lower end of its range; 0 when it was not shown.
        high: the price, or the upper end of its range; 0 when it was not shown.
        known: the terms of the wish that were seen in its texts, as bits (`GoalRequirements.known_from`).
        opened: whether its page was opened.
        read: which of `TEXTS` were read.
        misfit: whether its page was opened and does not offer an option that the instruction names.
    """

    title: str = ""
    low: float = 0.0
    high: float = 0.0
    known: int = 0
    opened: bool = False
    read: tuple[str, ...] = ()
    misfit: bool = False

    @property
    def is_read(self) -> bool:
        """Whether everything that it says of itself was read."""
        return all(text in self.read for text in TELLING_TEXTS)


class WebShopNotes:
    """What is known at one moment. Compared by identity.

    Attributes:
        wish: what the instruction asks for.
        page: where the customer is.
        number: which page of results this is, or was before a product was opened.
        tried: the queries searched for so far, in order.
        listed: the products of the present or last page of results, as clicks name them.
        product: the product that is open, or empty.
        picks: the values clicked on the page of this product, in order.
        seen: product -> what is known of it.
    """

    __slots__ = ("_next", "listed", "number", "page", "picks", "product", "seen", "tried", "wish")

    def __init__(
        self,
        wish: GoalRequirements,
        page: Page = Page.INDEX,
        number: int = 1,
        tried: tuple[str, ...] = (),
        listed: tuple[str, ...] = (),
        product: str = "",
        picks: tuple[str, ...] = (),
        seen: Mapping[str, SeenProduct] | None = None,
    ) -> None:
        self.wish = wish
        self.page = page
        self.number = number
        self.tried = tried
        self.listed = listed
        self.product = product
        self.picks = picks
        self.seen = seen if seen is not None else {}
        self._next: dict[tuple[str, str], WebShopNotes] = {}

    def after(self, turn: Turn) -> WebShopNotes:
        """Return the notes after one more turn; `self` when it changed nothing."""
        if not turn.action_valid:
            return self
        key = turn.action, turn.next_observation
        found = self._next.get(key)
        if found is None:
            found = self._next[key] = self._read(*key)
            _kept[0] += found is not self
        return found

    def _read(self, action: str, page: str) -> WebShopNotes:
        verb, _, rest = action.partition("[")
        said = rest.partition("\n")[0].rpartition("]")[0].lower()
        if verb == "search":
            return self._results(page, 1, (*self.tried, " ".join(said.split())))
        if verb != "click":
            return self
        if said == BACK_TO_SEARCH.lower():
            return WebShopNotes(self.wish, tried=self.tried, seen=self.seen)
        if self.page is Page.RESULTS:
            step = {NEXT.lower(): 1, PREVIOUS.lower(): -1}.get(said)
            return self._item(page, said) if step is None else self._results(page, self.number + step, self.tried)
        if said == PREVIOUS.lower():
            if self.page is Page.SUB_PAGE:
                return self._at(Page.ITEM, self.product, self.picks, self.seen)
            return self._results(page, self.number, self.tried)
        if said in TEXTS:
            return self._text(page, said)
        if said == BUY.lower():
            return self._at(Page.DONE, self.product, self.picks, self.seen)
        return self._at(Page.ITEM, self.product, (*self.picks, said), self.seen)

    def _at(self, page: Page, product: str, picks: tuple[str, ...], seen: Mapping[str, SeenProduct]) -> WebShopNotes:
        return WebShopNotes(self.wish, page, self.number, self.tried, self.listed, product, picks, seen)

    def _results(self, page: str, number: int, tried: tuple[str, ...]) -> WebShopNotes:
        entries = _entries(self.wish, page)
        seen = {**{name: entry for name, entry in entries if name not in self.seen}, **self.seen}
        return WebShopNotes(self.wish, Page.RESULTS, number, tried, tuple(name for name, _ in entries), seen=seen)

    def _item(self, page: str, product: str) -> WebShopNotes:
        before = self.seen.get(product, SeenProduct())
        shown = _between(self.wish.instruction, page, PREVIOUS)
        after = before._replace(
            known=before.known | self.wish.known_from(shown) | self.wish.known_among(shown),
            opened=True,
            misfit=bool(shown) and self.wish.lacks_option([text.lower() for text in shown]),
        )
        return self._at(Page.ITEM, product, (), {**self.seen, product: after})

    def _text(self, page: str, text: str) -> WebShopNotes:
        before = self.seen.get(self.product, SeenProduct())
        after = before._replace(
            known=before.known | self.wish.known_from(_between(self.wish.instruction, page, PREVIOUS)),
            read=(*(other for other in before.read if other != text), text),
        )
        return self._at(Page.SUB_PAGE, self.product, self.picks, {**self.seen, self.product: after})


@lru_cache(maxsize=4096)
def texts_of(instruction: str, page: str) -> tuple[str, ...]:
    """Return the visible texts of a page after the instruction, without marks; none in the modes `html` and `url`."""
    told = (instruction and page.partition(instruction)[2]) or page
    if page.startswith(_STARTS):
        return tuple(told.strip().removeprefix(SEPARATOR.lstrip()).split(SEPARATOR))
    if "\n" not in page or "[button_]" not in page:
        return ()
    lines = (_BUTTON.sub(r"\2", line.strip()) for line in told.split("\n"))
    return tuple(line for line in lines if line)


def _between(instruction: str, page: str, start: str) -> Sequence[str]:
    """Return the texts of a page that come after a button."""
    texts = texts_of(instruction, page)
    return texts[texts.index(start) + 1 :] if start in texts else ()


@lru_cache(maxsize=4096)
def _entries(wish: GoalRequirements, page: str) -> tuple[tuple[str, SeenProduct], ...]:
    """Return the products that a page of results lists: what a click calls them, and what the page says of them."""
    found: dict[str, SeenProduct] = {}
    waiting: list[str] = []  # a name and then its title; a title may be missing, or hold the separator
    for text in _between(wish.instruction, page, NEXT):
        tag = _TAG.fullmatch(text)
        if tag is None:
            waiting.append(text)
        elif waiting:
            name, title = waiting[0].lower(), " ".join(waiting[1:])
            ends = float(tag[1]), float(tag[2] or tag[1])
            found[name] = SeenProduct(title, min(ends), max(ends), wish.known_from([title]))
            waiting = []
    return tuple(found.items())


_kept = [0]


@lru_cache(maxsize=_REMEMBERED)
def _beginning(instruction: str) -> WebShopNotes:
    return WebShopNotes(read_wish(instruction))


def notes_of(view: PromptContext) -> WebShopNotes:
    """Return what the episode has told until now."""
    if _kept[0] > _MOST_NOTES:
        _beginning.cache_clear()
        _kept[0] = 0
    notes = _beginning(view.info["goal"])
    for turn in view.episode.turns:
        notes = notes.after(turn)
    return notes


class Choice(NamedTuple):
    """The options of the page of a product.

    Attributes:
        wanted: name -> the value that is wanted, as a click calls it; only options where one is.
        chosen: name -> the value that is chosen.
        names: value, as a click calls it -> the option it belongs to.
    """

    wanted: Mapping[str, str]
    chosen: Mapping[str, str]
    names: Mapping[str, str]

    @property
    def left(self) -> list[str]:
        """The wanted values that are not chosen."""
        return [value for name, value in self.wanted.items() if self.chosen.get(name) != value]


def choice_on(notes: WebShopNotes, page: str, actions: Sequence[str]) -> Choice:
    """Return the options of the present page, which is that of a product; `actions` are the clicks of the moment."""
    return _choice(notes.wish, notes.picks, page, tuple(action[len("click[") : -1] for action in actions))


@lru_cache(maxsize=1 << 12)
def _choice(wish: GoalRequirements, picks: tuple[str, ...], page: str, clicks: tuple[str, ...]) -> Choice:
    values = set(clicks).difference(TEXTS, (BACK_TO_SEARCH.lower(), PREVIOUS.lower(), BUY.lower()))
    names: dict[str, str] = {}
    name = ""
    for text in map(str.lower, _between(wish.instruction, page, PREVIOUS)):
        if text in values:
            names[text] = name  # a value that two options share belongs to the later one
        else:
            name = text
    # Where the page does not tell, each value is an option of its own.
    names = {value: names.get(value, value) for value in clicks if value in values}
    wanted: dict[str, str] = {}
    for value, name in names.items():
        # In free wording `x-large` says `large` as well: the value with the most letters is meant.
        if wish.wants(name, value) and len(value) > len(wanted.get(name, "")):
            wanted[name] = value
    return Choice(wanted, {names[pick]: pick for pick in picks if pick in names}, names)
