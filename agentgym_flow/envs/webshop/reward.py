"""The score of a purchase: how well it satisfies the goal. The rules are those of WebShop, including its quirks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz import fuzz

from agentgym_flow.envs.webshop.colours import colour_among, colour_of
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.envs.webshop.product import Product

_THRESHOLD = 85
_LATIN_1_LETTERS = dict.fromkeys(range(128, 256))  # dropped by the original's library: `café` becomes `caf`
_NO_WORD = re.compile(r"\W")


class Score(NamedTuple):
    """The score of a purchase and its parts.

    Attributes:
        total: the score, from 0 to 1.
        r_type: the factor for the type of product: 1 for the right type, otherwise 0.5, 0.1 or 0.
        r_att: the share of the required attributes that the product has.
        r_option: the share of the required options that were chosen; None if there are none.
        r_price: whether the price is within the limit.
        query_match: whether bought and target product have the same query in the data.
        category_match: whether their category paths share two parts.
        title_score: the share of the nouns in the target's title that occur in the product's title.
    """

    total: float
    r_type: float
    r_att: float
    r_option: float | None
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float


def score(
    product: Product, goal: WebShopGoal, chosen: Mapping[str, str], nouns: Callable[[str], Sequence[str]]
) -> Score:
    """Return the score for buying `product` for `goal`.

    Args:
        product: the purchase.
        goal: the goal.
        chosen: the chosen options, name -> value. The names are ignored, and additional options have no effect.
        nouns: returns the nouns of a title (`nouns.make_tagger`).
    """
    query_match = product.query == goal.query
    category_match = len(_parts(product.product_category) & _parts(goal.product_category)) >= 2
    title_score = _title_score(nouns(product.name), nouns(goal.name))
    r_type = type_factor(query_match, category_match, title_score)
    attributes_hit = _attributes_hit(product, goal.attributes)
    wanted = goal.options.items() if isinstance(goal.options, Mapping) else goal.options
    options_hit = option_hits(wanted, chosen.values())
    r_price = product.price <= goal.price_upper
    attributes, options = len(goal.attributes), len(goal.options)
    return Score(
        total=total(r_type, attributes_hit, attributes, options_hit, options, r_price),
        r_type=r_type,
        r_att=attributes_hit / attributes,
        r_option=options_hit / options if options else None,
        r_price=r_price,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
    )


def type_factor(query_match: bool, category_match: bool, title_score: float) -> float:
    """Return the factor for the type of product: 0 for titles without common nouns, even if query or category match."""
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if query_match or category_match or title_score > 0.2 else 0.5


def total(
    r_type: float, attributes_hit: int, attributes: int, options_hit: int, options: int, price_hit: bool
) -> float:
    """Return the score from the numbers of satisfied attributes and options, and whether the price fits."""
    return (attributes_hit + options_hit + price_hit) / (attributes + options + 1) * r_type


def option_hits(wanted: Iterable[str | tuple[str, str]], chosen: Iterable[str]) -> int:
    """Return how many of the required options were chosen.

    Args:
        wanted: values, or pairs (name, value). As in the original, a pair is compared as the string representation of
            the tuple, in which a non-breaking space becomes the word `xa0`. In a pair, a colour counts only if it is
            the whole name or value; in a single value it can be a substring.
        chosen: the chosen values.
    """
    goals = [colour_of(one) if isinstance(one, str) else colour_among(one) or str(one) for one in wanted]
    values = [colour_of(value) for value in chosen]
    return sum(any(similar(value, goal) for value in values) for goal in goals)


def similar(text: str, other: str) -> bool:
    """Return whether two phrases match: a rounded token set ratio above 85, as in the original."""
    return round(fuzz.token_set_ratio(_processed(text), _processed(other))) > _THRESHOLD


@lru_cache(maxsize=1 << 14)
def _processed(text: str) -> str:
    return _NO_WORD.sub(" ", text.translate(_LATIN_1_LETTERS)).lower().strip()


def _parts(path: str) -> set[str]:
    return {part.strip() for part in path.split("›")}  # noqa: RUF001


def _title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    # Only the denominator counts repeated nouns, so even the target itself may score less than 1.
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2


def _attributes_hit(product: Product, attributes: Sequence[str]) -> int:
    texts = (product.name.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(similar(own, wanted) for own in product.attributes) or any(wanted in text for text in texts)
        for wanted in attributes
    )
