"""Create the files of a game from its layout: the problem, with ids as in official games, and `traj_data.json`.

The `traj_data.json` contains what text games need: the task type and its parameters (for ALFWorld's collector and its
handcoded expert), descriptions in the style of the human annotations, and the high-level plan. It has no scene, images
or low-level actions, because THOR cannot simulate these rooms.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld.problem import PDDLProblem
from agentgym_flow.envs.alfworld.rooms import LIGHT, OBJECTS, RECEPTACLES, ROOMS, Errand, FurnishedRoom, type_name

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


# ---------------------------------------------------------------- traj_data.json
_STEPS = {
    "GotoLocation": "Walk to the {}.",
    "PickupObject": "Pick up the {}.",
    "CleanObject": "Rinse the {}.",
    "HeatObject": "Heat the {}.",
    "CoolObject": "Chill the {}.",
    "PutObject": "Put the {} down at the {}.",
    "ToggleObject": "Turn on the {}.",
}
_WORD_ENDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def trial_folder(errand: Errand, trial: str) -> str:
    """Return the folder of a game below its split, named as in the official data, with the kind of room as scene."""
    return f"{errand.task_type}-{errand.thing}-None-{errand.place}-{errand.room}/{trial}"


def trajectory_json(errand: Errand, layout: FurnishedRoom, trial: str) -> dict[str, Any]:
    """Return the contents of the `traj_data.json` of a generated game.

    Args:
        errand: the errand of the game.
        layout: its furnished room.
        trial: the name of its folder, for example `"trial_train_17"`.
    """
    light = errand.task_type == LIGHT
    steps = _steps(errand, layout)
    described = [
        sentence.format(thing=_spaced(errand.thing), place=_spaced(errand.place))
        for sentence in errand.family.descriptions
    ]
    in_words = [_STEPS[action].format(*map(_spaced, arguments)) for action, arguments in steps]
    plan = [(action, [argument.lower() for argument in arguments]) for action, arguments in steps]
    return {
        "task_id": trial,
        "task_type": errand.task_type,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": errand.thing,
            "parent_target": "" if light else errand.place,
            "toggle_target": errand.place if light else "",
        },
        "turk_annotations": {
            "anns": [
                {"assignment_id": f"generated_{number}", "task_desc": text, "high_descs": in_words, "votes": [1]}
                for number, text in enumerate(described)
            ]
        },
        "plan": {
            "high_pddl": [
                {"high_idx": index, "discrete_action": {"action": action, "args": arguments}}
                for index, (action, arguments) in enumerate([*plan, ("NoOp", [])])
            ],
            "low_actions": [],
        },
    }


def _steps(errand: Errand, layout: FurnishedRoom) -> list[tuple[str, list[str]]]:
    """Return the steps of the high-level plan: actions with kinds as arguments."""
    starts = [
        place
        for place, things in zip(layout.plan.receptacles, layout.contents, strict=True)
        for thing in things
        if thing == errand.thing
    ]
    steps: list[tuple[str, list[str]]] = []
    for start in starts[: errand.needed]:
        steps += [("GotoLocation", [start]), ("PickupObject", [errand.thing])]
        if verb := errand.family.verb:
            steps += [("GotoLocation", [errand.family.station]), (f"{verb.capitalize()}Object", [errand.thing])]
        last = (
            ("ToggleObject", [errand.place])
            if errand.task_type == LIGHT
            else ("PutObject", [errand.thing, errand.place])
        )
        steps += [("GotoLocation", [errand.place]), last]
    return steps


def _spaced(kind: str) -> str:
    return _WORD_ENDS.sub(" ", kind).lower()
