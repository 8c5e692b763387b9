"""What the sentence of a task asks for, read as a player would read it."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import FAMILIES, LIGHT

_SLOT = {r"\{thing\}": r"(?P<thing>\w+)", r"\{place\}": r"(?P<place>\w+)"}

Treated = Set[tuple[str, str]]
"""Pairs of a verb and the thing that had this treatment."""


def kind_of(name: str) -> str:
    """Return the kind in a name such as `mug 2`."""
    return name.partition(" ")[0]


class TaskRequirements(NamedTuple):
    """A task; kinds as in names, for example `sinkbasin`."""

    task_type: str
    thing: str
    place: str

    @property
    def verb(self) -> str:
        """The verb of the treatment that the object needs; empty if it needs none."""
        return FAMILIES[self.task_type].verb if self.task_type else ""

    @property
    def station(self) -> str:
        """The kind of receptacle for the treatment; empty if there is none."""
        return FAMILIES[self.task_type].station.lower() if self.task_type else ""

    @property
    def is_light(self) -> bool:
        """Whether the thing is to be looked at under a lamp, whose kind is then `place`."""
        return self.task_type == LIGHT

    def goes_to(self, place: str) -> bool:
        """Return whether things are to be brought to this receptacle."""
        return not self.is_light and kind_of(place) == self.place

    def is_ready(self, thing: str, treated: Treated) -> bool:
        """Return whether a thing has had the treatment that is asked for, if any."""
        return not self.verb or (self.verb, thing) in treated

    def is_done(self, thing: str, place: str, treated: Treated) -> bool:
        """Return whether a thing is one that is wanted, and lies where it belongs as it should be."""
        return kind_of(thing) == self.thing and self.goes_to(place) and self.is_ready(thing, treated)


@lru_cache(maxsize=1024)
def read_task(sentence: str) -> TaskRequirements | None:
    """Return what a task in ALFWorld's own wording asks for; None for any other sentence."""
    for task_type, family in FAMILIES.items():
        for template in family.sentences:
            pattern = re.escape(template)
            for slot, group in _SLOT.items():
                pattern = pattern.replace(slot, group)
            found = re.fullmatch(pattern, sentence.strip())
            if found:
                return TaskRequirements(task_type, found["thing"], found["place"])
    return None
