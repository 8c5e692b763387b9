"""The expert, which knows the target product, and a scripted policy, which reads only what the shop shows.

The script is a baseline between random play and the expert. `docs/policies.md` has its results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue, Product
from agentgym_flow.envs.webshop.game import (
    BACK_TO_SEARCH,
    BUY,
    PER_PAGE,
    PREVIOUS,
    SEARCH,
    Card,
    Page,
    WebShopGame,
    clickable,
    sub_pages,
)
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.envs.webshop.notes import choice_on, notes_of
from agentgym_flow.envs.webshop.requirements import proposals
from agentgym_flow.envs.webshop.reward import NounTagger, option_hits, score

if TYPE_CHECKING:
    from agentgym_flow.episodes import PolicyOutput
    from agentgym_flow.policies.base import PolicyInput

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
    def _clicks(self) -> dict[str, tuple[str, str]]:
        """The option values of the target by click, without those that have the name of a button."""
        card = Card(self._goal.product, self.target)
        return {click: option for click, option in card.values.items() if click not in _BUTTONS}

    @cached_property
    def choice(self) -> dict[str, str]:
        """The options to choose, name -> value: one for each option of the goal, if there is one."""
        options = self._goal.options
        wanted = list(options.items()) if isinstance(options, Mapping) else options
        chosen: dict[str, str] = {}
        for one in wanted:
            # Exact matches first, because a fuzzy match may be needed for another option.
            for name, value in sorted(self._clicks.values(), key=lambda pair: one not in (pair, pair[1])):
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
        options = " ".join(f"{name} {value}" for name, value in self.choice.items())
        first = self.target.bullets[0] if self.target.bullets else ""
        name = self.target.name
        texts = (name, f"{name} {options}", f"{name} {first}", self.target.index_text)
        # Brackets would change where the text of the action ends.
        own_words = [" ".join(text.replace("[", " ").replace("]", " ").split()) for text in texts]
        for queries in (proposals(self._goal.instruction), own_words):
            pages = [(page_of(self._catalogue.search(query, HITS), self._goal.product), query) for query in queries]
            found = [(page, query) for page, query in pages if page]
            if found:
                page, query = min(found, key=itemgetter(0))
                return query, page
        return "", 0

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
                return f"click[{clickable(self.target.asin)}]"
            if abs(away) <= max(self._query[1], 1):  # a new search would take at least as many actions
                return "click[next >]" if away > 0 else "click[< prev]"
        query, page = self._query
        return f"search[{query}]" if page else None

    def _at_target(self, game: WebShopGame, read: Collection[tuple[str, str]], room: int) -> str:
        if game.page is Page.SUB_PAGE:
            return "click[< prev]"
        picks = [
            click
            for click, (name, value) in self._clicks.items()
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


_PAGES = 3  # pages of results to search for a price that fits


class KeywordShopper:
    """Buys the first product whose price fits. It reads only observations, the goal and the admissible actions."""

    name = "scripted"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input; each is a function of the episode's observations."""
        from agentgym_flow.episodes import PolicyOutput  # not needed by the environment, which has the expert

        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: PolicyInput) -> str:
    notes = notes_of(policy_input)
    left = policy_input.episode.max_steps - len(policy_input.episode.turns)
    if notes.page is Page.ITEM:
        if notes.seen[notes.product].misfit and left > 5:  # back, open, pick, pick, buy
            return "click[< prev]"
        wanted = choice_on(notes, policy_input.observation, policy_input.info["admissible_actions"]).left
        return f"click[{wanted[0]}]" if wanted and left > 1 else "click[buy now]"
    if notes.page is Page.SUB_PAGE:
        return "click[< prev]"
    # Find a product whose price fits: open it, turn the page, or try another query.
    clicks: list[str] = policy_input.info["admissible_actions"]
    products = [product for product in notes.listed if f"click[{product}]" in clicks]
    for product in products:
        if notes.seen[product].high <= notes.requirements.limit and not notes.seen[product].misfit:
            return f"click[{product}]"
    queries = proposals(notes.requirements.instruction)
    untried = [query for query in queries if query not in notes.tried]
    if products and not untried:  # nothing fits, so open the first product
        return f"click[{products[0]}]"
    if products and notes.number < _PAGES:
        return "click[next >]"
    return f"search[{untried[0] if untried else queries[0]}]"
