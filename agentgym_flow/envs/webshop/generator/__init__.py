"""The generated shop: its catalogue and requests in the schema of the official files.

It consists of families: twelve similar products that can only be distinguished by careful reading.

- Seven *plain* products share seven features: each has three, and each pair of features is in exactly one product (the
  Fano plane). Each of two required features is also in two other products.
- One *other* product has the three features of a plain one, but different values of one option.
- One *costly* product has everything that a plain one has, at a price above every limit of a goal for it.
- Two *lacking* products say what they lack, in the words of a query for a plain one.
- One *accessory* has the words of the family in its title, but is a different thing, such as a case or a spare part.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import structs

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.generator.tables import DEPARTMENTS, Family, Feature, Option, ProductDraft, ProductKind
from agentgym_flow.envs.webshop.generator.texts import entry, human, hyphenated, synthetic

_KEY = "agentgym_flow/WebShop-v0"
_FAMILIES_OF_KIND = 6
_COMBINATIONS = 8  # products with more combinations of options get no synthetic request, to limit the number of goals
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class GeneratedShop(NamedTuple):
    """The shop in the official schema, as JSON values.

    Attributes:
        items: the products, as in `items_shuffle.json`.
        attributes: as in `items_ins_v2.json`: ASIN -> `attributes`, and for some products an instruction.
        human: as in `items_human_ins.json`: ASIN -> instructions in human style.
        families: the families of near-duplicates, as lists of ASINs; each product is in one family.
    """

    items: list[dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    human: dict[str, list[dict[str, Any]]]
    families: list[list[str]]


def shop(season: str = "") -> GeneratedShop:
    """Return the generated shop as a new object, equal on every machine.

    Every season has the same products, but its own requests; `""` selects the standard ones.
    """
    made = GeneratedShop([], {}, {}, [])
    titles: set[str] = set()
    for department in DEPARTMENTS:
        for kind in department.kinds:
            pairs = [(name, line) for name in kind.names for line in kind.lines]
            chosen = Stream(_KEY, "families", kind.query).sample(pairs, min(_FAMILIES_OF_KIND, len(pairs)))
            for name, line in chosen:
                family = Family(department, kind, name, line)
                stream = Stream(_KEY, department.category, kind.query, name, line)
                drafts = draw_family(stream, family)
                made.families.append([_add(made, titles, season, stream, family, draft) for draft in drafts])
    Stream(_KEY, "order").shuffle(made.items)
    for place, item in enumerate(made.items):
        item["page"] = place // 50 + 1
    return made


def _add(
    made: GeneratedShop, titles: set[str], season: str, stream: Stream, family: Family, draft: ProductDraft
) -> str:
    """Add a product and its requests, and return its ASIN."""
    asin = "B0" + "".join(_LETTERS[stream.below(36)] for _ in range(8))
    item = entry(stream, family, draft)
    while item["name"] in titles:
        item = entry(stream, family, draft)
    titles.add(item["name"])
    made.items.append({"asin": asin, **item})
    made.attributes[asin] = {
        "attributes": [feature.phrase for feature in draft.features] or [family.kind.accessory_name]
    }
    if draft.part in ("plain", "other"):
        asked = _requests(stream, family, draft)  # in every season, because the next product continues this stream
        if season:
            asked = _requests(Stream(_KEY, "requests", season, asin), family, draft)
        made.attributes[asin].update(asked[0])
        made.human[asin] = [{"asin": asin, **one} for one in asked[1]]
    return asin


def _requests(stream: Stream, family: Family, draft: ProductDraft) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the synthetic request for a product, which may be empty, and those in human style."""
    built: dict[str, Any] = {}
    if stream.below(4) > 0 and math.prod(map(len, draft.options.values())) <= _COMBINATIONS:
        built = synthetic(stream, family, draft)
    people = 2 if stream.below(4) == 0 else 1
    return built, [human(stream, family, draft) for _ in range(people)]


PLANE = tuple((first, (first + 1) % 7, (first + 3) % 7) for first in range(7))
"""The lines of the Fano plane: seven triples of seven points; any two points are in exactly one triple."""


