"""A scripted policy that shops by keywords: a baseline between random play and the expert.

It searches with the words of the instruction, opens the first product whose price fits, picks the options that the
instruction names, and buys. It reads titles and prices, but not the texts of products. `docs/policies.md` has its
results.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_flow.envs.webshop.candidates import proposals
from agentgym_flow.envs.webshop.game import Page
from agentgym_flow.envs.webshop.notes import WebShopNotes, choice_on, notes_of
from agentgym_flow.policies.base import PolicyInput, PolicyOutput

BUY, NEXT, PREVIOUS = "click[buy now]", "click[next >]", "click[< prev]"

_PAGES = 3  # pages of results to search for a price that fits


class KeywordShopper:
    """Buys the first product whose price fits. It reads only observations, the goal and the admissible actions."""

    name = "scripted"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input; each is a function of the episode's observations."""
        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: PolicyInput) -> str:
    notes = notes_of(policy_input)
    left = policy_input.episode.max_steps - len(policy_input.episode.turns)
    if notes.page is Page.ITEM:
        if notes.seen[notes.product].misfit and left > 5:  # back, open, pick, pick, buy
            return PREVIOUS
        wanted = choice_on(notes, policy_input.observation, policy_input.info["admissible_actions"]).left
        return f"click[{wanted[0]}]" if wanted and left > 1 else BUY
    if notes.page is Page.SUB_PAGE:
        return PREVIOUS
    return _look(notes, policy_input)


def _look(notes: WebShopNotes, policy_input: PolicyInput) -> str:
    """Return the next action to find a product whose price fits: open it, turn the page, or try another query."""
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
        return NEXT
    return f"search[{untried[0] if untried else queries[0]}]"
