"""Product drafts, before they are put into words, and their families."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentgym_flow.envs.webshop.generator.kinds import Department, Feature, Number, ProductKind

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
