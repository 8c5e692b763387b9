"""The facts that entities have: who founded a firm, where a work was shown, when somebody was born.

In the wordings, `{x}` is an entity, by its name or by a description, and `{v}` the value of the fact. Words between
asterisks are those that a warning repeats: see `marked`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentgym_flow.envs.content import read_content


class FactRelation(NamedTuple):
    """A fact that entities of one kind have.

    Attributes:
        name: unique.
        subject: the kind of entity that has it.
        value: the kind of its value: a kind of entity, or `year`, `number`, `goods`, `river`, `region`.
        what: the fact in two or three words.
        find: completes "Find ...".
        questions: complete questions.
        descriptions: descriptions of the value by its relation to the entity; only if the value is an entity.
        statements: sentences for accounts, without the full stop; they begin with `{x}` or in lower case.
    """

    name: str
    subject: str
    value: str
    what: str
    find: str
    questions: tuple[str, ...]
    descriptions: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()


RELATIONS: dict[str, FactRelation] = {
    relation.name: relation
    for relation in read_content("agentgym_flow.envs.canvas.tasks.facts", "relations.json", tuple[FactRelation, ...])
}

_MARK = re.compile(r"\*([^*]*)\*")


def marked(template: str) -> tuple[str, tuple[str, ...]]:
    """Return a wording without its asterisks, and the words between them in lower case."""
    return template.replace("*", ""), tuple(word.lower() for word in _MARK.findall(template))


def of_kind(kind: str) -> tuple[FactRelation, ...]:
    """Return the facts that entities of a kind have."""
    return _OF_KIND[kind]


_OF_KIND = {
    kind: tuple(relation for relation in RELATIONS.values() if relation.subject == kind)
    for kind in ("firm", "person", "work", "town")
}
