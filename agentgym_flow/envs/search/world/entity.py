"""What the world is made of: entities and the values of their facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from agentgym_flow.envs.search.months import MONTHS

THE = frozenset({"river", "award", "museum", "ship", "event"})
"""The kinds whose names have an article before them."""


class Date(NamedTuple):
    """A day; the order of dates is that of time."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        return f"{self.day} {MONTHS[self.month - 1]} {self.year}"

    @property
    def other(self) -> str:
        """The date with the month first."""
        return f"{MONTHS[self.month - 1]} {self.day}, {self.year}"


@dataclass(slots=True, eq=False)
class Entity:
    """One thing of the world, and all that is true of it.

    Attributes:
        kind: which relations it has: `city`, `person`, `novel`, ...
        noun: what a text calls it: for a person the profession, for a company what it does.
        name: what it is called; another entity may have the same.
        realm: the split of all questions that lead through it.
        title: of its article; no other has it.
        mention: what other texts call it; no other is called so.
        aliases: other names, which its article gives.
        facts: relation -> value.
        she: what pronoun a person has.
        born: first year in which a person, or a thing, can be part of anything.
        ended: last such year.
        number: of its article in the corpus.
    """

    kind: str
    noun: str
    name: str
    realm: str
    title: str = ""
    mention: str = ""
    aliases: tuple[str, ...] = ()
    facts: dict[str, Value] = field(default_factory=dict)
    she: bool = False
    born: int = 0
    ended: int = 2015
    number: int = -1

    def whole(self, fact: str) -> int:
        """Return a year or an amount. Raises `TypeError` when the fact is something else."""
        value = self.facts[fact]
        if not isinstance(value, int):
            raise TypeError(f"{fact} of {self} is no whole number")
        return value

    def __repr__(self) -> str:
        return f"<{self.title or self.name}, {self.noun}>"


Value: TypeAlias = "Entity | Date | int | str"
"""The value of a fact: another entity, a day, a year or an amount, or a word."""
