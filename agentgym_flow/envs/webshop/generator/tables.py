"""The tables of the generated shop (departments, kinds of products, features, options), and drafts of its products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentgym_flow._util.values import Content, read_content

Role = Literal["is", "has", "for"]
"""How a feature relates to a product: it is `machine washable`, has `deep pockets`, or is for `sensitive skin`."""

Number = Literal["one", "many", "some"]
"""The grammatical number: one lamp, many shorts, some coffee."""


class Feature(Content, frozen=True):
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


class Option(Content, frozen=True):
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


class ProductKind(Content, frozen=True):
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

    @property
    def accessory_name(self) -> str:
        """The name of the accessory: `carrying case`."""
        return self.accessory.removesuffix(" for")


class Department(Content, frozen=True):
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


_NAMES = "beauty electronics fashion furniture grocery kitchen office pets sports tools toys"

DEPARTMENTS: tuple[Department, ...] = tuple(
    read_content(__package__, f"departments/{name}.json", Department) for name in _NAMES.split()
)
"""All departments. The order is part of the content, because it determines that of products and goals."""


Part = Literal["plain", "other", "costly", "lacking", "accessory"]


class Family(NamedTuple):
    """The common properties of the products in a family."""

    department: Department
    kind: ProductKind
    name: str
    line: str

    @property
    def thing(self) -> str:
        """The line and the name, such as `cotton blend biker shorts`."""
        return f"{self.line} {self.name}"

    @property
    def number(self) -> Number:
        """The grammatical number of the name; a mass kind can have plural names (`cocoa wafers`)."""
        return "many" if self.kind.number == "some" and self.name.endswith("s") else self.kind.number


@dataclass(slots=True)
class ProductDraft:
    """A product before it is put into words.

    Attributes:
        part: its role in the family.
        brand: the brand.
        features: the features.
        options: name -> values that the buyer can choose.
        fixed: the value of a fixed option, for the title; may be empty.
        prices: one price, or the two ends of a range.
        lead: the feature in its title, which the titles of one or two other plain products share.
        quiet: its features that are not the lead of other titles, and its own lead. Goals for these have few candidates
            by title.
        needed: the option that distinguishes it from another product; may be empty.
        titled: the features in the title.
        first: the feature in the first bullet, which is indexed; None if that bullet is a note.
        listed: the features in the other bullets.
        told: the features in the description.
        lacks: the features that the first bullet denies.
        near: a phrase in the title that resembles a feature that the product lacks; may be empty.
    """

    part: Part
    brand: str
    features: tuple[Feature, ...]
    options: dict[str, tuple[str, ...]]
    fixed: str
    prices: tuple[float, ...]
    lead: Feature | None = None
    quiet: tuple[Feature, ...] = ()
    needed: str = ""
    titled: list[Feature] = field(default_factory=list)
    first: Feature | None = None
    listed: list[Feature] = field(default_factory=list)
    told: list[Feature] = field(default_factory=list)
    lacks: list[Feature] = field(default_factory=list)
    near: str = ""
