"""Reads questions of the generated world by their words alone: all values, of the whole world, that one may mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agentgym_flow.envs.search.generator import SearchWorld
from agentgym_flow.envs.search.generator.entities import ALL, OF_KIND, Entity, EntityRelation, Value

LEADS = ("Think of ", "This is about ", "Consider ")


class Reader:
    """Knows every name of every entity, and tries every wording of every relation."""

    def __init__(self, world: SearchWorld) -> None:
        self.named: dict[str, set[Entity]] = defaultdict(set)
        for entities in world.entities.values():
            for entity in entities:
                kind = f"the {entity.noun} "
                names = {entity.name, *entity.aliases}
                for name in names | {f'"{name}"' for name in names}:
                    self.named[name].add(entity)
                    self.named[f"the {name}"].add(entity)
                    self.named[kind + name].add(entity)
                self.named[entity.mention].add(entity)

    def things(self, phrase: str) -> set[Entity]:
        """Return every entity that a phrase may mean."""
        found = set(self.named.get(phrase, ()))
        for relation in ALL:
            for noun in relation.nouns:
                for inner in inside(noun, phrase):
                    found |= {value for value in self.values(relation, inner) if isinstance(value, Entity)}
        return found

    def values(self, relation: EntityRelation, phrase: str) -> list[Value]:
        """Return the values of a relation for every entity that a phrase may mean."""
        found = [one for one in self.things(phrase) if one.kind == relation.kind and relation.fact in one.facts]
        return [one.facts[relation.fact] for one in found]

    def read(self, question: str) -> list[tuple[EntityRelation, Value]]:
        """Return what a question may ask for, with every value."""
        for lead in LEADS:
            if question.startswith(lead):
                phrase, _, question = question.removeprefix(lead).rpartition(". ")
                starts = self.things(phrase)
                kinds = {one.kind for one in starts}
                asked = [one for kind in kinds for one in OF_KIND[kind].values()]
                return [
                    (one, start.facts[one.fact])
                    for one in asked
                    for start in starts
                    if one.kind == start.kind and one.fact in start.facts
                    if any(ask.format(x=f"this {one.kind}") == question for ask in one.asks)
                ]
        return [
            (relation, value)
            for relation in ALL
            for ask in relation.asks
            for inner in inside(ask, question)
            for value in self.values(relation, inner)
        ]

    def compared(self, question: str, form: int) -> list[tuple[EntityRelation, Entity, Entity]]:
        """Return the relations and the two entities that a question may compare, in all ways to read it."""
        found = []
        for relation in ALL:
            if not relation.compared or (form == 0 and len(relation.compared) == 1):
                continue
            for first, second in both(relation.compared[form], question):
                ones, others = (
                    [one for one in self.things(phrase) if one.kind == relation.kind] for phrase in (first, second)
                )
                found += [(relation, one, other) for one in ones for other in others]
        return found


def inside(template: str, text: str) -> Iterator[str]:
    """Yield what stands for `{x}`, if the text fits."""
    before, after = template.split("{x}")
    if text[:1].lower() == before[:1].lower() and text[1 : len(before)] == before[1:] and text.endswith(after):
        yield text[len(before) : len(text) - len(after)]


def both(template: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield what may stand for `{a}` and `{b}`."""
    before, rest = template.split("{a}")
    middle, after = rest.split("{b}")
    if text.startswith(before) and text.endswith(after):
        text = text[len(before) : len(text) - len(after)]
        place = text.find(middle)
        while place >= 0:
            yield text[:place], text[place + len(middle) :]
            place = text.find(middle, place + 1)
