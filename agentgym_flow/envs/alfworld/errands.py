"""The tasks of generated games: the possible pairs of object and destination, their sentences and goal formulas.

The six task types with their sentences and goals are ALFWorld's (goal library of version 0.4.2), so that the original
engine and published prompts understand the games.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.rooms import LAMPS, MAY_LIE, OBJECTS, RECEPTACLES, ROOMS
from agentgym_flow.envs.alfworld.syntax import Expression, parse
from agentgym_flow.envs.content import read_content

LIGHT = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"


class TaskFamily(NamedTuple):
    """One of ALFWorld's six task types.

    Attributes:
        share: the number of its games among the official training games.
        rooms: the kinds of rooms in which it is set, each equally likely.
        sentences: two wordings of the task, with `{thing}` and `{place}`.
        descriptions: two descriptions in the style of ALFRED's human annotations.
        goal: the goal formula in PDDL, with the types `{thing}` and `{place}`.
        verb: the treatment of the object on the way: `"clean"`, `"heat"`, `"cool"`, or empty.
        station: the kind of receptacle where the treatment is possible.
        trait: the trait that an object needs for the treatment.
    """

    share: int
    rooms: tuple[str, ...]
    sentences: tuple[str, ...]
    descriptions: tuple[str, ...]
    goal: str
    verb: str = ""
    station: str = ""
    trait: str = ""


FAMILIES: dict[str, TaskFamily] = read_content("agentgym_flow.envs.alfworld", "families.json", dict[str, TaskFamily])
"""Task type -> its description, in the order of ALFWorld's numbers 1 to 6."""


class Errand(NamedTuple):
    """The task of one game.

    Attributes:
        task_type: one of ALFWorld's six.
        room: the kind of room in which it is set.
        thing: the kind of object.
        place: the kind of receptacle where it goes, or the kind of lamp under which it is looked at.
        wording: which of the two sentences states it, 0 or 1.
    """

    task_type: str
    room: str
    thing: str
    place: str
    wording: int

    @property
    def family(self) -> TaskFamily:
        """The task type's sentences, goal and treatment."""
        return FAMILIES[self.task_type]

    @property
    def needed(self) -> int:
        """The number of objects that the task needs."""
        return 2 if self.task_type == TWO else 1

    @property
    def barred(self) -> str | None:
        """The kind of receptacle in which the object never starts, because it would be at its destination."""
        return None if self.task_type == LIGHT else self.place

    @property
    def sentence(self) -> str:
        """The task as the player reads it."""
        return self.family.sentences[self.wording].format(thing=self.thing.lower(), place=self.place.lower())

    def goal(self) -> Expression:
        """Return the goal formula."""
        return _goal(self.task_type, type_name(self.thing), type_name(self.place))


@cache
def _goal(task_type: str, thing: str, place: str) -> Expression:
    return parse(FAMILIES[task_type].goal.format(thing=thing, place=place), "goal")


def type_name(kind: str) -> str:
    """Return the name of a kind in facts and goals, for example `"countertoptype"`."""
    return f"{kind.lower()}type"


@cache
def errands(task_type: str, room: str) -> Mapping[str, tuple[str, ...]]:
    """Return the errands of a type in a kind of room: object -> the receptacles (or lamps) where it can go.

    The object can start elsewhere and has the trait for the treatment. Its destination is not the treatment's station.
    """
    receptacles, found = ROOMS[room].receptacles, {}
    family = FAMILIES[task_type]
    fits = 2 if task_type == TWO else 1
    for thing in sorted(ROOMS[room].objects):
        starts = {place for place in MAY_LIE[thing] if place in receptacles}
        if family.trait and family.trait not in OBJECTS[thing].traits:
            continue
        destinations = [
            place
            for place in receptacles
            if thing in RECEPTACLES[place].holds and RECEPTACLES[place].space >= fits and place != family.station
        ]
        places = LAMPS if task_type == LIGHT else destinations
        if open_places := tuple(place for place in places if starts - {place}):
            found[thing] = open_places
    return found
