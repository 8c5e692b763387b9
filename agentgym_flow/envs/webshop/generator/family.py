"""A family: twelve products that a hurried reader takes for one another, and what sets each apart.

- Seven *plain* products share seven features so that each has three and any two of the features meet in exactly one
  product (the Fano plane). Whoever wants two features finds each of them in two other products as well.
- One *other* has the three features of a plain one and none of the values of one of its options.
- One *costly* product has everything that a plain one has, at a price above any bound that a goal can set for it.
- Two *lacking* ones say what they lack, in the words that a buyer of a plain one will search for.
- One *accessory* has the words of the family in its title and is another thing: a case for it, or a spare part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from agentgym_flow.envs.webshop.generator.kinds import Department, Feature, Kind, Option
from agentgym_flow.envs.webshop.generator.phrases import hyphenated
from agentgym_flow.seeding import Stream

PLANE = tuple((first, (first + 1) % 7, (first + 3) % 7) for first in range(7))
"""The lines of the Fano plane: seven triples of seven points; any two points are in exactly one triple."""

BOUND_STEPS = 40
"""Dollars: a goal's bound is at most the fourth multiple of ten above the price."""

Part = Literal["plain", "other", "costly", "lacking", "accessory"]


class Family(NamedTuple):
    """What the products of a family have in common."""

    department: Department
    kind: Kind
    name: str
    line: str

    @property
    def thing(self) -> str:
        """The line and the name: `cotton blend biker shorts`."""
        return f"{self.line} {self.name}"


class Choices(NamedTuple):
    """What a buyer chooses: name -> values; and the value of an option that is not for choosing, or nothing."""

    options: dict[str, tuple[str, ...]]
    fixed: str


@dataclass(slots=True)
class Draft:
    """A product before it is put into words.

    Attributes:
        part: its part in the family.
        brand: who sells it.
        features: what it has.
        options: name -> values, as far as the buyer chooses.
        fixed: the value of an option that the buyer does not choose, for the title; or nothing.
        prices: one, or the two ends of a range.
        lead: the feature that its title names, as do the titles of two or three others.
        needed: the option without which another product would do as well; or nothing.
        titled: the features that its title names.
        first: the feature of its first bullet, which the search engine reads; None when it has a note there.
        listed: the features of its other bullets.
        told: the features that its description tells of.
        lacks: the features of which its first bullet says that it does not have them.
        near: a phrase in its title that looks like a feature that it lacks; or nothing.
    """

    part: Part
    brand: str
    features: tuple[Feature, ...]
    options: dict[str, tuple[str, ...]]
    fixed: str
    prices: tuple[float, ...]
    lead: Feature | None = None
    needed: str = ""
    titled: list[Feature] = field(default_factory=list)
    first: Feature | None = None
    listed: list[Feature] = field(default_factory=list)
    told: list[Feature] = field(default_factory=list)
    lacks: list[Feature] = field(default_factory=list)
    near: str = ""


def draw_family(stream: Stream, family: Family) -> list[Draft]:
    """Return the products of a family: seven plain ones, the other, the costly, two lacking ones, the accessory."""
    department, kind = family.department, family.kind
    phrases = stream.sample(kind.features, len(kind.features))
    pool = [department.features[phrase] for phrase in phrases[:7]]
    brands = stream.sample(department.brands, 3)
    low, high = kind.price
    usual = low * (high / low) ** stream.uniform()
    drafts = []
    shared: dict[int, Choices] = {}
    leads = _leads(stream)
    for triple, lead in zip(PLANE, leads, strict=True):
        if lead not in shared:
            shared[lead] = _draw_options(stream, kind.options)
        options, fixed = _vary(stream, shared[lead])
        price = _price(stream, usual * (0.8 + 0.5 * stream.uniform()))
        features = tuple(pool[point] for point in triple)
        drafts.append(Draft("plain", stream.choice(brands), features, options, fixed, (price,), pool[lead]))
    # So that no title has more than three that look as good, each of the three groups gets its own kind of decoy.
    crowd, *pairs = sorted(_groups(leads), key=len, reverse=True)
    stream.shuffle(pairs)
    mistaken, outdone, admired = stream.sample(crowd, 3)
    rivalled, missed = (stream.choice(pair) for pair in pairs)
    spare = [department.features[phrase] for phrase in phrases[7:]]
    drafts.append(_other(stream, kind, drafts[rivalled], stream.choice(brands), usual))
    drafts.append(_costly(stream, drafts[outdone], stream.choice(brands)))
    drafts.append(_lacking(stream, drafts[missed], drafts[missed].lead, spare, stream.choice(brands), usual))
    drafts.append(_lacking(stream, drafts[mistaken], None, spare, stream.choice(brands), usual))
    drafts.append(_accessory(stream, drafts[admired], stream.choice(brands), usual))
    for draft in drafts[:-1]:
        _place(stream, draft)
        _mislead(stream, draft, pool)
    return drafts


def _vary(stream: Stream, choices: Choices) -> Choices:
    """Return options of which some lack one of their values."""
    varied = {}
    for name, values in choices.options.items():
        lost = stream.choice(values) if len(values) > 2 and stream.below(2) else ""
        varied[name] = tuple(value for value in values if value != lost)
    return Choices(varied, choices.fixed)


