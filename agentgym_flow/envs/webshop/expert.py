"""The customer who knows what the shop wants: finds the product of the goal, chooses what it asks for, and buys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from operator import itemgetter

from agentgym_flow.envs.webshop.card import Card, clickable
from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue
from agentgym_flow.envs.webshop.game import (
    BACK_TO_SEARCH,
    BUY,
    PER_PAGE,
    PREVIOUS,
    SEARCH,
    Page,
    WebShopGame,
    sub_pages,
)
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.envs.webshop.nouns import NounTagger
from agentgym_flow.envs.webshop.product import Product
from agentgym_flow.envs.webshop.queries import proposals
from agentgym_flow.envs.webshop.reward import option_hits, score

_BUTTONS = frozenset(map(clickable, (SEARCH, BACK_TO_SEARCH, PREVIOUS, *sub_pages(True), BUY)))


class WebShopExpert:
    """Plans for one goal in one shop. Nothing but buying the wrong thing is irrevocable, so every visit can be won.

    Args:
        catalogue: the shop.
        goal: what is wanted.
        tagger: the one that the score uses.
    """

    def __init__(self, catalogue: Catalogue, goal: WebShopGoal, tagger: NounTagger) -> None:
        self._catalogue = catalogue
        self._goal = goal
        self._tagger = tagger

    @cached_property
    def target(self) -> Product:
        """The product that the goal was made from."""
        return self._catalogue.listing(self._goal.product).product

    @cached_property
    def _card(self) -> Card:
        return Card(self._goal.product, self.target)

    def _clicks(self) -> dict[str, tuple[str, str]]:
        """Return what a click calls the options that it can choose: not those that are called like a button."""
        return {click: option for click, option in self._card.values.items() if click not in _BUTTONS}

    @cached_property
    def choice(self) -> dict[str, str]:
        """The options to choose, name -> value: one that fulfils each option of the goal, as far as there is one."""
        options = self._goal.options
        wanted = list(options.items()) if isinstance(options, Mapping) else options
        chosen: dict[str, str] = {}
        for one in wanted:
            # What is named to the letter, before what only counts as the same and may be needed for another one.
            for name, value in sorted(self._clicks().values(), key=lambda pair: one not in (pair, pair[1])):
                if name not in chosen and option_hits([one], [value]):
                    chosen[name] = value
                    break
        return chosen

    @cached_property
    def best_score(self) -> float:
        """What buying the target with these options brings; below 1 where the data contradict themselves."""
        return score(self.target, self._goal, self.choice, self._tagger).total

    @cached_property
    def _query(self) -> tuple[str, int]:
        """The query that finds the target, and the page of results that lists it; page 0 when none does.

        One that a customer could think of who has read the instruction; the target's own words where none finds it.
        """
        for queries in (proposals(self._goal.instruction), self._own_words()):
            pages = [(page_of(self._catalogue.search(query, HITS), self._goal.product), query) for query in queries]
            found = [(page, query) for page, query in pages if page]
            if found:
                page, query = min(found, key=itemgetter(0))
                return query, page
        return "", 0

    def _own_words(self) -> Sequence[str]:
        options = " ".join(f"{name} {value}" for name, value in self.choice.items())
        first = self.target.bullets[0] if self.target.bullets else ""
        texts = (
            self.target.name,
            f"{self.target.name} {options}",
            f"{self.target.name} {first}",
            self.target.index_text,
        )
        # A bracket would end the action early or late, and upstream splits the words on blanks anyway.
        return [" ".join(text.replace("[", " ").replace("]", " ").split()) for text in texts]

    def next(self, visit: WebShopGame, read: Collection[tuple[str, str]] = (), room: int = 0) -> str | None:
        """Return the next action of a short way to the purchase; None when nothing can be won here.

        With `room` for more actions than it takes, texts of the product are read until they have told all that is
        wanted, as a customer would who does not know the shop.

        Args:
            visit: where the customer is.
            read: pairs of the ASIN of a product and the text of it that was read, such as `features`.
            room: how many actions are left.
        """
        if visit.page is Page.DONE or self.best_score < 1.0:
            return None
        if visit.product is not None and visit.product.asin == self.target.asin:
            return self._at_target(visit, read, room)
        if page := page_of(visit.found, self._goal.product):
            away = page - visit.number
            if visit.page is not Page.RESULTS:  # another product: its results are a click away, or two from its texts
                return "click[< prev]"
            if not away:
                return f"click[{self._card.name}]"
            if abs(away) <= max(self._query[1], 1):  # a new search is one action and then as many pages
                return "click[next >]" if away > 0 else "click[< prev]"
        query, page = self._query
        return f"search[{query}]" if page else None

    def _at_target(self, visit: WebShopGame, read: Collection[tuple[str, str]], room: int) -> str:
        if visit.page is Page.SUB_PAGE:
            return "click[< prev]"
        picks = [
            click
            for click, (name, value) in self._clicks().items()
            if self.choice.get(name) == value != visit.options.get(name)
        ]
        text = self._to_read(read)
        if text and room >= len(picks) + 3:  # there, back, and the purchase
            return f"click[{text}]"
        return f"click[{picks[0] if picks else 'buy now'}]"

    def _to_read(self, read: Collection[tuple[str, str]]) -> str:
        """Return the text to read next; empty when the title and what was read say all that is wanted, or can say."""
        known = self.target.name.lower()
        for text, content in (("features", " ".join(self.target.bullets)), ("description", self.target.description)):
            if all(attribute in known for attribute in self._goal.attributes):
                return ""
            if (self.target.asin, text) not in read:
                return text
            known += f"\n{content.lower()}"
        return ""


def page_of(found: Sequence[int], product: int) -> int:
    """Return the page of results, from 1, that lists a product; 0 when none does."""
    return found.index(product) // PER_PAGE + 1 if product in found else 0
