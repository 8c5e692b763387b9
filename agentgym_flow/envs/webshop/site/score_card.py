"""The parts of the score of a purchase, for display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentgym_flow.envs.webshop import reward
from agentgym_flow.envs.webshop.game import WebShopGame
from agentgym_flow.envs.webshop.goals import NO_BOUND, WebShopGoal
from agentgym_flow.envs.webshop.product import Product
from agentgym_flow.envs.webshop.reward import Score


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One requirement of the goal.

    Attributes:
        kind: `attribute`, `option` or `price`.
        wanted: a description of the requirement.
        hit: whether the purchase satisfies it.
    """

    kind: str
    wanted: str
    hit: bool


@dataclass(frozen=True, slots=True)
class ScoreCard:
    """A comparison of a purchase with the goal.

    Attributes:
        score: the score and its factors.
        parts: all requirements, in the order attributes, options, price.
        bought: the purchased product.
        wanted: the target product.
        chosen: the chosen options, name -> value.
        asked: descriptions of the required options.
        price: the price paid, in dollars.
        limit: the price limit; None if the goal has none.
    """

    score: Score
    parts: tuple[ScorePart, ...]
    bought: Product
    wanted: Product
    chosen: Mapping[str, str]
    asked: tuple[str, ...]
    price: float
    limit: float | None

    @property
    def hits(self) -> int:
        """The number of satisfied requirements."""
        return sum(part.hit for part in self.parts)

    @property
    def same(self) -> bool:
        """Whether the purchased product is the target."""
        return self.bought.asin == self.wanted.asin


def score_card(game: WebShopGame, score: Score) -> ScoreCard:
    """Return the score card of a game that ended with a purchase."""
    bought, goal = game.product, game.goal
    assert bought is not None  # after a purchase
    limit = None if goal.price_upper >= NO_BOUND else goal.price_upper
    options: list[tuple[str, Mapping[str, str] | tuple[str, ...]]]
    if isinstance(goal.options, Mapping):
        options = [(f"{name}: {value}", {name: value}) for name, value in goal.options.items()]
    else:
        options = [(value, (value,)) for value in goal.options]
    return ScoreCard(
        score=score,
        parts=(
            *(ScorePart("attribute", wanted, _has_attribute(bought, goal, wanted)) for wanted in goal.attributes),
            *(ScorePart("option", name, _has_option(bought, goal, one, game.options)) for name, one in options),
            ScorePart("price", "any price" if limit is None else f"at most ${limit:.2f}", score.r_price),
        ),
        bought=bought,
        wanted=game.catalogue.listing(goal.product).product,
        chosen=dict(game.options),
        asked=tuple(name for name, _ in options),
        price=bought.price,
        limit=limit,
    )


def _has_attribute(bought: Product, goal: WebShopGoal, wanted: str) -> bool:
    return reward.score(bought, replace(goal, attributes=(wanted,), options=()), {}, _no_nouns).r_att == 1.0


def _has_option(
    bought: Product, goal: WebShopGoal, wanted: Mapping[str, str] | tuple[str, ...], chosen: Mapping[str, str]
) -> bool:
    return reward.score(bought, replace(goal, options=wanted), chosen, _no_nouns).r_option == 1.0


def _no_nouns(title: str) -> list[str]:
    """Return no nouns, because they do not affect the score of attributes and options."""
    return []
