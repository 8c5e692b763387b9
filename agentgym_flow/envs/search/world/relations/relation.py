"""A relation, with the ways to state it and to ask for it."""

from __future__ import annotations

from typing import NamedTuple


class EntityRelation(NamedTuple):
    """One relation of a kind of entity.

    Attributes:
        kind: of the entities that have it.
        fact: the name of the fact.
        answer: the kind of its values: that of an entity, `year`, `date`, `word`, or a unit.
        says: statements, with `{x}` for who has it and `{y}` for the value.
        nouns: phrases for the value, each with `{x}` at its end; none where no question goes on from it.
        asks: questions for the value.
        compared: the questions that compare two values, with `{a}` and `{b}`: which comes first or is less, and whether
            that of a is less than that of b; for values that are entities only whether they are the same. May be empty.
    """

    kind: str
    fact: str
    answer: str
    says: tuple[str, ...]
    nouns: tuple[str, ...]
    asks: tuple[str, ...]
    compared: tuple[str, ...] = ()


def relation(kind: str, fact: str, answer: str, says: str, nouns: str, asks: str, compared: str = "") -> EntityRelation:
    """Return a relation; the ways to say each of its texts are parted by `|`."""
    parts = (tuple(filter(None, text.split("|"))) for text in (says, nouns, asks, compared))
    return EntityRelation(kind, fact, answer, *parts)
