"""The questions of a realm: chains of one to four facts, comparisons, and yes-or-no questions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from agentgym_flow.core import Stream, seasonal, stable_hash
from agentgym_flow.envs.answers import normalise
from agentgym_flow.envs.search.generator.articles import capital
from agentgym_flow.envs.search.generator.build import SearchWorld
from agentgym_flow.envs.search.generator.chains import (
    FactChain,
    answers,
    ask,
    called,
    draw_chain,
    phrase,
    supports,
    ways_to,
)
from agentgym_flow.envs.search.generator.draft import KEY
from agentgym_flow.envs.search.generator.entity import Date, Entity, Value
from agentgym_flow.envs.search.generator.relations import ALL, EntityRelation
from agentgym_flow.envs.search.question import Question

COMPARISON, YES_NO = "comparison", "yes or no"
KINDS = ("1 hop", "2 hops", "3 hops", "4 hops", COMPARISON, YES_NO)

_TURNS = (*"1223312c342341233y24431233422c14323y",)
"""The repeating sequence of question kinds: a digit for the number of hops, `c` for comparison, `y` for yes or no."""

_KIND_OF_TURN = dict(zip("1234cy", KINDS, strict=True))
_DRAWS = 1_000

_ORDERED = [relation for relation in ALL if len(relation.compared) == 2]
_DECIDED = [relation for relation in ALL if relation.compared]

Leaks: TypeAlias = Callable[[str, tuple[str, ...]], bool]
"""Returns whether a single search for the question text shows one of the answers."""


class _QuestionDraft(NamedTuple):
    text: str
    answers: tuple[str, ...]
    supports: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]


class _Realm(NamedTuple):
    world: SearchWorld
    entities: dict[str, list[Entity]]
    ways: dict[Entity, list[tuple[Entity, EntityRelation]]]


def draw_questions(world: SearchWorld, realm: str, count: int, leaks: Leaks, season: str = "") -> list[Question]:
    """Return `count` different questions about the entities of a realm, in random order.

    Args:
        world: the generated world.
        realm: the split.
        count: the number of questions.
        season: every season has its own questions; `""` selects the standard ones.
        leaks: questions of two or more hops are dropped if this returns true.

    Raises `RuntimeError` if the world is too small.
    """
    stream = Stream(KEY, "questions", seasonal(realm, season))
    entities: dict[str, list[Entity]] = {}
    for entity in world.entities[realm]:
        entities.setdefault(entity.kind, []).append(entity)
    drawn_from = _Realm(world, entities, ways_to(entities))
    asked: set[tuple[object, ...]] = set()
    found: list[tuple[str, _QuestionDraft]] = []
    while len(found) < count:
        turn = _TURNS[len(found) % len(_TURNS)]
        # Right answers alternate between yes and no, and between first and second, so no constant guess exceeds 50 %.
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


def _id(realm: str, number: int, season: str, one: _QuestionDraft) -> str:
    """Return the id of a question. In a season it depends only on the content, so equal questions have equal ids."""
    return f"{realm}-{stable_hash([one.text, one.answers])[:16]}" if season else f"{realm}-{number}"


def _another(draw: Callable[[], _QuestionDraft | None], asked: set[tuple[object, ...]]) -> _QuestionDraft:
    """Return a question about facts that no earlier question has asked for, regardless of wording."""
    for _ in range(_DRAWS):
        drawn = draw()
        if drawn:
            what = (tuple(sorted(number for _, number in drawn.supports)), drawn.facts)
            if what not in asked:
                asked.add(what)
                return drawn
    raise RuntimeError("no further question was found; the world is too small for so many")


def _chain(stream: Stream, realm: _Realm, length: int, leaks: Leaks) -> _QuestionDraft | None:
    chain = draw_chain(stream, realm.entities, length)
    if chain is None:
        return None
    text, right = ask(stream, chain), answers(chain)
    if any(answer.lower() in text.lower() for answer in right) or (length > 1 and leaks(text, right)):
        return None
    return _QuestionDraft(text, right, supports(realm.world, chain), tuple(one.fact for one in chain.relations))


def _pair(stream: Stream, realm: _Realm, turn: str, wanted: bool) -> _QuestionDraft | None:
    """Return a question about two entities of one kind, each named directly or through another entity."""
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
        return None  # a search for one entity would find the other
    text = capital(relation.compared[-1 if turn == "y" else 0].format(a=ends[0], b=ends[1]))
    if turn == "y":
        return _QuestionDraft(text, ("yes" if wanted else "no",), steps, (relation.fact,))
    # The wording of the question is accepted as an answer, too, because it describes exactly one of the two.
    winner, said = (first, ends[0]) if wanted else (second, ends[1])
    right = called(winner)
    if normalise(said) not in map(normalise, right):
        right += (said,)
    return _QuestionDraft(text, right, steps, (relation.fact,))


def _other(stream: Stream, those: list[Entity], first: Entity, relation: EntityRelation, wanted: bool) -> Entity | None:
    """Return an entity to compare with `first`.

    For entity values: one with the same value if `wanted`, otherwise with a different one. For ordered values: one
    whose value is larger if `wanted`, otherwise smaller.
    """
    value = first.facts[relation.fact]
    if len(relation.compared) == 1:
        fits = [one for one in those if (one.facts[relation.fact] is value) == wanted]
    else:
        fits = [one for one in those if _before(value, one.facts[relation.fact]) is wanted]
    fits = [one for one in fits if one is not first and one.name != first.name]
    return stream.choice(fits) if fits else None


def _before(one: Value, other: Value) -> bool | None:
    """Return whether a date, year or amount comes before another; None if they are equal."""
    first, second = _rank(one), _rank(other)
    return None if first == second else first < second


def _rank(value: Value) -> tuple[int, ...]:
    return value if isinstance(value, Date) else (value,) if isinstance(value, int) else ()


def _towards(stream: Stream, realm: _Realm, end: Entity, relation: EntityRelation) -> FactChain:
    """Return a chain to a fact of `end`; with probability 2/3 it starts at an entity that leads to `end`, if any."""
    ways = realm.ways.get(end)
    if ways and stream.below(3):
        start, way = stream.choice(ways)
        return FactChain((start, end), (way, relation))
    return FactChain((end,), (relation,))
