"""Rooms as a player sees them: their contents, the errands that are possible there, and the layout of a game.

The kinds, the traits, and which receptacle holds what are those of ALFWorld's games. The numbers are chosen so that
rooms are about as full as the official ones: a kitchen has about 33 receptacles and 54 objects, other rooms have about
15 and 28.

The six task types with their sentences and goals are ALFWorld's (goal library of version 0.4.2), so that the original
engine and published prompts understand the games.

A layout has kinds and numbers of things and places, but no coordinates. It is drawn in two steps: first the plan (the
receptacles, and which of them share a spot), then the contents. Each step can be repeated until its result belongs to
the required split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import NamedTuple

from agentgym_flow._util.values import Content, read_content
from agentgym_flow.core import Stream, stable_hash
from agentgym_flow.envs.alfworld.domain import Expression, parse

Counts = Mapping[str, tuple[int, ...]]
"""Kind -> the possible numbers of it, each equally likely (a number that is listed twice is twice as likely)."""


class Room(Content, frozen=True):
    """A kind of room.

    Attributes:
        receptacles: furniture in which and on which things lie.
        objects: what lies there.
        fixtures: other things in the room, most of which cannot be picked up.
        size: width and depth of the floor, in quarter metres.
    """

    receptacles: Counts
    objects: Counts
    fixtures: Counts
    size: tuple[int, int]


class ReceptacleKind(Content, frozen=True):
    """A kind of receptacle.

    Attributes:
        holds: the kinds of objects that can be put there, sorted.
        weight: how often something lies there when a game starts, relative to other kinds.
        space: the largest number of things that lie there when a game starts.
        openable: whether it has a door or the like, which is shut when a game starts.
    """

    holds: tuple[str, ...]
    weight: int
    space: int
    openable: bool = False


class ObjectKind(Content, frozen=True):
    """A kind of object.

    Attributes:
        traits: the predicates that are true of it, such as `"pickupable"`.
        holds: the kinds of objects that it can contain.
        stands_on: for objects that no receptacle accepts: the receptacles in or on which they are found.
    """

    traits: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    stands_on: tuple[str, ...] = ()


_read = partial(read_content, "agentgym_flow.envs.alfworld")

ROOMS: dict[str, Room] = _read("rooms.json", dict[str, Room])

RECEPTACLES: dict[str, ReceptacleKind] = _read("receptacles.json", dict[str, ReceptacleKind])
"""All kinds of receptacles, sorted."""

OBJECTS: dict[str, ObjectKind] = _read("objects.json", dict[str, ObjectKind])
"""All kinds of objects, sorted."""

LAMPS = tuple(name for name, kind in OBJECTS.items() if "toggleable" in kind.traits)

MAY_LIE: dict[str, tuple[str, ...]] = {
    name: kind.stands_on or tuple(place for place, receptacle in RECEPTACLES.items() if name in receptacle.holds)
    for name, kind in OBJECTS.items()
}
"""Object -> the receptacles where it can be when a game starts; none if it stands on the floor or hangs on a wall."""


# ---------------------------------------------------------------- errands
LIGHT = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"


class TaskFamily(Content, frozen=True):
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


FAMILIES: dict[str, TaskFamily] = _read("families.json", dict[str, TaskFamily])
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


# ---------------------------------------------------------------- layouts
_SHARES_A_SPOT = 12
"""One in this number of receptacles is at the spot of another one."""

_HOLDS_SOMETHING = 8
"""One in this number of containers next to a fitting object contains it."""

_TRIES = 3
"""The number of places drawn for an object; if all are full, the object is left out."""


class FloorPlan(NamedTuple):
    """The receptacles of a room.

    Attributes:
        receptacles: the kind of each.
        spots: the number of the spot from which each is reached.
    """

    receptacles: tuple[str, ...]
    spots: tuple[int, ...]

    def digest(self) -> str:
        """Return the SHA-256, in hex, of the plan, independent of the order of spots and receptacles."""
        return _digest(self, [(kind, ()) for kind in self.receptacles])


class FurnishedRoom(NamedTuple):
    """A furnished room.

    Attributes:
        plan: the receptacles.
        contents: the kinds of objects in each receptacle, sorted.
        nested: the objects in containers: (receptacle, index of the object, index of the container), both within the
            contents of the receptacle.
        loose: the kinds of objects that are in no receptacle, sorted.
    """

    plan: FloorPlan
    contents: tuple[tuple[str, ...], ...]
    nested: tuple[tuple[int, int, int], ...]
    loose: tuple[str, ...]

    def digest(self) -> str:
        """Return the SHA-256, in hex, of the contents, independent of the order of spots and receptacles."""
        return _digest(self.plan, zip(self.plan.receptacles, self.contents, strict=True))


def _digest(plan: FloorPlan, receptacles: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """Hash a room as a multiset of spots, each of which is a multiset of receptacles."""
    spots: list[list[tuple[str, tuple[str, ...]]]] = [[] for _ in range(max(plan.spots) + 1)]
    for spot, receptacle in zip(plan.spots, receptacles, strict=True):
        spots[spot].append(receptacle)
    return stable_hash(sorted(sorted(here) for here in spots))


def draw_plan(stream: Stream, errand: Errand) -> FloorPlan:
    """Draw the receptacles of a room in which the errand is possible."""
    numbers = {kind: stream.choice(counts) for kind, counts in ROOMS[errand.room].receptacles.items()}
    _make_possible(numbers, errand)
    receptacles = tuple(kind for kind, number in numbers.items() for _ in range(number))
    spots: list[int] = []
    used = 0
    for _ in receptacles:
        if used and stream.below(_SHARES_A_SPOT) == 0:
            spots.append(stream.choice(spots))
        else:
            spots.append(used)
            used += 1
    return FloorPlan(receptacles, tuple(spots))


def _make_possible(numbers: dict[str, int], errand: Errand) -> None:
    """Add the receptacles that the errand needs: its station, its destination, and space for its objects."""
    for kind in (errand.family.station, errand.barred):
        if kind:
            numbers[kind] = max(numbers[kind], 1)
    starts = [place for place in MAY_LIE[errand.thing] if place in numbers and place != errand.barred]
    roomiest = max(starts, key=lambda place: RECEPTACLES[place].space)
    while sum(numbers[place] * RECEPTACLES[place].space for place in starts) < errand.needed:
        numbers[roomiest] += 1


def furnish(stream: Stream, plan: FloorPlan, errand: Errand) -> FurnishedRoom:
    """Draw the objects in the receptacles of a plan."""
    where: dict[str, list[int]] = {}
    for index, kind in enumerate(plan.receptacles):
        where.setdefault(kind, []).append(index)
    most = [RECEPTACLES[kind].space for kind in plan.receptacles]
    contents: list[list[str]] = [[] for _ in plan.receptacles]
    loose: list[str] = []
    necessary = _necessary(errand)
    for kind, number in _wanted(stream, errand).items():
        tickets: list[int] = []  # every receptacle as often as its weight
        for place in MAY_LIE[kind]:
            if place in where and not (kind == errand.thing and place == errand.barred):
                tickets += where[place] * RECEPTACLES[place].weight
        if not tickets:
            loose += [kind] * number
            continue
        for done in range(number):
            place_of_it = _draw_place(stream, tickets, contents, most, done < necessary.get(kind, 0))
            if place_of_it is not None:
                contents[place_of_it].append(kind)
    ordered = tuple(tuple(sorted(things)) for things in contents)
    return FurnishedRoom(plan, ordered, _nest(stream, ordered, errand), tuple(sorted(loose)))


def _necessary(errand: Errand) -> dict[str, int]:
    """Return the number of objects of each kind that the errand needs, the lamp first, because it has fewer places."""
    lamp = {errand.place: 1} if errand.task_type == LIGHT else {}
    return {**lamp, errand.thing: errand.needed}


def _wanted(stream: Stream, errand: Errand) -> dict[str, int]:
    """Return the number of objects of each kind; those that the errand needs come first, while there is space."""
    room = ROOMS[errand.room]
    numbers = _necessary(errand)
    for kind, counts in (*room.objects.items(), *room.fixtures.items()):
        numbers[kind] = max(numbers.get(kind, 0), stream.choice(counts))
    return numbers


def _draw_place(
    stream: Stream, tickets: list[int], contents: list[list[str]], most: list[int], necessary: bool
) -> int | None:
    """Return a receptacle that is not full; None after `_TRIES` full ones, unless the object is `necessary`."""
    tries = 0
    while necessary or tries < _TRIES:
        index = stream.choice(tickets)
        if len(contents[index]) < most[index]:
            return index
        tries += 1
    return None


def _nest(stream: Stream, contents: tuple[tuple[str, ...], ...], errand: Errand) -> tuple[tuple[int, int, int], ...]:
    """Draw the objects that are in containers. The object of the errand is never in or around another object."""
    nested = []
    for index, things in enumerate(contents):
        taken: set[int] = set()
        for outer, container in enumerate(things):
            held = OBJECTS[container].holds
            if not held or container == errand.thing or outer in taken:
                continue
            fits = [
                inner
                for inner, thing in enumerate(things)
                if thing in held and thing != errand.thing and inner not in taken and inner != outer
            ]
            if fits and stream.below(_HOLDS_SOMETHING) == 0:
                inner = stream.choice(fits)
                taken |= {inner, outer}
                nested.append((index, inner, outer))
    return tuple(nested)
