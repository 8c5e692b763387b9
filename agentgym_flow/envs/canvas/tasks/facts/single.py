"""Questions about one entity: answered by one passage, by two in a row, or about one of two with similar names."""

from __future__ import annotations

from dataclasses import replace

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.facts.draft import TEXTS, WRONGS, QuestionDraft, sentence
from agentgym_flow.envs.canvas.tasks.facts.relations import RELATIONS, FactRelation, marked, of_kind
from agentgym_flow.envs.canvas.tasks.facts.world import FactEntity, FactWorld
from agentgym_flow.envs.canvas.tasks.simulated import Fault

_BRIDGES = tuple(
    (first, second) for first in RELATIONS.values() if first.descriptions for second in of_kind(first.value)
)


def easy(world: FactWorld) -> QuestionDraft:
    """Return a question that one passage answers."""
    thing = world.stream.choice(world.all())
    relation = world.stream.choice(of_kind(thing.kind))
    question, _ = marked(world.stream.choice(relation.questions))
    right = thing.facts[relation.name]
    slip = Fault("slip", Mistake.SLIP, (), world.stream.choice(TEXTS["unlike"]), likely=False)
    return QuestionDraft(
        question=sentence(question.format(x=thing.name)),
        answers=(right,),
        wrong={"slip": world.others(relation.value, (right,), WRONGS)},
        faults=(slip,),
        plan=(f"Find {relation.find.format(x=thing.name)}.", "Give that and nothing else."),
        steps=_other_facts(thing, relation),
        needed=(thing,),
    )


def lookalike(world: FactWorld, kind: str) -> QuestionDraft:
    """Return a question about one of the two entities of a kind that have similar names."""
    thing, twin = _twins(world, kind)
    relation = world.stream.choice(of_kind(kind))
    question, _ = marked(world.stream.choice(relation.questions))
    aside, words = marked(world.stream.choice(TEXTS["twin_asides"]))
    return QuestionDraft(
        question=aside.format(q=sentence(question.format(x=thing.name)), x=thing.name, twin=twin.name),
        answers=(thing.facts[relation.name],),
        wrong={"distraction": (twin.facts[relation.name],)},
        faults=(_distraction(world, thing, twin, words),),
        plan=(
            f"Find the passage about {thing.name}, and leave {twin.name} aside.",
            f"Read there {relation.find.format(x=thing.name)}.",
        ),
        steps=_other_facts(thing, relation),
        needed=(thing, twin),
    )


def bridge(world: FactWorld) -> QuestionDraft:
    """Return a two-hop question."""
    first, second = world.stream.choice(_BRIDGES)
    return _bridge(world, world.stream.choice(world.things[first.subject]), first, second)


def mixed(world: FactWorld, kind: str) -> QuestionDraft:
    """Return a two-hop question in which one hop leads to one of two entities of `kind` with similar names."""
    first, second = world.stream.choice([pair for pair in _BRIDGES if kind in (pair[0].subject, pair[0].value)])
    start = world.stream.choice(world.things[first.subject][:2])
    draft = _bridge(world, start, first, second)
    thing, twin = (start, _twin(world, start)) if kind == first.subject else _ends(world, start, first)
    false_way = world.named(twin.facts[first.name]) if kind == first.subject else twin
    draft.wrong["distraction"] = (false_way.facts[second.name],)
    return replace(
        draft,
        faults=(*draft.faults, _distraction(world, thing, twin)),
        plan=(f"Keep {thing.name} and {twin.name} apart.", *draft.plan) if kind == first.subject else draft.plan,
        needed=tuple({thing.name: thing for thing in (*draft.needed, twin, false_way)}.values()),
    )


def _bridge(world: FactWorld, start: FactEntity, first: FactRelation, second: FactRelation) -> QuestionDraft:
    middle = world.named(start.facts[first.name])
    description, words = marked(world.stream.choice(first.descriptions))
    question, more = marked(world.stream.choice(second.questions))
    note = world.stream.choice(TEXTS["half_way"]).format(first=first.what, second=second.what)
    return QuestionDraft(
        question=sentence(question.format(x=description.format(x=start.name))),
        answers=(middle.facts[second.name],),
        wrong={"hop": (middle.name,)},
        faults=(Fault("hop", Mistake.HOP, tuple(dict.fromkeys((*words, *more))), note),),
        plan=(
            f"Find {first.find.format(x=start.name)}.",
            f"Then find {second.find.format(x=first.what)}.",
            "Answer with what the second step brings.",
        ),
        steps=(middle.name,),
        needed=(start, middle),
    )


def _twins(world: FactWorld, kind: str) -> tuple[FactEntity, FactEntity]:
    thing = world.stream.choice(world.things[kind][:2])
    return thing, _twin(world, thing)


def _twin(world: FactWorld, thing: FactEntity) -> FactEntity:
    first, second = world.things[thing.kind][:2]
    return second if thing is first else first


def _ends(world: FactWorld, start: FactEntity, first: FactRelation) -> tuple[FactEntity, FactEntity]:
    """Return the entity that the first hop leads to, and its twin."""
    middle = world.named(start.facts[first.name])
    return middle, _twin(world, middle)


def _distraction(world: FactWorld, thing: FactEntity, twin: FactEntity, words: tuple[str, ...] = ()) -> Fault:
    """Return the mistake of taking the twin; `words` and the invented words of both names warn against it."""
    invented = [word for word in f"{thing.name} {twin.name}".split() if word in world.names.given]
    note = world.stream.choice(TEXTS["mistaken"]).format(twin=twin.name)
    return Fault("distraction", Mistake.DISTRACTION, tuple(dict.fromkeys(map(str.lower, (*words, *invented)))), note)


def _other_facts(thing: FactEntity, asked: FactRelation) -> tuple[str, ...]:
    return tuple(thing.facts[relation.name] for relation in of_kind(thing.kind) if relation is not asked)
