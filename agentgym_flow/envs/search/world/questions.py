"""The questions of a realm: chains of one to four facts, comparisons, and questions that are answered yes or no."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from agentgym_flow.envs.answers import normalise
from agentgym_flow.envs.search.question import Question
from agentgym_flow.envs.search.world.articles import capital
from agentgym_flow.envs.search.world.build import SearchWorld
from agentgym_flow.envs.search.world.chains import (
    FactChain,
    answers,
    ask,
    called,
    draw_chain,
    phrase,
    supports,
    ways_to,
)
from agentgym_flow.envs.search.world.draft import KEY
from agentgym_flow.envs.search.world.entity import Date, Entity, Value
from agentgym_flow.envs.search.world.relations import ALL, EntityRelation
from agentgym_flow.seeding import Stream, seasonal, stable_hash

COMPARISON, YES_NO = "comparison", "yes or no"
KINDS = ("1 hop", "2 hops", "3 hops", "4 hops", COMPARISON, YES_NO)

_TURNS = (*"1223312c342341233y24431233422c14323y",)
"""The kinds of questions in turn: so many hops, `c` for a comparison, `y` for yes or no."""

_KIND_OF_TURN = dict(zip("1234cy", KINDS, strict=True))
_DRAWS = 1_000

_ORDERED = [relation for relation in ALL if len(relation.compared) == 2]
_DECIDED = [relation for relation in ALL if relation.compared]

Leaks: TypeAlias = Callable[[str, tuple[str, ...]], bool]
"""Tells whether one search for a whole text shows one of the answers."""


class _Drawn(NamedTuple):
    text: str
    answers: tuple[str, ...]
    supports: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]


class _Realm(NamedTuple):
    world: SearchWorld
    entities: dict[str, list[Entity]]
    ways: dict[Entity, list[tuple[Entity, EntityRelation]]]


def draw_questions(world: SearchWorld, realm: str, count: int, leaks: Leaks, season: str = "") -> list[Question]:
    """Return so many different questions through the entities of a realm, in random order.

    Args:
        world: with its articles.
        realm: the split.
        count: how many.
        season: every season has questions of its own; `""` are the standard ones.
        leaks: of the questions of two hops and more, those for which this is true are left out.

    Raises `RuntimeError` when the world is too small.
    """
    stream = Stream(KEY, "questions", seasonal(realm, season))
    entities: dict[str, list[Entity]] = {}
    for entity in world.entities[realm]:
        entities.setdefault(entity.kind, []).append(entity)
    drawn_from = _Realm(world, entities, ways_to(entities))
    asked: set[tuple[object, ...]] = set()
    found: list[tuple[str, _Drawn]] = []
    while len(found) < count:
        turn = _TURNS[len(found) % len(_TURNS)]
        # Yes and no, and the first and the second, are the answers by turns: no guess is right for more than half.
        wanted = len(found) // len(_TURNS) % 2 == (_TURNS.index(turn) == len(found) % len(_TURNS))
        draw = (
            partial(_chain, length=int(turn), leaks=leaks)
            if turn.isdigit()
            else partial(_pair, turn=turn, wanted=wanted)
        )
        one = _another(partial(draw, stream, drawn_from), asked)
        found.append((_KIND_OF_TURN[turn], one))
    stream.shuffle(found)
    return [
        Question(_id(realm, number, season, one), one.text, one.answers, kind, one.supports, KEY)
        for number, (kind, one) in enumerate(found)
    ]


def _id(realm: str, number: int, season: str, one: _Drawn) -> str:
    """Return the name of a question: of a season's by its content, so that it is the same in every season."""
    return f"{realm}-{stable_hash([one.text, one.answers])[:16]}" if season else f"{realm}-{number}"


def _another(draw: Callable[[], _Drawn | None], asked: set[tuple[object, ...]]) -> _Drawn:
    """Return a question for something that was not asked yet, in whatever words."""
    for _ in range(_DRAWS):
        drawn = draw()
        if drawn:
            what = (tuple(sorted(number for _, number in drawn.supports)), drawn.facts)
            if what not in asked:
                asked.add(what)
                return drawn
    raise RuntimeError("no further question was found; the world is too small for so many")


def _chain(stream: Stream, realm: _Realm, length: int, leaks: Leaks) -> _Drawn | None:
    chain = draw_chain(stream, realm.entities, length)
    if chain is None:
        return None
    text, right = ask(stream, chain), answers(chain)
    if any(answer.lower() in text.lower() for answer in right) or (length > 1 and leaks(text, right)):
        return None
    return _Drawn(text, right, supports(realm.world, chain), tuple(one.fact for one in chain.relations))


def _pair(stream: Stream, realm: _Realm, turn: str, wanted: bool) -> _Drawn | None:
    """Return a question about two entities of a kind, each named or found over something that names it."""
    relation = stream.choice(_DECIDED if turn == "y" else _ORDERED)
    those = [one for one in realm.entities[relation.kind] if relation.fact in one.facts]
    first = stream.choice(those)
    second = _other(stream, those, first, relation, wanted)
    if second is None:
        return None
    chains = [_towards(stream, realm, one, relation) for one in (first, second)]
    ends = [phrase(stream, chain, len(chain.relations) - 1) for chain in chains]
    steps = supports(realm.world, chains[0]) + supports(realm.world, chains[1])
    if len({number for _, number in steps}) < len(steps):
        return None  # a search for one would find the other
    text = capital(relation.compared[-1 if turn == "y" else 0].format(a=ends[0], b=ends[1]))
    if turn == "y":
        return _Drawn(text, ("yes" if wanted else "no",), steps, (relation.fact,))
    # One may also answer in the words of the question: no other entity has what they say, so they name one option only.
    winner, said = (first, ends[0]) if wanted else (second, ends[1])
    right = called(winner)
    if normalise(said) not in map(normalise, right):
        right += (said,)
    return _Drawn(text, right, steps, (relation.fact,))


def _other(stream: Stream, those: list[Entity], first: Entity, relation: EntityRelation, wanted: bool) -> Entity | None:
    """Return one with the same value, or with a later one; if that is not wanted, with another or an earlier one."""
    value = first.facts[relation.fact]
    if len(relation.compared) == 1:
        fits = [one for one in those if (one.facts[relation.fact] is value) == wanted]
    else:
        fits = [one for one in those if _before(value, one.facts[relation.fact]) is wanted]
    fits = [one for one in fits if one is not first and one.name != first.name]
    return stream.choice(fits) if fits else None


def _before(one: Value, other: Value) -> bool | None:
    """Return whether a day, a year or an amount comes before another; nothing for equal ones."""
    first, second = _rank(one), _rank(other)
    return None if first == second else first < second


def _rank(value: Value) -> tuple[int, ...]:
    return value if isinstance(value, Date) else (value,) if isinstance(value, int) else ()


def _towards(stream: Stream, realm: _Realm, end: Entity, relation: EntityRelation) -> FactChain:
    """Return a chain to a fact of `end`: in two of three cases over something that names it, if anything does."""
    ways = realm.ways.get(end)
    if ways and stream.below(3):
        start, way = stream.choice(ways)
        return FactChain((start, end), (way, relation))
    return FactChain((end,), (relation,))
