"""The relations between entities, and several ways to state each of them and to ask for it."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.envs.content import read_content


class EntityRelation(NamedTuple):
    """One relation of a kind of entity.

    Attributes:
        kind: the kind of entity that has the relation.
        fact: the name of the fact.
        answer: the kind of the values: a kind of entity, `year`, `date`, `word`, or a unit.
        says: statements, with `{x}` for the entity and `{y}` for the value.
        nouns: phrases for the value, each ending with `{x}`; empty if no question continues from the value.
        asks: questions for the value.
        compared: questions that compare the values of `{a}` and `{b}`: which value comes first or is less, and whether
            the value of a is less than that of b. For values that are entities, only whether they are the same. May be
            empty.
    """

    kind: str
    fact: str
    answer: str
    says: tuple[str, ...]
    nouns: tuple[str, ...]
    asks: tuple[str, ...]
    compared: tuple[str, ...] = ()


WORK_KINDS = ("novel", "film", "album", "opera", "painting")

ALL = tuple(
    relation
    for file in ("places.json", "institutions.json", "people.json", "works.json")
    for relation in read_content(__name__, file, tuple[EntityRelation, ...])
)
"""Every relation. The order is part of the content, because random draws depend on it."""

OF_KIND = {kind: {one.fact: one for one in ALL if one.kind == kind} for kind in dict.fromkeys(one.kind for one in ALL)}
"""Kind of entity -> name of fact -> relation, in a fixed order."""