def _draw_options(stream: Stream, options: tuple[Option, ...]) -> Choices:
    """Draw which options a product has, and their values in the order of the table; an option may be fixed."""
    drawn: dict[str, tuple[str, ...]] = {}
    fixed = ""
    for option in options:
        chance = stream.below(10)
        if chance < 8:
            drawn[option.name] = _draw_values(stream, option, 2 + stream.below(3))
        elif not option.distinct:
            fixed = stream.choice(option.values)
    return Choices(drawn, fixed)


def _draw_values(stream: Stream, option: Option, count: int) -> tuple[str, ...]:
    count = min(count, len(option.values))
    if not option.distinct:  # sizes and packs: a run of them
        start = stream.below(len(option.values) - count + 1)
        return option.values[start : start + count]
    return tuple(option.values[place] for place in sorted(stream.sample(range(len(option.values)), count)))


def _other(stream: Stream, kind: Kind, rival: Draft, brand: str, usual: float) -> Draft:
    """Return a product with the features of `rival` and other values of an option, of which both then have half."""
    option = stream.choice([option for option in kind.options if option.distinct])
    values = list(option.values)
    stream.shuffle(values)
    half = len(values) // 2
    mine, yours = values[: min(half, 2 + stream.below(3))], values[half : half + min(half, 2 + stream.below(3))]
    rival.options = _with_option(kind, rival.options, option, yours)
    rival.needed = option.name
    price = _price(stream, usual * (0.7 + 0.3 * stream.uniform()))
    return replace(
        rival,
        part="other",
        brand=brand,
        options=_with_option(kind, rival.options, option, mine),
        prices=(price,),
        titled=[],
        listed=[],
        told=[],
    )


def _with_option(
    kind: Kind, options: dict[str, tuple[str, ...]], option: Option, values: list[str]
) -> dict[str, tuple[str, ...]]:
    """Return options with `values` for one of them; names and values are in the order of the table."""
    drawn = {**options, option.name: tuple(value for value in option.values if value in values)}
    return {each.name: drawn[each.name] for each in kind.options if each.name in drawn}


def _costly(stream: Stream, rival: Draft, brand: str) -> Draft:
    """Return a product that has all that `rival` has, and costs more than a goal for `rival` can allow."""
    price = rival.prices[0]
    low = price // 10 * 10 + BOUND_STEPS + 1 + (10 + price / 2) * stream.uniform()
    prices = [_price(stream, low)]
    if stream.below(2):
        prices.append(_price(stream, low * (1.2 + stream.uniform())))
    return replace(rival, part="costly", brand=brand, prices=tuple(prices), needed="", titled=[], listed=[], told=[])


def _lacking(
    stream: Stream, rival: Draft, lead: Feature | None, spare: list[Feature], brand: str, usual: float
) -> Draft:
    """Return a product with at most `lead` of the features of `rival`, and with others that nobody else here has."""
    features = ([lead] if lead else []) + spare[:2]
    lacks = [feature for feature in rival.features if feature is not lead and " " in feature.phrase]
    price = _price(stream, usual * (0.8 + 0.4 * stream.uniform()))
    return replace(
        rival,
        part="lacking",
        brand=brand,
        features=tuple(features),
        prices=(price,),
        lead=features[0] if features else None,
        needed="",
        titled=[],
        listed=[],
        told=[],
        lacks=lacks,
    )


def _accessory(stream: Stream, admired: Draft, brand: str, usual: float) -> Draft:
    """Return a thing for the thing; its title says what `admired` is, with hyphens but for one of the features."""
    low = max(4.0, usual * (0.2 + 0.3 * stream.uniform()))
    prices = [_price(stream, low)]
    if stream.below(2):
        prices.append(_price(stream, low * (1.3 + stream.uniform())))
    others = [feature for feature in admired.features if feature is not admired.lead and " " in feature.phrase]
    titled = [admired.lead] if admired.lead else []
    titled += [feature._replace(phrase=hyphenated(feature.phrase)) for feature in others]
    return Draft("accessory", brand, (), {}, "", tuple(prices), titled=titled)


def _price(stream: Stream, about: float) -> float:
    """Return a price near `about` with the cents of a shop, never below it by more than a dollar."""
    return int(about) + stream.choice((0.99, 0.99, 0.99, 0.95, 0.49, 0.89, 0.0))


def _leads(stream: Stream) -> list[int]:
    """Return which feature the title of each plain product names, as the place of the feature among the seven.

    Three titles name one feature, two another one, and two a third: who goes by titles has two or three to choose from.
    """
    first, second = stream.sample(range(7), 2)
    rest = [set(triple) for triple in PLANE if first not in triple and second not in triple]
    third = set.intersection(*rest).pop()
    return [next(point for point in (first, second, third) if point in triple) for triple in PLANE]


def _groups(leads: list[int]) -> list[list[int]]:
    """Return the plain products by the feature that their titles name."""
    return [[place for place, lead in enumerate(leads) if lead == point] for point in dict.fromkeys(leads)]


def _place(stream: Stream, draft: Draft) -> None:
    """Decide where each feature is stated: mostly one in the title; the others in a bullet or in the description."""
    features = list(draft.features)
    stream.shuffle(features)
    chance = stream.below(40)
    if draft.lead and chance > 0:
        draft.titled = [draft.lead]
    if chance > 35:
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


def _mislead(stream: Stream, draft: Draft, pool: list[Feature]) -> None:
    """Give some titles a phrase that looks like a feature that the product lacks."""
    tempting = [feature.near for feature in pool if feature.near and feature not in draft.features]
    if tempting and len(draft.titled) < 2 and stream.below(2) == 0:
        draft.near = stream.choice(tempting)
