"""What an embedded game can ask for: every sensible errand, its sentence and its goal formula.

The six task types, their sentences and their goals are ALFWorld's (its goal library, version 0.4.2); the sentences and
goals decide what the real engine and published prompts make of our games.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from agentgym_flow.envs.alfworld.rooms import (
    CLEANABLE,
    COOLABLE,
    HEATABLE,
    HOLDS,
    LAMPS,
    MAY_LIE,
    OBJECT_KINDS,
    ROOMS,
    SPACE,
    TAKEABLE,
)

if TYPE_CHECKING:
    from agentgym_flow.envs.alfworld.pddl import Expression

LIGHT = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"


class Treatment(NamedTuple):
    """What is done to the object on its way: where, what it must be for that, and what it then is."""

    station: str
    suited: frozenset[str]
    trait: str
    condition: str


TREATMENTS: dict[str, Treatment] = {
    "pick_clean_then_place_in_recep": Treatment("SinkBasin", CLEANABLE, "cleanable", "isclean"),
    "pick_heat_then_place_in_recep": Treatment("Microwave", HEATABLE, "heatable", "ishot"),
    "pick_cool_then_place_in_recep": Treatment("Fridge", COOLABLE, "coolable", "iscool"),
}
"""Task type -> the treatment it asks for."""

SENTENCES: dict[str, tuple[str, str]] = {
    "pick_and_place_simple": ("put a {thing} in {place}.", "put some {thing} on {place}."),
    LIGHT: ("look at {thing} under the {place}.", "examine the {thing} with the {place}."),
    "pick_clean_then_place_in_recep": ("put a clean {thing} in {place}.", "clean some {thing} and put it in {place}."),
    "pick_heat_then_place_in_recep": ("put a hot {thing} in {place}.", "heat some {thing} and put it in {place}."),
    "pick_cool_then_place_in_recep": ("put a cool {thing} in {place}.", "cool some {thing} and put it in {place}."),
    TWO: ("put two {thing} in {place}.", "find two {thing} and put them in {place}."),
}
"""Task type -> its two sentences."""

ROOMS_OF: dict[str, tuple[str, ...]] = {
    "pick_and_place_simple": ("kitchen", "living", "bedroom", "bathroom"),
    LIGHT: ("living", "bedroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "kitchen", "kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
    TWO: ("kitchen", "living", "bedroom", "bathroom"),
}
"""Task type -> the rooms it is set in, each equally likely."""


class Errand(NamedTuple):
    """What one game asks for.

    Attributes:
        task_type: one of ALFWorld's six.
        room: the kind of room it is set in.
        thing: the kind of object.
        place: the kind of receptacle it goes to; the kind of lamp when it is to be looked at in the light.
        wording: which of the two sentences says it, 0 or 1.
    """

    task_type: str
    room: str
    thing: str
    place: str
    wording: int

    @property
    def needed(self) -> int:
        """How many objects of the kind it takes."""
        return 2 if self.task_type == TWO else 1

    @property
    def barred(self) -> str | None:
        """The kind of receptacle in which the object never starts, so that there is something to do."""
        return None if self.task_type == LIGHT else self.place

    @property
    def sentence(self) -> str:
        """The task as the player reads it."""
        return SENTENCES[self.task_type][self.wording].format(thing=self.thing.lower(), place=self.place.lower())

    def goal(self) -> Expression:
        """Return the goal formula."""
        if self.task_type == LIGHT:
            return _lit(type_name(self.place), type_name(self.thing))
        if self.task_type == TWO:
            return _two_placed(type_name(self.thing), type_name(self.place))
        return _placed(TREATMENTS.get(self.task_type), type_name(self.thing), type_name(self.place))


def type_name(kind: str) -> str:
    """Return the name of a kind in facts and goals, for example `"countertoptype"`."""
    return f"{kind.lower()}type"


@cache
def errands(task_type: str, room: str) -> Mapping[str, tuple[str, ...]]:
    """Return the errands of a type in a kind of room: object -> the receptacles (or lamps) it can be asked to go to.

    An object can start somewhere else than where it goes, is suited to the treatment, and is not brought to the very
    place where the treatment happens.
    """
    receptacles, found = ROOMS[room].receptacles, {}
    treatment = TREATMENTS.get(task_type)
    for thing in OBJECT_KINDS:
        starts = [place for place in MAY_LIE[thing] if place in receptacles]
        if thing not in TAKEABLE or thing not in ROOMS[room].objects or not starts:
            continue
        if treatment is not None and thing not in treatment.suited:
            continue
        places = LAMPS if task_type == LIGHT else _destinations(task_type, room, thing, treatment)
        open_places = tuple(place for place in places if set(starts) - {place})
        if open_places:
            found[thing] = open_places
    return found


def _destinations(task_type: str, room: str, thing: str, treatment: Treatment | None) -> tuple[str, ...]:
    fits = 2 if task_type == TWO else 1
    return tuple(
        place
        for place in ROOMS[room].receptacles
        if thing in HOLDS[place] and SPACE[place][1] >= fits and (treatment is None or place != treatment.station)
    )


def _placed(treatment: Treatment | None, thing: str, place: str) -> Expression:
    atoms: tuple[Expression, ...] = (
        ("inreceptacle", "?o", "?r"),
        ("objecttype", "?o", thing),
        ("receptacletype", "?r", place),
    )
    if treatment is not None:
        atoms = ((treatment.trait, "?o"), *atoms[1:], (treatment.condition, "?o"), atoms[0])
    return ("and", _exists(("?r", "receptacle"), body=_exists(("?o", "object"), body=("and", *atoms))))


def _two_placed(thing: str, place: str) -> Expression:
    def lies(name: str) -> tuple[Expression, ...]:
        return (("objecttype", name, thing), ("receptacletype", "?r", place), ("inreceptacle", name, "?r"))

    other = _exists(("?o2", "object"), body=("and", ("not", ("=", "?o1", "?o2")), *lies("?o2")))
    one = _exists(("?o1", "object"), body=("and", *lies("?o1"), other))
    return ("and", _exists(("?r", "receptacle"), body=one))


def _lit(lamp: str, thing: str) -> Expression:
    shining: Expression = (
        "and",
        ("objecttype", "?ot", lamp),
        ("toggleable", "?ot"),
        ("istoggled", "?ot"),
        ("receptacleatlocation", "?r", "?l"),
        ("atlocation", "?a", "?l"),
        ("inreceptacle", "?ot", "?r"),
    )
    held: Expression = ("and", ("objecttype", "?o", thing), ("holds", "?a", "?o"))
    return (
        "and",
        _exists(("?ot", "object"), ("?r", "receptacle"), ("?a", "agent"), ("?l", "location"), body=shining),
        _exists(("?o", "object"), ("?a", "agent"), body=held),
    )


def _exists(*variables: tuple[str, str], body: Expression) -> Expression:
    return ("exists", tuple(word for name, kind in variables for word in (name, "-", kind)), body)
