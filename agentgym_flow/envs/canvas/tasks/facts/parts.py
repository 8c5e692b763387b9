"""Questions about two or three entities: which was first, how many in total, one fact of each."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.facts.draft import TEXTS, QuestionDraft, sentence
from agentgym_flow.envs.canvas.tasks.facts.relations import RELATIONS, FactRelation, marked, of_kind
from agentgym_flow.envs.canvas.tasks.facts.world import FactEntity, FactWorld
from agentgym_flow.envs.canvas.tasks.simulated import Fault

_YEARS = ("opened", "born", "shown", "charter")
_EVENTS = {"opened": "the founding", "born": "the birth", "shown": "the first showing", "charter": "the charter"}
_CAME = {"opened": "was founded", "born": "was born", "shown": "was shown", "charter": "got a charter"}

_LISTS = (
    ("*Two things* are asked: {p} {q}", " and "),
    ('*Both* answers are wanted, joined by "and": {p} {q}', " and "),
    ("{p} {q} Give *both*, the first one first.", " and "),
    ("Answer *both* with a comma between them: {p} {q}", ", "),
)


def both(world: FactWorld) -> QuestionDraft:
    """Return a question with two or three parts."""
    return world.stream.choice((_difference, _total, _ranked, _ranked, _listed, _listed))(world)


def _ranked(world: FactWorld) -> QuestionDraft:
    relation = RELATIONS[world.stream.choice(_YEARS)]
    things = world.stream.sample(world.things[relation.subject], 2 + world.stream.below(2))
    first = world.stream.below(2) == 0
    question, words = marked(world.stream.choice(TEXTS["earliest" if first else "latest"]))
    ordered = sorted(things, key=lambda thing: int(thing.facts[relation.name]), reverse=not first)
    rest = "the other" if len(things) == 2 else "the others"
    names = [thing.name for thing in things]
    return _draft(
        world,
        asked=[(thing, relation) for thing in things],
        question=question.format(
            all=_row(names, "and"), either=_row(names, "or"), came=_CAME[relation.name], rest=rest
        ),
        words=words,
        right=ordered[0].name,
        wrong=ordered[1].name,
        last="Put the years in order and answer with the name.",
    )


def _difference(world: FactWorld) -> QuestionDraft:
    relation = RELATIONS[world.stream.choice(_YEARS)]
    a, b, mistaken = world.stream.sample(world.things[relation.subject], 3)
    question, words = marked(world.stream.choice(TEXTS["between"]))
    of_a, of_b, of_mistaken = (int(thing.facts[relation.name]) for thing in (a, b, mistaken))
    right, wrong = abs(of_a - of_b), abs(of_a - of_mistaken)
    if wrong == right:  # the two years lie on the two sides of the first one
        wrong = abs(of_b - of_mistaken)
    return _draft(
        world,
        asked=[(a, relation), (b, relation)],
        question=question.format(a=a.name, b=b.name, event=_EVENTS[relation.name]),
        words=words,
        right=str(right),
        wrong=str(wrong),
        last="Take the smaller year from the greater one.",
        mistaken=mistaken,
    )


def _total(world: FactWorld) -> QuestionDraft:
    relation = RELATIONS["staff"]
    a, b, mistaken = world.stream.sample(world.things["firm"], 3)
    question, words = marked(world.stream.choice(TEXTS["together"]))
    of_a, of_b, of_mistaken = (int(thing.facts["staff"]) for thing in (a, b, mistaken))
    return _draft(
        world,
        asked=[(a, relation), (b, relation)],
        question=question.format(a=a.name, b=b.name),
        words=words,
        right=str(of_a + of_b),
        wrong=str(of_a + of_mistaken),
        last="Add the two numbers.",
        mistaken=mistaken,
    )


def _listed(world: FactWorld) -> QuestionDraft:
    """Return a question for one fact of each of two entities; the mistake swaps the entities."""
    kind = world.stream.choice(("firm", "person", "work", "town"))
    a, b = world.stream.sample(world.things[kind], 2)
    p, q = world.stream.sample(of_kind(kind), 2)
    form, joint = world.stream.choice(_LISTS)
    asked, words = marked(form)
    first, second = (marked(world.stream.choice(relation.questions))[0] for relation in (p, q))
    return _draft(
        world,
        asked=[(a, p), (b, q)],
        question=asked.format(p=sentence(first.format(x=a.name)), q=sentence(second.format(x=b.name))),
        words=words,
        right=a.facts[p.name] + joint + b.facts[q.name],
        wrong=b.facts[p.name] + joint + a.facts[q.name],
        last="Join the two in the order in which they are asked.",
    )


def _draft(
    world: FactWorld,
    *,
    asked: list[tuple[FactEntity, FactRelation]],
    question: str,
    words: tuple[str, ...],
    right: str,
    wrong: str,
    last: str,
    mistaken: FactEntity | None = None,
) -> QuestionDraft:
    """Return a draft with a piece for each of `asked`.

    `last` is the step of the plan that combines them; `mistaken` is an entity that the mistake confuses with another.
    """
    things = [thing for thing, _ in asked]
    questions = [marked(world.stream.choice(relation.questions))[0].format(x=thing.name) for thing, relation in asked]
    return QuestionDraft(
        question=question,
        answers=(right,),
        wrong={"part": (wrong,)},
        faults=(Fault("part", Mistake.PART, words, world.stream.choice(TEXTS["mixed_up"])),),
        plan=(*(f"Find {relation.find.format(x=thing.name)}." for thing, relation in asked), last),
        steps=tuple(thing.facts[relation.name] for thing, relation in asked),
        needed=(*things, *((mistaken,) if mistaken else ())),
        pieces=tuple(sentence(question) for question in questions),
    )


def _row(names: list[str], joint: str) -> str:
    return f"{', '.join(names[:-1])} {joint} {names[-1]}"
