"""Read the requirements of a task from its sentence."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import FAMILIES, LIGHT

_PATTERNS = [
    (task_type, re.compile(re.escape(sentence).replace(r"\{thing\}", r"(\w+)").replace(r"\{place\}", r"(\w+)")))
    for task_type, family in FAMILIES.items()
    for sentence in family.sentences
]

Treated = Set[tuple[str, str]]
"""Pairs of a verb and the thing with this treatment."""


def kind_of(name: str) -> str:
    """Return the kind in a name such as `mug 2`."""
    return name.partition(" ")[0]


class TaskRequirements(NamedTuple):
    """A task, with kinds as in names, for example `sinkbasin`."""

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
        """Whether the task is to look at the thing under a lamp of the kind `place`."""
        return self.task_type == LIGHT

    def goes_to(self, place: str) -> bool:
        """Return whether a receptacle is a destination."""
        return not self.is_light and kind_of(place) == self.place

    def is_ready(self, thing: str, treated: Treated) -> bool:
        """Return whether a thing has had the required treatment, if any."""
        return not self.verb or (self.verb, thing) in treated

    def is_done(self, thing: str, place: str, treated: Treated) -> bool:
        """Return whether a thing is of the wanted kind, treated, and at its destination."""
        return kind_of(thing) == self.thing and self.goes_to(place) and self.is_ready(thing, treated)


@lru_cache(maxsize=1024)
def read_task(sentence: str) -> TaskRequirements | None:
    """Return the requirements of a task in ALFWorld's own wording; None for any other sentence."""
    for task_type, pattern in _PATTERNS:
        if found := pattern.fullmatch(sentence.strip()):
            return TaskRequirements(task_type, *found.groups())
    return None
