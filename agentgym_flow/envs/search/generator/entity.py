"""Entities of the generated world and the values of their facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from agentgym_flow.envs.search.months import MONTHS

THE = frozenset({"river", "award", "museum", "ship", "event"})
"""The kinds whose names follow the article `the`."""


class Date(NamedTuple):
    """A day. Dates sort chronologically."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        return f"{self.day} {MONTHS[self.month - 1]} {self.year}"

    @property
    def other(self) -> str:
        """The date in American order, month first."""
        return f"{MONTHS[self.month - 1]} {self.day}, {self.year}"


@dataclass(slots=True, eq=False)
class Entity:
    """One entity of the world and its facts.

    Attributes:
        kind: determines the relations: `city`, `person`, `novel`, ...
        noun: the common noun in texts: the profession of a person, the industry of a company.
        name: may be shared with other entities.
        realm: the split whose questions use the entity.
        title: the unique title of its article.
        mention: the unique name that other texts use.
        aliases: other names, given in its article.
        facts: relation -> value.
        she: whether a person's pronoun is `she`.
        born: the first year in which a person or thing can take part in anything.
        ended: the last such year.
        number: the number of its article in the corpus.
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
        """Return a year or an amount. Raises `TypeError` if the fact is not an integer."""
        value = self.facts[fact]
        if not isinstance(value, int):
            raise TypeError(f"{fact} of {self} is not an integer")
        return value

    def __repr__(self) -> str:
        return f"<{self.title or self.name}, {self.noun}>"


Value: TypeAlias = "Entity | Date | int | str"
"""The value of a fact: another entity, a day, a year or an amount, or a word."""