def draw_family(stream: Stream, family: Family) -> list[ProductDraft]:
    """Return the products of a family: seven plain, one other, one costly, two lacking, one accessory."""
    department, kind = family.department, family.kind
    known = {feature.phrase: feature for feature in department.feature_list}
    features = [known[phrase] for phrase in stream.sample(kind.features, len(kind.features))]
    pool, spare = features[:7], features[7:]
    brands = stream.sample(department.brands, 3)
    low, high = kind.price
    usual = low * (high / low) ** stream.uniform()
    leads = _leads(stream)
    plain = _plain(stream, kind, pool, leads, brands, usual)
    # Each of the three groups gets its own kind of decoy, so that at most three titles look equally good.
    groups = [[place for place, lead in enumerate(leads) if lead == point] for point in dict.fromkeys(leads)]
    crowd, *pairs = sorted(groups, key=len, reverse=True)
    stream.shuffle(pairs)
    mistaken, outdone, admired = (plain[place] for place in stream.sample(crowd, 3))
    rivalled, missed = (plain[stream.choice(pair)] for pair in pairs)
    drafts = [
        *plain,
        other(stream, kind, rivalled, stream.choice(brands), usual),
        costly(stream, outdone, stream.choice(brands)),
        lacking(stream, missed, missed.lead, spare, stream.choice(brands), usual),
        lacking(stream, mistaken, None, spare, stream.choice(brands), usual),
    ]
    for draft in drafts:
        _place(stream, draft)
        # Some titles get a phrase that resembles a feature that the product lacks.
        tempting = [feature.near for feature in pool if feature.near and feature not in draft.features]
        if tempting and len(draft.titled) < 2 and stream.below(2) == 0:
            draft.near = stream.choice(tempting)
    return [*drafts, accessory(stream, admired, stream.choice(brands), usual)]


def _plain(
    stream: Stream, kind: ProductKind, pool: list[Feature], leads: list[int], brands: list[str], usual: float
) -> list[ProductDraft]:
    """Return the seven plain products. Products with the same lead have nearly the same options."""
    shared: dict[int, tuple[dict[str, tuple[str, ...]], str]] = {}
    drafts = []
    for triple, lead in zip(PLANE, leads, strict=True):
        if lead not in shared:
            shared[lead] = draw_options(stream, kind.options)
        most, fixed = shared[lead]
        options = {}
        for name, values in most.items():  # without some of the values
            lost = stream.choice(values) if len(values) > 2 and stream.below(2) else ""
            options[name] = tuple(value for value in values if value != lost)
        price = draw_price(stream, usual * (0.8 + 0.5 * stream.uniform()))
        features = tuple(pool[point] for point in triple)
        quiet = tuple(pool[point] for point in triple if point == lead or point not in leads)
        drafts.append(
            ProductDraft("plain", stream.choice(brands), features, options, fixed, (price,), pool[lead], quiet)
        )
    return drafts


def _leads(stream: Stream) -> list[int]:
    """Return the lead of each plain product, as the index of the feature among the seven.

    One feature is the lead of three products, and two others of two each, so titles leave two or three candidates.
    """
    first, second = stream.sample(range(7), 2)
    rest = [set(triple) for triple in PLANE if first not in triple and second not in triple]
    third = set.intersection(*rest).pop()
    return [next(point for point in (first, second, third) if point in triple) for triple in PLANE]


def _place(stream: Stream, draft: ProductDraft) -> None:
    """Draw where each feature is stated: usually one in the title, the others in bullets or the description."""
    draft.titled, draft.listed, draft.told = [], [], []
    features = list(draft.features)
    stream.shuffle(features)
    chance = stream.below(40)
    if draft.lead and chance > 0:
        draft.titled = [draft.lead]
    if chance > 33:
        draft.titled += [feature for feature in features if feature is not draft.lead][:1]
    if features and stream.below(8) == 0 and not draft.lacks:
        draft.first = stream.choice(features)
    for feature in features:
        if feature is draft.first:
            continue
        if feature not in draft.titled:
            (draft.told if stream.below(14) == 0 else draft.listed).append(feature)
        elif stream.below(2):
            draft.listed.append(feature)


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
    titled += [structs.replace(feature, phrase=hyphenated(feature.phrase)) for feature in others]
    return ProductDraft("accessory", brand, (), {}, "", tuple(prices), titled=titled)


def draw_options(stream: Stream, options: tuple[Option, ...]) -> tuple[dict[str, tuple[str, ...]], str]:
    """Draw the options of a product, name -> values in table order, and the value of a fixed option or `""`."""
    drawn: dict[str, tuple[str, ...]] = {}
    fixed = ""
    for option in options:
        chance = stream.below(10)
        if chance < 8:
            values = option.values
            count = min(2 + stream.below(3), len(values))
            if option.distinct:
                drawn[option.name] = tuple(values[place] for place in sorted(stream.sample(range(len(values)), count)))
            else:  # sizes and packs: consecutive values
                start = stream.below(len(values) - count + 1)
                drawn[option.name] = values[start : start + count]
        elif not option.distinct:
            fixed = stream.choice(option.values)
            if not any(map(str.isalpha, fixed)):
                fixed = f"{option.name} {fixed}"
    return drawn, fixed


def draw_price(stream: Stream, about: float) -> float:
    """Return a price close to `about`, at most a dollar below it, with typical cents."""
    return int(about) + stream.choice((0.99, 0.99, 0.99, 0.95, 0.49, 0.89, 0.0))
