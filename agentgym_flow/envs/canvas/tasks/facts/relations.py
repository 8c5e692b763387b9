"""What can be told and asked of a thing: who founded it, where it stands, when it came to be.

In the wordings, `{x}` is a thing, by its name or by a description, and `{v}` what is told of it. Words between
asterisks are those that a warning would repeat: see `marked`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentgym_flow.envs.content import read_content


class FactRelation(NamedTuple):
    """A fact that a thing can have.

    Attributes:
        name: unique.
        subject: the kind of thing that has it.
        value: the kind of its value: a kind of thing, or `year`, `number`, `goods`, `river`, `region`.
        what: the fact, in two or three words.
        find: completes "Find ...".
        questions: whole questions.
        descriptions: of the value, by its relation to the thing; only where the value is a thing.
        statements: sentences without the full stop, for those who retell it; they begin with `{x}` or a small letter.
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
    """Return a wording without its asterisks, and the words that stood between them, in lower case."""
    return template.replace("*", ""), tuple(word.lower() for word in _MARK.findall(template))


def of_kind(kind: str) -> tuple[FactRelation, ...]:
    """Return the facts that a kind of thing can have."""
    return _OF_KIND[kind]


_OF_KIND = {
    kind: tuple(relation for relation in RELATIONS.values() if relation.subject == kind)
    for kind in ("firm", "person", "work", "town")
}
