"""Passages: descriptions of entities, and accounts of one fact by several sources."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.scoring.problem import ContextPassage
from agentgym_flow.envs.canvas.tasks.facts.relations import FactRelation
from agentgym_flow.envs.canvas.tasks.facts.world import FactEntity
from agentgym_flow.envs.content import read_content


class PassageTexts(NamedTuple):
    """The wordings of passages.

    Attributes:
        descriptions: kind of entity -> texts with its facts.
        voices: sources by title, each with a sentence for a statement `{s}`.
        voices_in_test: the sources of the split `test`, which no other split has.
    """

    descriptions: dict[str, tuple[str, ...]]
    voices: tuple[tuple[str, str], ...]
    voices_in_test: tuple[tuple[str, str], ...]


_TEXTS = read_content("agentgym_flow.envs.canvas.tasks.facts", "passages.json", PassageTexts)


def description_of(thing: FactEntity, stream: Stream) -> ContextPassage:
    """Return the passage about an entity, with all its facts."""
    return ContextPassage(
        thing.name, stream.choice(_TEXTS.descriptions[thing.kind]).format(name=thing.name, **thing.facts)
    )


def accounts_of(
    thing: FactEntity, relation: FactRelation, values: list[str], split: str, stream: Stream
) -> list[ContextPassage]:
    """Return a passage from a different source for each of `values`, which it states as the relation of the entity.

    There must not be more values than wordings.
    """
    voices = stream.sample(_TEXTS.voices_in_test if split == "test" else _TEXTS.voices, len(values))
    wordings = stream.sample(relation.statements, len(values))
    return [
        ContextPassage(title, form.format(s=wording.format(x=thing.name, v=value)))
        for (title, form), wording, value in zip(voices, wordings, values, strict=True)
    ]
