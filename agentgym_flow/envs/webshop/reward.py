"""The score of a purchase: how much of what the goal asks for was bought. WebShop's own rules, quirks included."""

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
_LATIN_1_LETTERS = dict.fromkeys(range(128, 256))  # the original's library leaves these out: `café` is `caf`
_NO_WORD = re.compile(r"\W")


class Score(NamedTuple):
    """The score of a purchase and its parts.

    Attributes:
        total: from 0 to 1.
        r_type: 1 for the right kind of product, else 0.5, 0.1 or 0: everything is multiplied by it.
        r_att: which part of the goal's attributes the product has.
        r_option: which part of the goal's options was chosen; None when it asks for none.
        r_price: whether the price is within the limit.
        query_match: whether both products were found under the same search.
        category_match: whether their paths of categories share two parts.
        title_score: which part of the nouns of the goal's title the product's title has.
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
    """Return the score for buying `product` when `goal` was wanted.

    Args:
        product: what was bought.
        goal: what was asked for.
        chosen: the options chosen: name -> value. The names do not matter, and too many options do no harm.
        nouns: finds the nouns of a title (`nouns.make_tagger`).
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
    """Return the factor for the kind of product: a title without common words counts, whatever else matches."""
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if query_match or category_match or title_score > 0.2 else 0.5


def total(
    r_type: float, attributes_hit: int, attributes: int, options_hit: int, options: int, price_hit: bool
) -> float:
    """Return the score from how many of the goal's attributes and options were hit, and whether the price was."""
    return (attributes_hit + options_hit + price_hit) / (attributes + options + 1) * r_type


def option_hits(wanted: Iterable[str | tuple[str, str]], chosen: Iterable[str]) -> int:
    """Return how many of the options that are wanted were chosen.

    Args:
        wanted: values, or pairs of name and value. A pair is compared as the text that Python's `str` makes of the
            tuple, as in the original. That text spells a non-breaking space as an escape, which ends in the word `xa0`.
            A colour counts only where it is the whole name or the whole value; in a lone value it is found within.
        chosen: values.
    """
    goals = [colour_of(one) if isinstance(one, str) else colour_among(one) or str(one) for one in wanted]
    values = [colour_of(value) for value in chosen]
    return sum(any(similar(value, goal) for value in values) for goal in goals)


def similar(text: str, other: str) -> bool:
    """Return whether two phrases count as the same: a token set ratio above 85, rounded as the original rounds it."""
    return round(fuzz.token_set_ratio(_processed(text), _processed(other))) > _THRESHOLD


@lru_cache(maxsize=1 << 14)
def _processed(text: str) -> str:
    return _NO_WORD.sub(" ", text.translate(_LATIN_1_LETTERS)).lower().strip()


def _parts(path: str) -> set[str]:
    return {part.strip() for part in path.split("›")}  # noqa: RUF001


def _title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    # Repeats count below the line only, so the very product that was wanted may have less than 1.
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2


def _attributes_hit(product: Product, attributes: Sequence[str]) -> int:
    texts = (product.name.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(similar(own, wanted) for own in product.attributes) or any(wanted in text for text in texts)
        for wanted in attributes
    )
