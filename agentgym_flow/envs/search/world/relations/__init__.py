"""The relations between entities, and the many ways to state each and to ask for it: data, but for those of works."""

from agentgym_flow.envs.content import read_content
from agentgym_flow.envs.search.world.relations.relation import EntityRelation
from agentgym_flow.envs.search.world.relations.works import WORK_KINDS, relations_of_work

_WRITTEN = [
    relation
    for file in ("places.json", "institutions.json", "people.json")
    for relation in read_content(__name__, file, tuple[EntityRelation, ...])
]

ALL = (*_WRITTEN, *(one for kind in WORK_KINDS for one in relations_of_work(kind)))
"""Every relation."""

OF_KIND = {kind: {one.fact: one for one in ALL if one.kind == kind} for kind in dict.fromkeys(one.kind for one in ALL)}
"""Kind of entity -> name of fact -> relation, in a fixed order."""

__all__ = ["ALL", "OF_KIND", "WORK_KINDS", "EntityRelation"]
