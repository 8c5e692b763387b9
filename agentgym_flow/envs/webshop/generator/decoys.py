"""Decoys: products that resemble a requested one, but do not satisfy its goals."""

from __future__ import annotations

from dataclasses import replace

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.generator.choices import draw_price
from agentgym_flow.envs.webshop.generator.draft import ProductDraft
from agentgym_flow.envs.webshop.generator.kinds import Feature, Option, ProductKind
from agentgym_flow.envs.webshop.generator.phrases import hyphenated

_BOUND_STEPS = 40
"""Dollars; a goal's price limit is at most the fourth multiple of ten above the price."""


def other(stream: Stream, kind: ProductKind, rival: ProductDraft, brand: str, usual: float) -> ProductDraft:
    """Return a product with the features of `rival`; the values of one option are divided between the two."""
    option = max((option for option in kind.options if option.distinct), key=lambda option: len(option.values))
    values = list(option.values)
    stream.shuffle(values)
    half = len(values) // 2
    mine, yours = values[: min(half, 2 + stream.below(3))], values[half : half + min(half, 2 + stream.below(3))]
    rival.options = _with_option(kind, rival.options, option, yours)
    rival.needed = option.name
    price = draw_price(stream, usual * (0.7 + 0.3 * stream.uniform()))
    return replace(
        rival,
        part="other",
        brand=brand,
        options=_with_option(kind, rival.options, option, mine),
        prices=(price,),
    )


def _with_option(
    kind: ProductKind, options: dict[str, tuple[str, ...]], option: Option, values: list[str]
) -> dict[str, tuple[str, ...]]:
    """Return the options with `values` for one of them; names and values are in table order."""
    drawn = {**options, option.name: tuple(value for value in option.values if value in values)}
    return {each.name: drawn[each.name] for each in kind.options if each.name in drawn}


def costly(stream: Stream, rival: ProductDraft, brand: str) -> ProductDraft:
    """Return a product with everything `rival` has, at a price above every limit of a goal for `rival`."""
    price = rival.prices[0]
    low = price // 10 * 10 + _BOUND_STEPS + 1 + (10 + price / 2) * stream.uniform()
    prices = [draw_price(stream, low)]
    if stream.below(2):
        prices.append(draw_price(stream, low * (1.2 + stream.uniform())))
    return replace(
        rival,
        part="costly",
        brand=brand,
        prices=tuple(prices),
        needed="",
    )


def lacking(
    stream: Stream, rival: ProductDraft, lead: Feature | None, spare: list[Feature], brand: str, usual: float
) -> ProductDraft:
    """Return a product with `lead` as the only feature of `rival`, if any, and with features that are unique here."""
    features = ([lead] if lead else []) + spare[:2]
    lacks = [feature for feature in rival.features if feature is not lead and " " in feature.phrase]
    price = draw_price(stream, usual * (0.8 + 0.4 * stream.uniform()))
    return replace(
        rival,
        part="lacking",
        brand=brand,
        features=tuple(features),
        prices=(price,),
        lead=features[0] if features else None,
        needed="",
        lacks=lacks,
    )


def accessory(stream: Stream, admired: ProductDraft, brand: str, usual: float) -> ProductDraft:
    """Return an accessory whose title has the features of `admired`, with hyphens in all of them but one."""
    low = max(4.0, usual * (0.2 + 0.3 * stream.uniform()))
    prices = [draw_price(stream, low)]
    if stream.below(2):
        prices.append(draw_price(stream, low * (1.3 + stream.uniform())))
    others = [feature for feature in admired.features if feature is not admired.lead and " " in feature.phrase]
    titled = [admired.lead] if admired.lead else []
    titled += [feature._replace(phrase=hyphenated(feature.phrase)) for feature in others]
    return ProductDraft("accessory", brand, (), {}, "", tuple(prices), titled=titled)
