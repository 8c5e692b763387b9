"""What can be told and asked of a thing: who founded it, where it stands, when it came to be.

In the wordings, `{x}` is a thing, by its name or by a description, and `{v}` what is told of it. Words between
asterisks are those that a warning would repeat: see `marked`.
"""

from __future__ import annotations

import re
from typing import NamedTuple


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
    for relation in (
        FactRelation(
            "founder",
            "firm",
            "person",
            "the founder",
            "who founded {x}",
            ("Who *founded* {x}?", "Who was the *founder* of {x}?", "By whom was {x} *set up*?"),
            ("the *founder* of {x}", "the person who *founded* {x}", "the one who *set up* {x}"),
            (
                "{x} was founded by {v}",
                "it was {v} who set up {x}",
                "{x} owes its beginnings to {v}",
                "{v} opened {x}",
                "the founder of {x} is named as {v}",
            ),
        ),
        FactRelation(
            "seat",
            "firm",
            "town",
            "the seat of the firm",
            "where {x} has its seat",
            ("In which town does {x} have its *seat*?", "Which town is the *home* of {x}?", "Where is {x} *based*?"),
            ("the town where {x} has its *seat*", "the *home* town of {x}", "the town in which {x} is *based*"),
            (
                "{x} has its seat in {v}",
                "the gates of {x} stand in {v}",
                "{v} is the home of {x}",
                "whoever wants to visit {x} must go to {v}",
                "{x} pays its taxes in {v}",
            ),
        ),
        FactRelation(
            "opened",
            "firm",
            "year",
            "the year of its founding",
            "when {x} was founded",
            ("In which year was {x} *founded*?", "When did {x} *begin*?", "In what year was {x} *set up*?"),
            (),
            (
                "{x} was founded in {v}",
                "the first day of work at {x} fell in {v}",
                "{x} has been there since {v}",
                "{x} opened its gates in {v}",
                "{v} brought the founding of {x}",
            ),
        ),
        FactRelation(
            "goods",
            "firm",
            "goods",
            "the goods",
            "what {x} makes",
            ("What does {x} *make*?", "Which goods *come* from {x}?", "For the *making* of what is {x} known?"),
        ),
        FactRelation(
            "staff",
            "firm",
            "number",
            "the number of its workers",
            "how many people work at {x}",
            ("How many people *work* at {x}?", "What is the number of *workers* of {x}?"),
        ),
        FactRelation(
            "birthplace",
            "person",
            "town",
            "the birthplace",
            "where {x} was born",
            ("In which town was {x} *born*?", "What is the *birthplace* of {x}?", "{x} *came from* which town?"),
            ("the town where {x} was *born*", "the *birthplace* of {x}", "the town that {x} *came from*"),
            (
                "{x} was born in {v}",
                "{v} is the birthplace of {x}",
                "{x} came into the world in {v}",
                "the cradle of {x} stood in {v}",
                "{x} was a child of {v}",
            ),
        ),
        FactRelation(
            "born",
            "person",
            "year",
            "the year of birth",
            "when {x} was born",
            ("In which year was {x} *born*?", "When was {x} *born*?", "What is the year of *birth* of {x}?"),
            (),
            (
                "{x} was born in {v}",
                "{v} brought the birth of {x}",
                "{x} came into the world in {v}",
                "the life of {x} began in {v}",
                "{x} was baptised in {v}",
            ),
        ),
        FactRelation(
            "master",
            "person",
            "person",
            "the teacher",
            "from whom {x} learned the trade",
            (
                "From whom did {x} *learn* the trade?",
                "Who was the *master* of {x}?",
                "By whom was {x} *taught* the trade?",
            ),
        ),
        FactRelation(
            "maker",
            "work",
            "person",
            "the maker of the work",
            "who made {x}",
            ("Who *created* {x}?", "Whose *work* is {x}?", "Who is the *maker* of {x}?"),
            ("the person who *created* {x}", "the *maker* of {x}", "the *creator* of {x}"),
            (
                "{x} is by {v}",
                "it was {v} who created {x}",
                "{x} came from the hand of {v}",
                "the first page of {x} bears the name of {v}",
                "{v} spent two winters on {x}",
            ),
        ),
        FactRelation(
            "shown",
            "work",
            "year",
            "the year in which it was first shown",
            "when {x} was first shown",
            (
                "In which year was {x} first *shown*?",
                "When did people first *see* {x}?",
                "What was the year in which {x} was first *presented*?",
            ),
            (),
            (
                "{x} was first shown in {v}",
                "people first saw {x} in {v}",
                "the first evening of {x} was in {v}",
                "{v} brought {x} before its first audience",
                "nobody saw {x} before {v}, but many did then",
            ),
        ),
        FactRelation(
            "place",
            "work",
            "town",
            "the town where it was first shown",
            "where {x} was first shown",
            (
                "In which town was {x} first *shown*?",
                "Where did people first *see* {x}?",
                "Which town was the first to *present* {x}?",
            ),
            (
                "the town where {x} was first *shown*",
                "the town that first *presented* {x}",
                "the town in which people first *saw* {x}",
            ),
            (
                "{x} was first shown in {v}",
                "people first saw {x} in {v}",
                "the first evening of {x} was in {v}",
                "{v} was the first town to see {x}",
                "{x} had its first night in {v}",
            ),
        ),
        FactRelation(
            "river",
            "town",
            "river",
            "the river",
            "on which river {x} lies",
            ("Which *river* flows past {x}?", "On which *river* does {x} lie?", "By which *river* was {x} built?"),
        ),
        FactRelation(
            "region",
            "town",
            "region",
            "the region",
            "to which region {x} belongs",
            (
                "To which *region* does {x} belong?",
                "In which *region* does {x} lie?",
                "What is the name of the *region* around {x}?",
            ),
        ),
        FactRelation(
            "charter",
            "town",
            "year",
            "the year of its charter",
            "when {x} got its charter",
            (
                "In which year did {x} get its *charter*?",
                "When was {x} given its *charter*?",
                "Since which year has {x} had a *charter*?",
            ),
        ),
    )
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
