"""Articles: the facts of one entity in words, in any order, between true things that no question is about."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agentgym_flow.envs.search.world.draft import KEY
from agentgym_flow.envs.search.world.entity import THE, Entity, Value
from agentgym_flow.envs.search.world.names import EntityNames
from agentgym_flow.envs.search.world.relations import OF_KIND, WORK_KINDS, EntityRelation
from agentgym_flow.envs.search.world.wording import ALSO, TOPICS, fillers, group_of, intros
from agentgym_flow.seeding import Stream

_FEWEST_WORDS = 52
_BEFORE_VOWEL = re.compile(r"\ba(?= [aeio])")


@dataclass(slots=True, eq=False)
class Article:
    """One article.

    Attributes:
        entity: what it is about; nothing for a distractor.
        title: of the article; no other has it.
        text: one paragraph.
        shown: fact -> how the article names its value: what a reader may search for next.
    """

    entity: Entity | None
    title: str
    text: str
    shown: dict[str, str] = field(default_factory=dict)


def amount(value: int, unit: str) -> str:
    """Return an amount as articles write it: `12,400 metres`."""
    return f"{value:,} {unit}"


def _written(stream: Stream, value: Value, relation: EntityRelation) -> str:
    """Return a value as the article states it: an entity by its name, or by another of its names."""
    if isinstance(value, Entity):
        if value.aliases and value.kind in ("university", "award", "river", "person") and stream.below(4) == 0:
            the = "the " if value.kind in THE or value.aliases[0].startswith("University of") else ""
            return f"{the}{value.aliases[0]}"
        return value.mention
    if isinstance(value, int) and relation.answer != "year":
        return amount(value, relation.answer)
    return str(value)


def capital(text: str) -> str:
    """Return a text with its first letter in upper case, after an opening quotation mark if there is one."""
    place = 1 if text.startswith('"') else 0
    return text[:place] + text[place : place + 1].upper() + text[place + 1 :]


def _subject(stream: Stream, entity: Entity, says: str) -> str:
    """Return what stands for the entity in a statement: its name, a pronoun at the start, or what it is."""
    turn = stream.below(3)
    if turn == 0 and says.startswith("{x}"):
        return ("she" if entity.she else "he") if entity.kind == "person" else "it"
    if turn == 1:
        return f"the {entity.noun}"
    if entity.kind in WORK_KINDS:
        return f'"{entity.name}"'
    return f"the {entity.name}" if entity.kind in THE else entity.name


def write(entity: Entity, names: EntityNames) -> Article:
    """Return the article of an entity; names of people and places without an article come from `names`."""
    stream = Stream(KEY, "article", entity.title)
    article = Article(entity, entity.title, "")
    sentences = []
    for relation in OF_KIND[entity.kind].values():
        if relation.fact in entity.facts:
            written = _written(stream, entity.facts[relation.fact], relation)
            article.shown[relation.fact] = written
            says = stream.choice(relation.says)
            sentences.append(says.format(x=_subject(stream, entity, says), y=written))
    for alias in entity.aliases:
        sentences.append(stream.choice(ALSO).format(alias=alias, noun=entity.noun))
    spare = stream.sample(fillers(entity.kind), len(fillers(entity.kind)))
    intro = _intro(stream, entity)
    sentences.append(_filled(stream, spare.pop(), names))
    words = sum(len(sentence.split()) for sentence in [intro, *sentences])
    while words < _FEWEST_WORDS:
        sentences.append(_filled(stream, spare.pop(), names))
        words += len(sentences[-1].split())
    stream.shuffle(sentences)
    article.text = " ".join(capital(sentence) + "." for sentence in [intro, *sentences])
    return article


def _intro(stream: Stream, entity: Entity) -> str:
    the = "the " if entity.kind in THE else ""
    topic = stream.choice(TOPICS[group_of(entity.kind)])
    said = stream.choice(intros(entity.kind))
    said = said.format(name=_full_name(entity), noun=entity.noun, topic=topic, the=the, The=the)
    return _BEFORE_VOWEL.sub("an", said)


def _full_name(entity: Entity) -> str:
    """Return the name as an article begins with it: with the name as an artist, by which others may call a person."""
    pen_name = entity.kind == "person" and entity.aliases and " " not in entity.aliases[0]
    return f"{entity.name} ({entity.aliases[0]})" if pen_name else entity.name


def _filled(stream: Stream, says: str, names: EntityNames) -> str:
    extra = {key: names.word("other", 2) for key in "efg" if f"{{{key}}}" in says}
    return says.format(n=3 + stream.below(90), **extra)


def distractors(entities: list[Entity], alike: dict[str, list[Entity]]) -> list[Article]:
    """Return the pages that list what has the same name, and people who share the last name."""
    found = []
    for name, those in alike.items():
        if len(those) > 1:
            lines = ", ".join(f"{_listed(one)}" for one in those)
            text = f"{name} may refer to several things: {lines}. None of them should be taken for another."
            found.append(Article(None, f"{name} (disambiguation)", text))
    families: dict[str, list[Entity]] = {}
    for one in entities:
        if one.kind == "person":
            families.setdefault(one.name.split(" ")[-1], []).append(one)
    for name, those in families.items():
        if len(those) >= 4:
            lines = ", ".join(f"{one.name}, {one.noun}" for one in those[:14])
            text = f"{name} is a family name. Among the people with this name are: {lines}. Not all are related."
            found.append(Article(None, f"{name} (family name)", text))
    return found


def _listed(entity: Entity) -> str:
    year = entity.facts.get("year")
    return _BEFORE_VOWEL.sub("an", f"a {entity.noun}") + (f" of {year}" if year else "")
