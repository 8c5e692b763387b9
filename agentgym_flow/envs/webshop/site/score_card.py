"""What a purchase was worth, part by part, for the person who made it."""

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
    """One thing that the goal asks for.

    Attributes:
        kind: `attribute`, `option` or `price`.
        wanted: what the goal asks for, in words.
        hit: whether the purchase has it.
    """

    kind: str
    wanted: str
    hit: bool


@dataclass(frozen=True, slots=True)
class ScoreCard:
    """A purchase beside what was wanted.

    Attributes:
        score: the score and its factors.
        parts: everything that counts, in the order attributes, options, price.
        bought: the product that was bought.
        wanted: the product that the goal was made from.
        chosen: the options chosen, name -> value.
        asked: the options that the goal asks for, in words.
        price: what was paid, in dollars.
        limit: the most that it may have cost; None when the goal names no limit.
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
        """How many of `parts` the purchase has."""
        return sum(part.hit for part in self.parts)

    @property
    def same(self) -> bool:
        """Whether the very product was bought that the goal was made from."""
        return self.bought.asin == self.wanted.asin


def score_card(visit: WebShopGame, score: Score) -> ScoreCard:
    """Return the card of a visit that ended with a purchase, and its score."""
    bought, goal = visit.product, visit.goal
    assert bought is not None  # the visit ended with a purchase
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
            *(ScorePart("option", name, _has_option(bought, goal, one, visit.options)) for name, one in options),
            ScorePart("price", "any price" if limit is None else f"at most ${limit:.2f}", score.r_price),
        ),
        bought=bought,
        wanted=visit.catalogue.listing(goal.product).product,
        chosen=dict(visit.options),
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
    """Return no noun: attributes and options are not about titles."""
    return []
