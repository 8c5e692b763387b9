"""A product before it is put into words, and the family that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentgym_flow.envs.webshop.generator.kinds import Department, Feature, Number, ProductKind

Part = Literal["plain", "other", "costly", "lacking", "accessory"]


class Family(NamedTuple):
    """What the products of a family have in common."""

    department: Department
    kind: ProductKind
    name: str
    line: str

    @property
    def thing(self) -> str:
        """The line and the name: `cotton blend biker shorts`."""
        return f"{self.line} {self.name}"

    @property
    def number(self) -> Number:
        """How its things are counted: of what there is some, a name may still be of many (`cocoa wafers`)."""
        return "many" if self.kind.number == "some" and self.name.endswith("s") else self.kind.number


@dataclass(slots=True)
class ProductDraft:
    """A product before it is put into words.

    Attributes:
        part: its part in the family.
        brand: who sells it.
        features: what it has.
        options: name -> values, as far as the buyer chooses.
        fixed: the value of an option that the buyer does not choose, for the title; or nothing.
        prices: one, or the two ends of a range.
        lead: the feature that its title names, as do the titles of two or three others.
        quiet: its features that lead no other titles; a goal for mostly these leaves few titles to choose from.
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
    quiet: tuple[Feature, ...] = ()
    needed: str = ""
    titled: list[Feature] = field(default_factory=list)
    first: Feature | None = None
    listed: list[Feature] = field(default_factory=list)
    told: list[Feature] = field(default_factory=list)
    lacks: list[Feature] = field(default_factory=list)
    near: str = ""
