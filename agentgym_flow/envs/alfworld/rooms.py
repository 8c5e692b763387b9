"""The contents of rooms: kinds of receptacles and objects, where objects lie, and what can be done with them.

The kinds, the traits, and which receptacle holds what are those of ALFWorld's games. The numbers are chosen so that
rooms are about as full as the official ones: a kitchen has about 33 receptacles and 54 objects, other rooms have about
15 and 28.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from agentgym_flow.envs.content import read_content

Counts = Mapping[str, tuple[int, ...]]
"""Kind -> the possible numbers of it, each equally likely (a number that is listed twice is twice as likely)."""


class Room(NamedTuple):
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


class ReceptacleKind(NamedTuple):
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


class ObjectKind(NamedTuple):
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
