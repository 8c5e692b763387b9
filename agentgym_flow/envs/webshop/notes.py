"""Notes on an episode, extracted from the actions and observations only.

The current page follows from the valid actions. Facts about products are parsed from pages in the observation modes
`text` and `text_rich`; in other modes, products stay unknown.

Notes are immutable. The notes after a further turn are cached in the notes before it, so attempts of a group, which
share their first turns, parse them only once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agentgym_flow.envs.webshop.game import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS, Page, sub_pages
from agentgym_flow.envs.webshop.observation import SEPARATOR
from agentgym_flow.envs.webshop.requirements import GoalRequirements, requirements_of

if TYPE_CHECKING:
    from agentgym_flow.episodes import Turn
    from agentgym_flow.prompts import PromptContext

TEXTS = tuple(title.lower() for title in sub_pages(show_attributes=True))
"""The pages with a product's texts, by their names in clicks."""

TELLING_TEXTS = ("description", "features")
"""The texts that may state required attributes."""

_TAG = re.compile(r"\$(\d{1,9}(?:\.\d{1,9})?)(?: to \$(\d{1,9}(?:\.\d{1,9})?))?")
_BUTTON = re.compile(r"\[(clicked )?button\] (.*) \[(clicked )?button_\]")
_STARTS = (f"Instruction:{SEPARATOR}", f"WebShop{SEPARATOR}")  # beginnings of pages in the mode `text`

_REMEMBERED = 512  # cached instructions
_MOST_NOTES = 8_000  # cached notes, about 50 MB; the cache is cleared when it is full


