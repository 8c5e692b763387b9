"""The types of the tables of the generated shop: departments, kinds of products, features and options."""

from __future__ import annotations

from typing import Literal, NamedTuple

Role = Literal["is", "has", "for"]
"""How a feature relates to a product: it is `machine washable`, has `deep pockets`, or is for `sensitive skin`."""

Number = Literal["one", "many", "some"]
"""The grammatical number: one lamp, many shorts, some coffee."""


class Feature(NamedTuple):
    """A feature of a product, which a goal can require as an attribute.

    Attributes:
        phrase: the phrase in lower case, as in the attribute list, pages and instructions.
        role: how it relates to the product.
        reason: the explanation in a bullet.
        near: a similar phrase with another meaning, for titles of products without the feature.
    """

    phrase: str
    role: Role
    reason: str
    near: str = ""


_SAID = {
    "color": ("in {}", "in the color {}", "in {} color"),
    "flavor": ("in the {} flavor", "with {} flavor"),
    "scent": ("with {} scent", "in the {} scent"),
    "style": ("in the {} {name}", "in {} {name}"),
    "size": ("in {name} {}", "in the {} {name}"),
    "pack": ("in a {}", "as a {}"),
}
"""Form of an option -> phrases to ask for a value."""


class Option(NamedTuple):
    """An option of a product.

    Attributes:
        form: determines the phrases to ask for a value.
        name: such as `color`.
        values: in lower case, in page order.
    """

    form: Literal["color", "flavor", "scent", "style", "size", "pack"]
    name: str
    values: tuple[str, ...]

    @property
    def said(self) -> tuple[str, ...]:
        """Phrases to ask for a value, with `{}` for the value."""
        return tuple(phrase.replace("{name}", self.name) for phrase in _SAID[self.form])

    @property
    def distinct(self) -> bool:
        """Whether the score distinguishes all values, so that two products may differ in this option only.

        It does not distinguish sizes and packs: `12 ounce` matches `16 ounce`.
        """
        return self.form not in ("size", "pack")


class ProductKind(NamedTuple):
    """A kind of product. Pairs of a name and a line become families of similar products.

    Attributes:
        query: a typical query for the kind, which is the `query` of all its products.
        path: the category path below the department, separated by ` > `.
        number: the grammatical number.
        names: names of the kind.
        lines: materials or designs, placed before the name.
        features: phrases of the department's features that fit the kind, at least seven.
        options: at most three options.
        price: the typical range in dollars.
        details: parts of titles that no goal requires.
        notes: bullets that no goal requires.
        accessory: an accessory, up to the name of the product: `carrying case for`.
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
    """A department of the shop.

    Attributes:
        category: the coarse category of its products.
        path: the first part of their category paths.
        brands: invented brands.
        feature_list: the features of its products.
        notes: bullets for any of its products.
        costly: parts of the titles of expensive products.
        kinds: its kinds of products.
    """

    category: str
    path: str
    brands: tuple[str, ...]
    feature_list: tuple[Feature, ...]
    notes: tuple[str, ...]
    costly: tuple[str, ...]
    kinds: tuple[ProductKind, ...]

    @property
    def features(self) -> dict[str, Feature]:
        """Phrase -> feature."""
        return {feature.phrase: feature for feature in self.feature_list}
