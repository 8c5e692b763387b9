"""Read the goal formula of a problem as one of the two forms in ALFWorld (goal library of version 0.4.2).

*Placed*: one or two objects of a kind, in a certain condition, are in one receptacle of a kind. *Lit*: the agent holds
an object of a kind at the place of a switched-on lamp of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_flow.envs.alfworld.syntax import Expression
from agentgym_flow.errors import BadGame

CONDITIONS = {"isclean": "cleanable", "ishot": "heatable", "iscool": "coolable", "issliced": "sliceable"}
"""Condition of an object -> the trait that it needs for it."""

_TASK_TYPE = {
    "isclean": "pick_clean_then_place_in_recep",
    "ishot": "pick_heat_then_place_in_recep",
    "iscool": "pick_cool_then_place_in_recep",
}

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six task types, in the order of ALFWorld's numbers 1 to 6."""


@dataclass(frozen=True, slots=True)
class ALFWorldGoal:
    """A goal in either form.

    Attributes:
        thing: the kind of object, for example `"appletype"`.
        place: the kind of its receptacle; None for *lit*.
        lamp: the kind of lamp; None for *placed*.
        count: the number of objects, 1 or 2.
        conditions: the conditions of each object, among `CONDITIONS`.
        traits: the traits that an object needs, for example `"heatable"`.
    """

    thing: str
    place: str | None
    lamp: str | None
    count: int
    conditions: frozenset[str]
    traits: frozenset[str]

    @property
    def task_type(self) -> str:
        """The type of the task, one of the six `TASK_TYPES`."""
        if self.lamp is not None:
            return "look_at_obj_in_light"
        if self.count == 2:
            return "pick_two_obj_and_place"
        return next((name for condition, name in _TASK_TYPE.items() if condition in self.conditions), TASK_TYPES[0])


class _Atom(NamedTuple):
    predicate: str
    arguments: tuple[str, ...]


def read_goal(goal: Expression, where: str) -> ALFWorldGoal:
    """Return the goal of a formula.

    Raises `BadGame` if it has neither form; `where` is the name of the file in the message.
    """
    atoms = set(_atoms(goal, {}, [0], where))
    read = _read_placed(atoms) or _read_lit(atoms)
    if read is None:
        listing = ", ".join(sorted(" ".join((atom.predicate, *atom.arguments)) for atom in atoms))
        raise BadGame(
            f"{where}: the goal is not one of ALFWorld's goals ({listing}); their forms are in "
            "agentgym_flow.envs.alfworld.goal"
        )
    return read


def _atoms(node: Expression, names: dict[str, str], counter: list[int], where: str) -> Iterator[_Atom]:
    """Yield the atoms of a conjunction of existential formulas, with unique names for all variables."""
    if isinstance(node, str) or not node:
        raise BadGame(f"{where}: the goal has {node!r} instead of a formula")
    head, *rest = node
    if head == "and":
        for part in rest:
            yield from _atoms(part, names, counter, where)
    elif head == "exists" and len(rest) == 2 and not isinstance(rest[0], str):
        counter[0] += 1
        bound = [word for word in rest[0] if isinstance(word, str) and word.startswith("?")]
        yield from _atoms(rest[1], names | {name: f"{name}{counter[0]}" for name in bound}, counter, where)
    elif head == "not" and len(rest) == 1 and not isinstance(rest[0], str) and rest[0][:1] == ("=",):
        yield _Atom("differ", tuple(sorted(names.get(str(word), str(word)) for word in rest[0][1:])))
    elif isinstance(head, str) and head not in ("or", "not", "forall", "imply", "exists"):
        yield _Atom(head, tuple(names.get(str(word), str(word)) for word in rest))
    else:
        raise BadGame(f"{where}: the goal has {head!r}, which no goal of ALFWorld has")


def _read_placed(atoms: set[_Atom]) -> ALFWorldGoal | None:
    pairs = sorted(atom.arguments for atom in atoms if atom.predicate == "inreceptacle")
    things = [pair[0] for pair in pairs]
    if not pairs or len(things) > 2 or len({pair[1] for pair in pairs}) != 1:
        return None
    place = pairs[0][1]
    kind = _kind(atoms, "receptacletype", place)
    described = [_description(atoms, thing) for thing in things]
    if kind is None or None in described or len(set(described)) != 1:
        return None
    used = {_Atom("inreceptacle", pair) for pair in pairs} | {_Atom("receptacletype", (place, kind))}
    if len(things) == 2:
        used.add(_Atom("differ", tuple(things)))
    thing = described[0]
    if thing is None or used | _used_by(things, thing) != atoms:
        return None
    return ALFWorldGoal(thing.kind, kind, None, len(things), thing.conditions, thing.traits)


def _read_lit(atoms: set[_Atom]) -> ALFWorldGoal | None:
    held = [atom.arguments for atom in atoms if atom.predicate == "holds"]
    lamps = [atom.arguments for atom in atoms if atom.predicate == "istoggled"]
    inside = [atom.arguments for atom in atoms if atom.predicate == "inreceptacle"]
    standing = [atom.arguments for atom in atoms if atom.predicate == "atlocation"]
    if not len(held) == len(lamps) == len(inside) == len(standing) == 1:
        return None
    [(_, thing)], [(lamp,)] = held, lamps
    lamp_kind, described = _kind(atoms, "objecttype", lamp), _description(atoms, thing)
    if lamp_kind is None or described is None:
        return None
    place, spot = inside[0][1], standing[0][1]
    used = {
        _Atom("holds", held[0]),
        _Atom("istoggled", (lamp,)),
        _Atom("toggleable", (lamp,)),
        _Atom("objecttype", (lamp, lamp_kind)),
        _Atom("inreceptacle", (lamp, place)),
        _Atom("receptacleatlocation", (place, spot)),
        _Atom("atlocation", standing[0]),
    }
    if used | _used_by([thing], described) != atoms:
        return None
    return ALFWorldGoal(described.kind, None, lamp_kind, 1, described.conditions, described.traits)


class _Description(NamedTuple):
    kind: str
    conditions: frozenset[str]
    traits: frozenset[str]


def _description(atoms: set[_Atom], thing: str) -> _Description | None:
    kind = _kind(atoms, "objecttype", thing)
    said = {atom.predicate for atom in atoms if atom.arguments == (thing,)}
    conditions, traits = said & set(CONDITIONS), said & set(CONDITIONS.values())
    return None if kind is None else _Description(kind, frozenset(conditions), frozenset(traits))


def _used_by(things: list[str], described: _Description) -> set[_Atom]:
    """Return the atoms that describe `things`."""
    kinds = {_Atom("objecttype", (thing, described.kind)) for thing in things}
    return kinds | {_Atom(name, (thing,)) for thing in things for name in described.conditions | described.traits}


def _kind(atoms: set[_Atom], predicate: str, of: str) -> str | None:
    found = [
        atom.arguments[1]
        for atom in atoms
        if atom.predicate == predicate and len(atom.arguments) == 2 and atom.arguments[0] == of
    ]
    return found[0] if len(found) == 1 else None