class SeenProduct(NamedTuple):
    """The known facts about a product.

    Attributes:
        title: the title in the results; empty if it was never listed.
        low: the price in dollars, or the lower end of its range; 0 if unknown.
        high: the price, or the upper end of its range; 0 if unknown.
        known: the required terms that its texts contain, as bits (`GoalRequirements.known_from`).
        opened: whether its page was opened.
        read: which of `TEXTS` were read.
        misfit: whether its page was opened and lacks an option that the instruction names.
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
        """Whether all of `TELLING_TEXTS` were read."""
        return all(text in self.read for text in TELLING_TEXTS)


@dataclass(slots=True, eq=False)
class WebShopNotes:
    """The notes at one step. Compared by identity.

    Attributes:
        requirements: the requirements of the instruction.
        page: the current page.
        number: the number of the current or last page of results.
        tried: the queries made so far, in order.
        listed: the products of the current or last page of results, by their names in clicks.
        product: the open product; empty if there is none.
        picks: the values clicked on the page of this product, in order.
        seen: product -> the known facts about it.
    """

    requirements: GoalRequirements
    page: Page = Page.INDEX
    number: int = 1
    tried: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    product: str = ""
    picks: tuple[str, ...] = ()
    seen: Mapping[str, SeenProduct] = field(default_factory=dict)
    _next: dict[tuple[str, str], WebShopNotes] = field(default_factory=dict, init=False, repr=False)

    def after(self, turn: Turn) -> WebShopNotes:
        """Return the notes after a further turn; `self` if it changed nothing."""
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
            return WebShopNotes(self.requirements, tried=self.tried, seen=self.seen)
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
        return WebShopNotes(self.requirements, page, self.number, self.tried, self.listed, product, picks, seen)

    def _results(self, page: str, number: int, tried: tuple[str, ...]) -> WebShopNotes:
        entries = _entries(self.requirements, page)
        seen = {**{name: entry for name, entry in entries if name not in self.seen}, **self.seen}
        return WebShopNotes(
            self.requirements, Page.RESULTS, number, tried, tuple(name for name, _ in entries), seen=seen
        )

    def _item(self, page: str, product: str) -> WebShopNotes:
        before = self.seen.get(product, SeenProduct())
        shown = _between(self.requirements.instruction, page, PREVIOUS)
        after = before._replace(
            known=before.known | self.requirements.known_from(shown) | self.requirements.known_among(shown),
            opened=True,
            misfit=bool(shown) and self.requirements.lacks_option([text.lower() for text in shown]),
        )
        return self._at(Page.ITEM, product, (), {**self.seen, product: after})

    def _text(self, page: str, text: str) -> WebShopNotes:
        before = self.seen.get(self.product, SeenProduct())
        after = before._replace(
            known=before.known | self.requirements.known_from(_between(self.requirements.instruction, page, PREVIOUS)),
            read=(*(other for other in before.read if other != text), text),
        )
        return self._at(Page.SUB_PAGE, self.product, self.picks, {**self.seen, self.product: after})


@lru_cache(maxsize=4096)
def texts_of(instruction: str, page: str) -> tuple[str, ...]:
    """Return the visible texts of a page after the instruction, without marks; empty in the modes `html` and `url`."""
    rest = (instruction and page.partition(instruction)[2]) or page
    if page.startswith(_STARTS):
        return tuple(rest.strip().removeprefix(SEPARATOR.lstrip()).split(SEPARATOR))
    if "\n" not in page or "[button_]" not in page:
        return ()
    lines = (_BUTTON.sub(r"\2", line.strip()) for line in rest.split("\n"))
    return tuple(line for line in lines if line)


def _between(instruction: str, page: str, start: str) -> Sequence[str]:
    """Return the texts of a page after a button."""
    texts = texts_of(instruction, page)
    return texts[texts.index(start) + 1 :] if start in texts else ()


@lru_cache(maxsize=4096)
def _entries(requirements: GoalRequirements, page: str) -> tuple[tuple[str, SeenProduct], ...]:
    """Return the products on a page of results: (name in a click, known facts)."""
    found: dict[str, SeenProduct] = {}
    waiting: list[str] = []  # a name followed by its title, which may be missing or contain the separator
    for text in _between(requirements.instruction, page, NEXT):
        tag = _TAG.fullmatch(text)
        if tag is None:
            waiting.append(text)
        elif waiting:
            name, title = waiting[0].lower(), " ".join(waiting[1:])
            ends = float(tag[1]), float(tag[2] or tag[1])
            found[name] = SeenProduct(title, min(ends), max(ends), requirements.known_from([title]))
            waiting = []
    return tuple(found.items())


_kept = [0]


@lru_cache(maxsize=_REMEMBERED)
def _beginning(instruction: str) -> WebShopNotes:
    return WebShopNotes(requirements_of(instruction))


def notes_of(policy_input: PromptContext) -> WebShopNotes:
    """Return the notes on the episode so far."""
    if _kept[0] > _MOST_NOTES:
        _beginning.cache_clear()
        _kept[0] = 0
    notes = _beginning(policy_input.info["goal"])
    for turn in policy_input.episode.turns:
        notes = notes.after(turn)
    return notes


class Choice(NamedTuple):
    """The options on a product page, with values by their names in clicks.

    Attributes:
        wanted: option -> the required value, if there is one.
        chosen: option -> the chosen value.
        names: value -> its option.
    """

    wanted: Mapping[str, str]
    chosen: Mapping[str, str]
    names: Mapping[str, str]

    @property
    def left(self) -> list[str]:
        """The required values that are not chosen."""
        return [value for name, value in self.wanted.items() if self.chosen.get(name) != value]


def choice_on(notes: WebShopNotes, page: str, actions: Sequence[str]) -> Choice:
    """Return the options of the current page, which must be a product page; `actions` are its admissible actions."""
    return _choice(notes.requirements, notes.picks, page, tuple(action[len("click[") : -1] for action in actions))


@lru_cache(maxsize=1 << 12)
def _choice(requirements: GoalRequirements, picks: tuple[str, ...], page: str, clicks: tuple[str, ...]) -> Choice:
    values = set(clicks).difference(TEXTS, (BACK_TO_SEARCH.lower(), PREVIOUS.lower(), BUY.lower()))
    names: dict[str, str] = {}
    name = ""
    for text in map(str.lower, _between(requirements.instruction, page, PREVIOUS)):
        if text in values:
            names[text] = name  # a shared value belongs to the later option
        else:
            name = text
    # If the page does not show the options, each value is a separate option.
    names = {value: names.get(value, value) for value in clicks if value in values}
    wanted: dict[str, str] = {}
    for value, name in names.items():
        # In free wording `x-large` also matches `large`, so the longest value counts.
        if requirements.wants(name, value) and len(value) > len(wanted.get(name, "")):
            wanted[name] = value
    return Choice(wanted, {names[pick]: pick for pick in picks if pick in names}, names)
