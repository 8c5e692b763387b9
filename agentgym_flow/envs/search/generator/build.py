"""The world: three realms that share no facts, and an unambiguous title and name for every entity."""

from __future__ import annotations

from agentgym_flow._util.sharing import once
from agentgym_flow.core import Stream
from agentgym_flow.envs.search.generator.articles import Article, distractors, write
from agentgym_flow.envs.search.generator.draft import KEY, RealmDraft
from agentgym_flow.envs.search.generator.entity import THE, Entity
from agentgym_flow.envs.search.generator.names import EntityNames
from agentgym_flow.envs.search.generator.people import draw_people, join_people
from agentgym_flow.envs.search.generator.places import draw_places, people_places
from agentgym_flow.envs.search.generator.relations import WORK_KINDS
from agentgym_flow.envs.search.generator.things import draw_things, namesakes

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
