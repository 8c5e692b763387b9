"""What the sentence of a task asks for, read as a player would read it."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import LIGHT, SENTENCES, TREATMENTS

_VERB = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}
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
    def treatment(self) -> tuple[str, str] | None:
        """The verb of the treatment that is asked for, and the kind of receptacle for it; None for no treatment."""
        found = TREATMENTS.get(self.task_type)
        return None if found is None else (_VERB[found.condition], found.station.lower())

    @property
    def is_light(self) -> bool:
        """Whether the thing is to be looked at under a lamp, whose kind is then `place`."""
        return self.task_type == LIGHT

    def goes_to(self, place: str) -> bool:
        """Return whether things are to be brought to this receptacle."""
        return not self.is_light and kind_of(place) == self.place

    def is_ready(self, thing: str, treated: Treated) -> bool:
        """Return whether a thing has had the treatment that is asked for, if any."""
        return self.treatment is None or (self.treatment[0], thing) in treated

    def is_done(self, thing: str, place: str, treated: Treated) -> bool:
        """Return whether a thing is one that is wanted, and lies where it belongs as it should be."""
        return kind_of(thing) == self.thing and self.goes_to(place) and self.is_ready(thing, treated)


@lru_cache(maxsize=1024)
def read_task(sentence: str) -> TaskRequirements | None:
    """Return what a task in ALFWorld's own wording asks for; None for any other sentence."""
    for task_type, templates in SENTENCES.items():
        for template in templates:
            pattern = re.escape(template)
            for slot, group in _SLOT.items():
                pattern = pattern.replace(slot, group)
            found = re.fullmatch(pattern, sentence.strip())
            if found:
                return TaskRequirements(task_type, found["thing"], found["place"])
    return None
