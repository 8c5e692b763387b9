"""The world of the embedded tasks: three realms that share no facts, and an article about every entity.

An article has the facts of one entity in random order, mixed with true statements that no question asks for. Every
entity has an unambiguous title and name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agentgym_flow._util.sharing import once
from agentgym_flow._util.values import Content, read_content
from agentgym_flow.core import Stream
from agentgym_flow.envs.search.generator.entities import (
    KEY,
    OF_KIND,
    THE,
    WORK_KINDS,
    Entity,
    EntityNames,
    EntityRelation,
    RealmDraft,
    Value,
)
from agentgym_flow.envs.search.generator.realm import (
    draw_people,
    draw_places,
    draw_things,
    join_people,
    namesakes,
    people_places,
)

COUNTRIES = {"train": 32, "valid": 8, "test": 8}


class SearchWorld:
    """All entities and their articles.

    Attributes:
        entities: realm -> its entities.
        articles: in the order of the passages; an article without an entity is a distractor.
    """

    def __init__(self) -> None:
        names = EntityNames(Stream(KEY, "names"))
        self.entities = {realm: _realm(names, realm, countries) for realm, countries in COUNTRIES.items()}
        everything = [entity for those in self.entities.values() for entity in those]
        alike = namesakes(everything)
        for entity in everything:
            _distinguish(entity, alike[entity.name])
        self.articles: list[Article] = [write(entity, names) for entity in everything]
        self.articles += distractors(everything, alike)
        Stream(KEY, "order").shuffle(self.articles)
        for number, article in enumerate(self.articles):
            if article.entity:
                article.entity.number = number

    def article(self, entity: Entity) -> Article:
        """Return the article of an entity."""
        return self.articles[entity.number]


def _realm(names: EntityNames, realm: str, countries: int) -> list[Entity]:
    draft = RealmDraft(Stream(KEY, "realm", realm), names, realm)
    draw_places(draft, countries)
    draw_people(draft, countries)
    people_places(draft)
    draw_things(draft, countries)
    join_people(draft)
    return draft.everything()


def _distinguish(entity: Entity, alike: list[Entity]) -> None:
    """Set the title of an entity and the name that other texts use, both distinct from entities of the same name."""
    work = entity.kind in WORK_KINDS
    year = entity.facts.get("year")
    if len(alike) == 1:
        entity.title = entity.name
    elif work:
        entity.title = f"{entity.name} ({year} {entity.noun})"
    else:
        entity.title = f"{entity.name} ({entity.noun})"
    if work:
        entity.mention = f'the {entity.noun} "{entity.name}"' + (f" of {year}" if len(alike) > 1 else "")
    elif len(alike) > 1:
        entity.mention = f"the {entity.noun} {entity.name}"
    else:
        entity.mention = f"the {entity.name}" if entity.kind in THE else entity.name


@once()
def world() -> SearchWorld:
    """Return the world, generated once per process."""
    return SearchWorld()


_FEWEST_WORDS = 52
_BEFORE_VOWEL = re.compile(r"\ba(?= [aeio])")
_ALIAS_FORMS = (
    "some texts say {alias}",
    "{alias} is another name for the same {noun}",
    "older sources have the name {alias}",
    "the name {alias} is found as well",
)


class ArticleWording(Content, frozen=True):
    """How articles about some kinds of entity are worded, apart from their facts.

    Attributes:
        kinds: the kinds of entity.
        intros: first sentences, with `{name}`, `{noun}` and `{topic}`, and `{the}` or `{The}` for an article.
        topics: what the entities are known for.
        fillers: true statements that no question asks for; `{e}`, `{f}` and `{g}` are names that no entity has, `{n}`
            is a number.
    """

    kinds: tuple[str, ...]
    intros: tuple[str, ...]
    topics: tuple[str, ...]
    fillers: tuple[str, ...]


WORDING = {
    kind: wording
    for wording in read_content(__package__, "wording.json", tuple[ArticleWording, ...])
    for kind in wording.kinds
}
"""Kind of entity -> wording of its articles."""


@dataclass(slots=True, eq=False)
class Article:
    """One article.

    Attributes:
        entity: the subject; None for a distractor.
        title: unique among all articles.
        text: one paragraph.
        shown: fact -> the article's wording of its value, which a reader may search for next.
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
    """Return what a statement calls the entity: its name, its noun, or a pronoun at the beginning."""
    turn = stream.below(3)
    if turn == 0 and says.startswith("{x}"):
        return ("she" if entity.she else "he") if entity.kind == "person" else "it"
    if turn == 1:
        return f"the {entity.noun}"
    if entity.kind in WORK_KINDS:
        return f'"{entity.name}"'
    return f"the {entity.name}" if entity.kind in THE else entity.name


def write(entity: Entity, names: EntityNames) -> Article:
    """Return the article of an entity. `names` gives the names in filler statements, which belong to no entity."""
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
        sentences.append(stream.choice(_ALIAS_FORMS).format(alias=alias, noun=entity.noun))
    fillers = WORDING[entity.kind].fillers
    spare = stream.sample(fillers, len(fillers))
    the, wording = "the " if entity.kind in THE else "", WORDING[entity.kind]
    # Other articles may use the pen name of a person.
    pen_name = entity.kind == "person" and entity.aliases and " " not in entity.aliases[0]
    name = f"{entity.name} ({entity.aliases[0]})" if pen_name else entity.name
    topic, intro = stream.choice(wording.topics), stream.choice(wording.intros)
    intro = _BEFORE_VOWEL.sub("an", intro.format(name=name, noun=entity.noun, topic=topic, the=the, The=the))
    sentences.append(_filled(stream, spare.pop(), names))
    words = sum(len(sentence.split()) for sentence in [intro, *sentences])
    while words < _FEWEST_WORDS:
        sentences.append(_filled(stream, spare.pop(), names))
        words += len(sentences[-1].split())
    stream.shuffle(sentences)
    article.text = " ".join(capital(sentence) + "." for sentence in [intro, *sentences])
    return article


def _filled(stream: Stream, says: str, names: EntityNames) -> str:
    extra = {key: names.word("other", 2) for key in "efg" if f"{{{key}}}" in says}
    return says.format(n=3 + stream.below(90), **extra)


def distractors(entities: list[Entity], alike: dict[str, list[Entity]]) -> list[Article]:
    """Return the pages that list entities of the same name, and people who share a last name."""
    found = []
    for name, those in alike.items():
        if len(those) > 1:
            years = (f" of {year}" if (year := one.facts.get("year")) else "" for one in those)
            kinds = (_BEFORE_VOWEL.sub("an", f"a {one.noun}") for one in those)
            lines = ", ".join(map(str.__add__, kinds, years))
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
