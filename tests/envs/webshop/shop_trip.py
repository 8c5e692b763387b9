"""A trip through a shop as a policy sees it: texts and clicks, without an environment."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from agentgym_flow.envs.webshop.catalogue import Listing, MemoryCatalogue, Product
from agentgym_flow.envs.webshop.game import Page, WebShopGame
from agentgym_flow.envs.webshop.goals import NO_BOUND, WebShopGoal
from agentgym_flow.envs.webshop.observation import text
from agentgym_flow.episodes import Episode, PolicyOutput, Turn

ENV = "agentgym_flow/WebShop-v0"


def product(asin: str, name: str, price: float | tuple[float, ...] = 20.0, **fields: Any) -> Product:
    """Return a product; what is not given is empty."""
    options = {name: tuple(values) for name, values in fields.get("options", {}).items()}
    prices = price if isinstance(price, tuple) else (price,)
    bullets = tuple(fields.get("bullets", ()))
    return Product(asin, name, fields.get("description", ""), bullets, prices, options, (), "garden", "A", "mug", "")


class Trip:
    """A visit, for an instruction, to a shop of these products or to the whole `catalogue`.

    `do` acts, and `policy_input` is what a policy may look at.
    """

    def __init__(
        self,
        instruction: str,
        *products: Product,
        observe: Callable[[WebShopGame], str] = text,
        max_steps: int = 15,
        catalogue: MemoryCatalogue | None = None,
    ) -> None:
        goal = WebShopGoal(0, 0, "X", "Mug", "mug", "garden", "A", instruction, ("any",), (), NO_BOUND, 1.0)
        self.visit = WebShopGame(catalogue or MemoryCatalogue(map(Listing, products)), goal)
        self.observe = observe
        start = observe(self.visit)
        self.episode = Episode(ENV, {}, {}, "train", 0, "?", instruction, 0, 0, max_steps, start, "?")

    def do(self, *actions: str) -> Trip:
        """Act; what the shop does not accept is a turn as well."""
        for action in actions:
            before, valid = self.observe(self.visit), self.visit.act(action)
            done = self.visit.page is Page.DONE
            after = self.observe(self.visit)
            self.episode.turns.append(
                Turn(before, "?", PolicyOutput(action), 0.0, after, "?", done, False, valid, False, 0.0)
            )
        return self

    @property
    def policy_input(self) -> Any:
        """What a policy may look at: no environment, and no other keys of `info`."""
        clicks = [f"click[{name}]" for name in self.visit.clickables() if name != "search"]
        info = {"goal": self.episode.goal, "admissible_actions": clicks, "action_templates": ["search[{query}]"]}
        observation = self.observe(self.visit)
        return SimpleNamespace(observation=observation, info=info, episode=self.episode, candidates=lambda: clicks)
