"""Create the problem of a game from its layout: ids with coordinates as in official games, and the initial facts."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld.errands import Errand, type_name
from agentgym_flow.envs.alfworld.grammar import Words
from agentgym_flow.envs.alfworld.layout import FurnishedRoom
from agentgym_flow.envs.alfworld.pddl import PDDLProblem
from agentgym_flow.envs.alfworld.rooms import OBJECTS, RECEPTACLES, ROOMS

Fact = tuple[str, ...]

AGENT = "agent1"
"""The id of the agent."""

_CAN_CONTAIN = {
    place: tuple((thing, ("cancontain", type_name(place), type_name(thing))) for thing in kind.holds)
    for place, kind in RECEPTACLES.items()
}
_KINDS = {
    **{type_name(kind): "otype" for kind in OBJECTS},  # declared in every game because the rules name some of them
    **{type_name(kind): "rtype" for kind in RECEPTACLES},
}
_PART_OF = {"SinkBasin": "sink", "BathtubBasin": "bathtub"}

_HORIZONS = ("0", "15", "30", "45", "60", "60", "_minus_30")
_REACH = 75  # the maximum distance of a receptacle from its spot, in centimetres along each axis
_HEIGHT = 200
_NEAR = 30  # the maximum distance of a thing from the centre of its receptacle
_ABOVE = 20


class _Point(NamedTuple):
    """Centimetres: to the right, up, ahead."""

    x: int
    y: int
    z: int


def make_problem(stream: Stream, layout: FurnishedRoom, errand: Errand, name: str) -> PDDLProblem:
    """Return the problem of an errand in a furnished room.

    The coordinates are drawn from `stream`. They decide the order of ids and thus the numbers in names. The agent
    starts at a spot without receptacles.
    """
    return _GameBuilder(stream, layout, errand).problem(name)


class _GameBuilder:
    def __init__(self, stream: Stream, layout: FurnishedRoom, errand: Errand) -> None:
        self.stream = stream
        self.layout = layout
        self.errand = errand
        self.objects: dict[str, str] = {AGENT: "agent", **_KINDS}
        self.width, self.depth = ROOMS[errand.room].size
        self.cells: set[int] = set()

    def problem(self, name: str) -> PDDLProblem:
        plan = self.layout.plan
        spots = [self._spot() for _ in range(max(plan.spots) + 1)]
        facts: list[Fact] = []
        for index, kind in enumerate(plan.receptacles):
            cell, spot = spots[plan.spots[index]]
            middle = self._beside(cell)
            place = self._new_id(kind, middle, "receptacle")
            facts += [("receptacletype", place, type_name(kind)), ("receptacleatlocation", place, spot)]
            facts += [("openable", place)] if RECEPTACLES[kind].openable else []
            facts += self._things(index, place, spot, middle)
        for kind in self.layout.loose:
            cell, spot = self._spot()
            facts += _facts_of(kind, self._new_id(kind, self._beside(cell), "object"), spot)
        facts += self._can_contain()
        facts.append(("atlocation", AGENT, self._spot()[1]))
        return PDDLProblem(self.objects, tuple(facts), self.errand.goal(), name)

    def _spot(self) -> tuple[int, str]:
        """Return an unused cell of the floor, and the id of the location there."""
        cell = self.stream.below(self.width * self.depth)
        while cell in self.cells:
            cell = self.stream.below(self.width * self.depth)
        self.cells.add(cell)
        x, z = self._steps(cell)
        turn = self.stream.below(4)
        name = f"loc_bar_{_whole(x)}_bar_{_whole(z)}_bar_{turn}_bar_{self.stream.choice(_HORIZONS)}"
        self.objects[name] = "location"
        return cell, name

    def _steps(self, cell: int) -> tuple[int, int]:
        """Return a cell's coordinates in quarter metres; the middle of the room is at (0, 0)."""
        return cell % self.width - self.width // 2, cell // self.width - self.depth // 2

    def _beside(self, cell: int) -> _Point:
        x, z = self._steps(cell)
        reach = 2 * _REACH + 1
        offset, height = divmod(self.stream.below(reach * reach * _HEIGHT), _HEIGHT)
        return _Point(25 * x + offset % reach - _REACH, height, 25 * z + offset // reach - _REACH)

    def _things(self, index: int, place: str, spot: str, middle: _Point) -> list[Fact]:
        """Return the facts about the contents of a receptacle."""
        facts: list[Fact] = []
        things = []
        side = 2 * _NEAR + 1
        for kind in self.layout.contents[index]:
            offset, above = divmod(self.stream.below(side * side * _ABOVE), _ABOVE)
            x, z = offset % side - _NEAR, offset // side - _NEAR
            thing = self._new_id(kind, _Point(middle.x + x, middle.y + above, middle.z + z), "object")
            things.append(thing)
            facts += _facts_of(kind, thing, spot)
            facts.append(("inreceptacle", thing, place))
        facts += [
            ("inreceptacleobject", things[inner], things[outer])
            for receptacle, inner, outer in self.layout.nested
            if receptacle == index
        ]
        return facts

    def _new_id(self, kind: str, point: _Point, declared_as: str) -> str:
        """Declare an object or receptacle and return its id; its height is increased until the id is unique."""
        word = _PART_OF.get(kind, kind.lower())
        part = f"_bar_{kind.lower()}" if kind in _PART_OF else ""
        while True:
            name = f"{word}_bar_{_metres(point.x)}_bar_{_metres(point.y)}_bar_{_metres(point.z)}{part}"
            if name not in self.objects:
                self.objects[name] = declared_as
                return name
            point = point._replace(y=point.y + 1)

    def _can_contain(self) -> list[Fact]:
        present = {kind for kinds in (*self.layout.contents, self.layout.loose) for kind in kinds}
        return [
            fact
            for place in dict.fromkeys(self.layout.plan.receptacles)
            for thing, fact in _CAN_CONTAIN[place]
            if thing in present
        ]


def _facts_of(kind: str, thing: str, spot: str) -> list[Fact]:
    return [
        ("objecttype", thing, type_name(kind)),
        *((trait, thing) for trait in OBJECTS[kind].traits),
        ("objectatlocation", thing, spot),
    ]


def _whole(number: int) -> str:
    return f"_minus_{-number}" if number < 0 else str(number)


@cache
def _metres(centimetres: int) -> str:
    whole, rest = divmod(abs(centimetres), 100)
    sign = "" if centimetres == 0 else "_minus_" if centimetres < 0 else "_plus_"
    return f"{sign}{whole:02}_dot_{rest:02}"


def words_of(errand: Errand) -> Words:
    """Return the sentences of current games, with the task of this errand."""
    return Words.current(errand.sentence)
