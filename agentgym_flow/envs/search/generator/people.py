"""People: their lifetimes, birthplaces and relationships."""

from __future__ import annotations

from functools import partial

from agentgym_flow.envs.search.generator.draft import RealmDraft
from agentgym_flow.envs.search.generator.entity import Date, Entity

PROFESSIONS = {
    "patron": (2, 1540, 1680),
    "novelist": (6, 1740, 1950),
    "composer": (4, 1740, 1920),
    "painter": (4, 1740, 1940),
    "film director": (4, 1880, 1955),
    "singer": (3, 1915, 1960),
    "industrialist": (3, 1730, 1900),
    "architect": (2, 1740, 1940),
    "explorer": (2, 1740, 1920),
    "mariner": (2, 1760, 1930),
    "politician": (2, 1740, 1940),
}
"""Profession -> number per country, and the first and last year of birth."""


def draw_people(draft: RealmDraft, countries: int) -> None:
    """Add the people of all countries."""
    surnames = [draft.names.word("surname", 2) for _ in range(countries * 16)]
    given = [draft.names.word("given", 2) for _ in range(60 + countries * 4)]
    used: set[str] = set()
    for profession, (number, first, last) in PROFESSIONS.items():
        those = draft.people.setdefault(profession, [])
        for _ in range(number * countries):
            name = _name(draft, given, surnames, used, those)
            person = draft.add("person", profession, name, aliases=_aliases(draft, name, given))
            person.she = draft.below(2) == 0
            person.born = first + draft.below(last - first)
            born = Date(person.born, 1 + draft.below(12), 1 + draft.below(28))
            end = person.born + 50 + draft.below(42)
            person.facts |= {"born": born, "birthplace": draft.choice(draft.of("city"))}
            if end <= person.ended:
                person.ended = end
                person.facts["died"] = end
            those.append(person)


def _name(draft: RealmDraft, given: list[str], surnames: list[str], used: set[str], those: list[Entity]) -> str:
    """Return a full name for another person in `those`; sometimes the name of an earlier person, or a similar one."""
    earlier = draft.of("person")
    turn = draft.below(24) if len(earlier) > 20 else 23
    if turn < 2:
        other = draft.choice(earlier[-60:]).name
        if turn == 0:
            first, surname = other.split(" ")
            return f"{first} {draft.names.near(surname)}"
        if all(one.name != other for one in those):
            return other
    for _ in range(200):
        name = f"{draft.choice(given)} {draft.choice(surnames)}"
        if name not in used:
            used.add(name)
            return name
    raise RuntimeError("no free full name was found; there are more people than names")


def _aliases(draft: RealmDraft, name: str, given: list[str]) -> tuple[str, ...]:
    """Return other names of a person: a full name with a middle name, or a pen name."""
    turn = draft.below(5)
    first, surname = name.split(" ")
    if turn < 2:
        return (f"{first} {draft.choice(given)} {surname}",)
    return (draft.names.word("surname", 3),) if turn == 2 else ()


def join_people(draft: RealmDraft) -> None:
    """Add the facts that relate people to universities, teachers, awards and spouses."""
    people = draft.of("person")
    universities, awards = draft.of("university"), draft.of("award")
    for profession, those in draft.people.items():
        for person in those:
            if profession != "patron":
                person.facts["university"] = draft.choice(universities)
            teacher = draft.pick(those, partial(_may_teach, person))
            if teacher:
                person.facts["teacher"] = teacher
            award = draft.pick(awards, partial(_may_receive, person))
            if award and draft.below(2) == 0:
                person.facts["award"] = award
    couples = sorted(people, key=lambda one: (one.born, one.name, one.noun))
    for one, other in zip(couples[::2], couples[1::2], strict=False):
        if one.she != other.she and other.born - one.born < 12 and one.name != other.name:
            one.facts["spouse"], other.facts["spouse"] = other, one


def _may_teach(person: Entity, teacher: Entity) -> bool:
    return 14 < person.born - teacher.born < 45


def _may_receive(person: Entity, award: Entity) -> bool:
    return award.born <= person.ended - 5 and award.facts["namesake"] is not person
