"""The expert: it knows the target product, finds it, chooses the required options, and buys it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from operator import itemgetter

from agentgym_flow.envs.webshop.candidates import proposals
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
from agentgym_flow.envs.webshop.reward import option_hits, score

_BUTTONS = frozenset(map(clickable, (SEARCH, BACK_TO_SEARCH, PREVIOUS, *sub_pages(True), BUY)))


class WebShopExpert:
    """The expert for one goal. Only a wrong purchase is irrevocable, so it succeeds from every state before a purchase.

    Args:
        catalogue: the shop.
        goal: the goal.
        tagger: the noun tagger of the score.
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
        """Return the option values of the target by click, without those that have the name of a button."""
        return {click: option for click, option in self._card.values.items() if click not in _BUTTONS}

    @cached_property
    def choice(self) -> dict[str, str]:
        """The options to choose, name -> value: one for each option of the goal, if there is one."""
        options = self._goal.options
        wanted = list(options.items()) if isinstance(options, Mapping) else options
        chosen: dict[str, str] = {}
        for one in wanted:
            # Exact matches first, because a fuzzy match may be needed for another option.
            for name, value in sorted(self._clicks().values(), key=lambda pair: one not in (pair, pair[1])):
                if name not in chosen and option_hits([one], [value]):
                    chosen[name] = value
                    break
        return chosen

    @cached_property
    def best_score(self) -> float:
        """The score for buying the target with these options; below 1 if the data are inconsistent."""
        return score(self.target, self._goal, self.choice, self._tagger).total

    @cached_property
    def _query(self) -> tuple[str, int]:
        """A query that finds the target, and the page of results with the target; ("", 0) if no query finds it.

        The query is derived from the instruction if possible, otherwise from the texts of the target.
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
        # Brackets would change where the text of the action ends.
        return [" ".join(text.replace("[", " ").replace("]", " ").split()) for text in texts]

    def next(self, game: WebShopGame, read: Collection[tuple[str, str]] = (), room: int = 0) -> str | None:
        """Return the next action on a short path to the purchase; None if no purchase can score 1.

        If there is `room` for more actions, texts of the product are read until they state all required attributes, as
        a customer without knowledge of the target would do.

        Args:
            game: the current episode.
            read: pairs (ASIN, text that was read, such as `features`).
            room: the number of remaining actions.
        """
        if game.page is Page.DONE or self.best_score < 1.0:
            return None
        if game.product is not None and game.product.asin == self.target.asin:
            return self._at_target(game, read, room)
        if page := page_of(game.found, self._goal.product):
            away = page - game.number
            if game.page is not Page.RESULTS:  # on the page of another product
                return "click[< prev]"
            if not away:
                return f"click[{self._card.name}]"
            if abs(away) <= max(self._query[1], 1):  # a new search would take at least as many actions
                return "click[next >]" if away > 0 else "click[< prev]"
        query, page = self._query
        return f"search[{query}]" if page else None

    def _at_target(self, game: WebShopGame, read: Collection[tuple[str, str]], room: int) -> str:
        if game.page is Page.SUB_PAGE:
            return "click[< prev]"
        picks = [
            click
            for click, (name, value) in self._clicks().items()
            if self.choice.get(name) == value != game.options.get(name)
        ]
        text = self._to_read(read)
        if text and room >= len(picks) + 3:  # to the text, back, and the purchase
            return f"click[{text}]"
        return f"click[{picks[0] if picks else 'buy now'}]"

    def _to_read(self, read: Collection[tuple[str, str]]) -> str:
        """Return the text to read next; empty if title and read texts state all attributes, or everything was read."""
        known = self.target.name.lower()
        for text, content in (("features", " ".join(self.target.bullets)), ("description", self.target.description)):
            if all(attribute in known for attribute in self._goal.attributes):
                return ""
            if (self.target.asin, text) not in read:
                return text
            known += f"\n{content.lower()}"
        return ""


def page_of(found: Sequence[int], product: int) -> int:
    """Return the page of results, from 1, with a product; 0 if there is none."""
    return found.index(product) // PER_PAGE + 1 if product in found else 0
