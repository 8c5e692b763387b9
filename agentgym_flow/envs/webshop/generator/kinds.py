"""What the tables of the generated shop are made of: departments, the kinds of things they sell, features, options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Role = Literal["is", "has", "for"]
"""How a phrase joins the thing: it is `machine washable`, it has `deep pockets`, it is for `sensitive skin`."""

Number = Literal["one", "many", "some"]
"""How a thing is counted: one lamp, many shorts (a pair, or several), some coffee."""


class Feature(NamedTuple):
    """What a product may have, and what a goal asks for.

    Attributes:
        phrase: in lower case, as the attribute list, the pages and the instructions say it.
        role: how it joins the thing.
        reason: what a bullet says after it.
        near: a phrase that looks like it and is something else; the title of a product without the feature may have it.
    """

    phrase: str
    role: Role
    reason: str
    near: str = ""


class Option(NamedTuple):
    """What a buyer chooses.

    Attributes:
        name: such as `color`.
        values: in lower case, in the order of the page.
        said: how a person asks for a value, with `{}` for it.
        distinct: no value passes for another one when a purchase is scored, so that two products may differ in
            nothing else. Sizes and packs are not: `12 ounce` passes for `16 ounce`.
    """

    name: str
    values: tuple[str, ...]
    said: tuple[str, ...]
    distinct: bool


class ProductKind(NamedTuple):
    """A kind of thing. Each pair of a name and a line may become a family of products that look alike.

    Attributes:
        query: what a buyer would type to find the kind; the type of all its products.
        path: its place under the department, parts separated by ` > `.
        number: how the thing is counted.
        names: what it is called.
        lines: materials or designs; one stands before the name.
        features: phrases of the department that fit the kind, at least seven.
        options: what can be chosen, at most three.
        price: the usual range in dollars.
        details: pieces of titles that no goal asks for.
        notes: bullets that no goal asks for.
        accessory: what is sold for the thing, up to the name of the thing: `carrying case for`.
    """

    query: str
    path: str
    number: Number
    names: tuple[str, ...]
    lines: tuple[str, ...]
    features: tuple[str, ...]
    options: tuple[Option, ...]
    price: tuple[float, float]
    details: tuple[str, ...]
    notes: tuple[str, ...]
    accessory: str


class Department(NamedTuple):
    """A part of the shop.

    Attributes:
        category: the coarse category of its products.
        path: the first part of their paths.
        brands: invented names.
        features: phrase -> feature.
        notes: bullets for any of its products.
        costly: pieces of titles of what costs far more than its like.
        kinds: what it sells.
    """

    category: str
    path: str
    brands: tuple[str, ...]
    features: Mapping[str, Feature]
    notes: tuple[str, ...]
    costly: tuple[str, ...]
    kinds: tuple[ProductKind, ...]


def features(
    *, being: Mapping[str, str], having: Mapping[str, str], purpose: Mapping[str, str], near: Mapping[str, str]
) -> dict[str, Feature]:
    """Return phrase -> feature from one table for each role (phrase -> reason) and one of near misses."""
    tables: tuple[tuple[Role, Mapping[str, str]], ...] = (("is", being), ("has", having), ("for", purpose))
    return {
        phrase: Feature(phrase, role, reason, near.get(phrase, ""))
        for role, table in tables
        for phrase, reason in table.items()
    }


def words(text: str) -> tuple[str, ...]:
    """Return the entries of a list that is written as `one|two|three`."""
    return tuple(text.split("|"))
