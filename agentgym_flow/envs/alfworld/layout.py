"""The layout of a generated game as a player sees it: kinds and numbers of things and places, without coordinates.

A layout is drawn in two steps: first the plan (the receptacles, and which of them share a spot), then the contents.
Each step can be repeated until its result belongs to the required split.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentgym_flow.core import Stream, stable_hash
from agentgym_flow.envs.alfworld.errands import LIGHT, Errand
from agentgym_flow.envs.alfworld.rooms import MAY_LIE, OBJECTS, RECEPTACLES, ROOMS

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
