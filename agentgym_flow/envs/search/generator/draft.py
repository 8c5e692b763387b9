"""One realm of the world during generation: its entities by kind, its people by profession, and random draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from agentgym_flow.core import Stream
from agentgym_flow.envs.search.generator.entity import Entity
from agentgym_flow.envs.search.generator.names import EntityNames

T = TypeVar("T")

KEY = "agentgym_flow/Search-v0"
"""The first part of the key of every random stream in the generator."""

_TRIES = 12


class RealmDraft:
    """The entities of one realm, in the order in which they were added.

    Attributes:
        realm: the split whose questions use these entities.
        names: shared by all realms, so that no name is drawn twice.
        people: profession -> its people.
    """

    def __init__(self, stream: Stream, names: EntityNames, realm: str) -> None:
        self.realm, self.names = realm, names
        self.people: dict[str, list[Entity]] = {}
        self._stream = stream
        self._kinds: dict[str, list[Entity]] = {}
        self._amounts: set[tuple[str, int]] = set()
        self.choice, self.below = stream.choice, stream.below

    def add(self, kind: str, noun: str, name: str, *, aliases: tuple[str, ...] = ()) -> Entity:
        """Add an entity and return it."""
        made = Entity(kind, noun, name, self.realm, aliases=aliases)
        self._kinds.setdefault(kind, []).append(made)
        return made

    def of(self, kind: str) -> list[Entity]:
        """Return the entities of a kind."""
        return self._kinds.get(kind, [])

    def everything(self) -> list[Entity]:
        """Return all entities, grouped by kind."""
        return [entity for those in self._kinds.values() for entity in those]

    def pick(self, those: Sequence[Entity], fits: Callable[[Entity], bool]) -> Entity | None:
        """Draw up to 12 entities and return the first that fits, or None."""
        for _ in range(_TRIES if those else 0):
            one = self.choice(those)
            if fits(one):
                return one
        return None

    def year_of(self, person: Entity) -> int:
        """Return a year in which a person is adult and alive."""
        first = person.born + 24
        return first + self.below(max(1, min(person.ended, first + 40) - first))

    def amount(self, kind: str, low: int, high: int) -> int:
        """Return a log-uniform amount that no other entity of the kind has."""
        for _ in range(_TRIES * 20):
            value = int(low * (high / low) ** self._stream.uniform())
            if (kind, value) not in self._amounts:
                break
        else:
            raise RuntimeError(f"no free amount for another {kind} was found between {low} and {high}")
        self._amounts.add((kind, value))
        return value
