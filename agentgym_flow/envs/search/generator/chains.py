"""Chains of facts: where a question starts, which facts it follows, and how it asks for the last value."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.answers import normalise
from agentgym_flow.envs.search.generator.articles import amount, capital
from agentgym_flow.envs.search.generator.build import SearchWorld
from agentgym_flow.envs.search.generator.entity import Date, Entity, Value
from agentgym_flow.envs.search.generator.relations import OF_KIND, WORK_KINDS, EntityRelation

STARTS = {
    **dict.fromkeys(WORK_KINDS, 6),
    "person": 5,
    "company": 4,
    "museum": 3,
    "university": 2,
    "ship": 2,
    "award": 2,
    "event": 3,
    "river": 2,
    "mountain": 2,
    "city": 2,
    "country": 1,
    "region": 1,
}
"""Kind -> relative probability that a chain starts with it."""

_KINDS = tuple(kind for kind, weight in STARTS.items() for _ in range(weight))
_STEPS = {"country": 1, "region": 1, "city": 2}
"""Kind -> relative probability that a chain continues to it; other kinds have weight 4."""

_ARE_PEOPLE = ("inhabitants", "employees")
"""Units for which a question may ask `how many people`."""


class FactChain(NamedTuple):
    """A path of facts from one entity to a value.

    Attributes:
        passed: the entities whose facts are used, in order.
        relations: the fact used of each entity.
    """

    passed: tuple[Entity, ...]
    relations: tuple[EntityRelation, ...]

    @property
    def value(self) -> Value:
        """The value at the end of the chain."""
        return self.passed[-1].facts[self.relations[-1].fact]


def draw_chain(stream: Stream, entities: dict[str, list[Entity]], length: int) -> FactChain | None:
    """Return a chain of `length` facts from a random entity, or None if the chain ended too early."""
    passed = [stream.choice(entities[stream.choice(_KINDS)])]
    relations: list[EntityRelation] = []
    while True:
        here, goes_on = passed[-1], len(relations) + 1 < length
        known = [one for one in OF_KIND[here.kind].values() if one.fact in here.facts]
        if goes_on:
            # The articles of spouses name each other, so a search for one spouse finds both.
            known = [one for one in known if one.nouns and (one.fact != "spouse" or relations)]
        pool = [one for one in known for _ in range(_STEPS.get(one.answer, 4))]
        if not pool:
            return None
        relations.append(stream.choice(pool))
        value = here.facts[relations[-1].fact]
        if isinstance(value, Entity) and value in passed:
            return None
        if not goes_on:
            return FactChain(tuple(passed), tuple(relations))
        assert isinstance(value, Entity), "a phrase is for an entity"
        passed.append(value)


def ways_to(entities: dict[str, list[Entity]]) -> dict[Entity, list[tuple[Entity, EntityRelation]]]:
    """Return for each entity the (entity, relation) pairs that lead to it, if a question can continue from there."""
    found: dict[Entity, list[tuple[Entity, EntityRelation]]] = {}
    for kind, those in entities.items():
        for relation in OF_KIND[kind].values() if kind in STARTS else ():
            for one in those if relation.nouns and relation.fact != "spouse" else ():
                value = one.facts.get(relation.fact)
                if isinstance(value, Entity):
                    found.setdefault(value, []).append((one, relation))
    return found


def phrase(stream: Stream, chain: FactChain, facts: int) -> str:
    """Return the first `facts` facts of a chain as a phrase: `the birthplace of the author of the novel "..."`."""
    said = chain.passed[0].mention
    for relation in chain.relations[:facts]:
        said = stream.choice(relation.nouns).format(x=said)
    return said


def ask(stream: Stream, chain: FactChain) -> str:
    """Return a question for the value of a chain, in one sentence or in two."""
    last = chain.relations[-1]
    said = phrase(stream, chain, len(chain.relations) - 1)
    question = stream.choice(last.asks)
    if len(chain.relations) > 2 and stream.below(3) == 0:
        lead = stream.choice(("Think of {x}.", "This is about {x}.", "Consider {x}.")).format(x=said)
        return f"{lead} {capital(question.format(x=f'this {chain.passed[-1].kind}'))}"
    return capital(question.format(x=said))


def supports(world: SearchWorld, chain: FactChain) -> tuple[tuple[str, str], ...]:
    """Return (query, passage id) for each step; a query uses only words of the question and the articles before it."""
    found = []
    name, kind = chain.passed[0].mention, chain.passed[0].kind
    for entity, relation in zip(chain.passed, chain.relations, strict=True):
        query = name.removeprefix("the ").replace('"', "")
        if kind != "person" and kind not in query.lower():
            query = f"{query} {kind}"
        found.append((query, str(entity.number)))
        name, kind = world.article(entity).shown[relation.fact], relation.answer
    return tuple(found)


def answers(chain: FactChain) -> tuple[str, ...]:
    """Return the accepted answers for a chain, best first."""
    value, unit = chain.value, chain.relations[-1].answer
    if isinstance(value, Entity):
        return called(value)
    if isinstance(value, Date):
        return (str(value), value.other)
    if isinstance(value, int) and unit != "year":
        forms = [amount(value, unit), f"{value:,}", f"{value} {unit}", str(value)]
        if unit in _ARE_PEOPLE:
            forms += [amount(value, "people"), f"{value} people"]
        return tuple(dict.fromkeys(forms))
    return (str(value),)


def called(entity: Entity) -> tuple[str, ...]:
    """Return all names of an entity that differ as answers: name, aliases, mention in other articles, and title."""
    found: dict[str, str] = {}
    for said in (entity.name, *entity.aliases, entity.mention, entity.title):
        found.setdefault(normalise(said), said)
    return tuple(found.values())
