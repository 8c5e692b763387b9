"""The problem of a game: its things, the facts at the start, and the goal; and the PDDL in which it is written.

A goal has one of the two forms in ALFWorld (goal library of version 0.4.2). *Placed*: one or two objects of a kind, in
a certain condition, are in one receptacle of a kind. *Lit*: the agent holds an object of a kind at the place of a
switched-on lamp of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from agentgym_flow.envs.alfworld.domain import Expression, Fail, error_at, known_domain, parse, typed
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

_SECTIONS = (":domain", ":requirements", ":objects", ":init", ":goal", ":metric")  # in the order of Fast Downward
_REQUIRED = (":domain", ":init", ":goal")


@dataclass(frozen=True, slots=True)
class PDDLProblem:
    """A problem of the domain in `alfred.pddl`. All words are lower case.

    Attributes:
        objects: id -> type, in file order.
        facts: the facts at the start, each (predicate, argument, ...), in file order; without numeric facts.
        goal: the goal formula.
        name: the problem's name.
    """

    objects: Mapping[str, str]
    facts: tuple[tuple[str, ...], ...]
    goal: Expression
    name: str


# ---------------------------------------------------------------- PDDL
def read_problem(text: str, where: str) -> PDDLProblem:
    """Return the problem in a PDDL text.

    Args:
        text: PDDL.
        where: the name of the file, for error messages.

    Raises:
        BadGame: the text is not PDDL, or does not fit the domain; the message names the line.
    """
    root = parse(text, where)
    fail = partial(error_at, text, where)
    match root:
        case ("define", ("problem", str(name)), *rest):
            sections = _sections(rest, fail)
        case _:
            raise fail((), "expected (define (problem NAME) ...)")
    at, section = sections[":domain"]
    if section != (":domain", "alfred"):
        raise fail((at,), "expected (:domain alfred)")
    objects = _read_objects(*sections[":objects"], fail) if ":objects" in sections else {}
    facts = _read_facts(*sections[":init"], objects, fail)
    at, section = sections[":goal"]
    if len(section) != 2:
        raise fail((at,), "expected one formula in (:goal ...)")
    _check_formula(section[1], (at, 1), objects, frozenset(), fail)
    return PDDLProblem(objects, facts, section[1], name)


def _sections(entries: Sequence[Expression], fail: Fail) -> dict[str, tuple[int, tuple[Expression, ...]]]:
    """Return every section with its index."""
    sections: dict[str, tuple[int, tuple[Expression, ...]]] = {}
    last = -1
    for index, entry in enumerate(entries, 2):
        head = entry[0] if isinstance(entry, tuple) and entry else entry
        if isinstance(entry, str) or head not in _SECTIONS:
            raise fail((index,), f"unknown section {head!r}; known: {', '.join(_SECTIONS)}")
        rank = _SECTIONS.index(head)
        if rank <= last:
            raise fail(
                (index,), f"{head} comes after {_SECTIONS[last]}; the order is {', '.join(_SECTIONS)}, each once"
            )
        last = rank
        sections[_SECTIONS[rank]] = (index, entry)
    for name in _REQUIRED:
        if name not in sections:
            raise fail((), f"the section {name} is missing")
    return sections


def _read_objects(at: int, section: Sequence[Expression], fail: Fail) -> dict[str, str]:
    objects: dict[str, str] = {}
    types = known_domain()["type"]
    for index, name, kind in typed(section[1:]):
        if not isinstance(name, str) or name.startswith("?"):
            raise fail((at, index + 1), f"expected the name of an object, got {name!r}")
        if not isinstance(kind, str) or kind not in types:
            raise fail((at, index + 1), f"{name} has the unknown type {kind!r}; known: {', '.join(sorted(types))}")
        if name in objects:
            raise fail((at, index + 1), f"{name} is declared twice")
        objects[name] = kind
    return objects


def _read_facts(
    at: int, section: Sequence[Expression], objects: Mapping[str, str], fail: Fail
) -> tuple[tuple[str, ...], ...]:
    facts: list[tuple[str, ...]] = []
    seen_right: set[tuple[str | None, ...]] = set()  # valid combinations of predicate and types of arguments
    for index, node in enumerate(section):
        if index == 0 or node[:1] == ("=",):
            continue
        fact = _flat(node)
        if fact is None:
            raise fail((at, index), "a fact is a flat list such as (opened fridge1)")
        shape = (fact[0], *map(objects.get, fact[1:]))
        if shape not in seen_right:
            complaint = _misfit(fact, objects)
            if complaint:
                raise fail((at, index), complaint)
            seen_right.add(shape)
        facts.append(fact)
    return tuple(facts)


def _flat(node: Expression) -> tuple[str, ...] | None:
    if isinstance(node, str) or not node:
        return None
    words = tuple(word for word in node if isinstance(word, str))
    return words if len(words) == len(node) else None


def _misfit(fact: Sequence[str], objects: Mapping[str, str]) -> str | None:
    """Return an error message for a fact, or None."""
    predicate, *arguments = fact
    predicates = known_domain()["predicate"]
    if predicate not in predicates:
        return f"unknown predicate {predicate!r}; known: {', '.join(predicates)}"
    wanted = predicates[predicate].meaning
    if len(arguments) != len(wanted):
        return f"{predicate} takes {len(wanted)} argument(s), got {len(arguments)}"
    for argument, kind in zip(arguments, wanted, strict=True):
        if argument not in objects:
            return f"{argument!r} is not declared in :objects"
        # Everything has the type `object`, as in Fast Downward.
        if kind not in ("object", objects[argument]):
            return f"{predicate} takes a {kind} here, but {argument} is a {objects[argument]}"
    return None


def _check_formula(
    node: Expression, path: tuple[int, ...], objects: Mapping[str, str], bound: frozenset[Expression], fail: Fail
) -> None:
    """Check that a formula is well-formed with known predicates, bound variables and declared objects."""
    match node:
        case ("and" | "or" | "not" | "imply" as word, *parts):
            if len(parts) != {"not": 1, "imply": 2}.get(word, len(parts)):
                raise fail(path, f"{word!r} has a wrong number of parts")
            for index, part in enumerate(parts, 1):
                _check_formula(part, (*path, index), objects, bound, fail)
        case ("exists" | "forall", variables, inner) if isinstance(variables, tuple):
            declared = [(name, kind) for _, name, kind in typed(variables)]
            for name, kind in declared:
                if not isinstance(name, str) or not name.startswith("?") or kind not in known_domain()["type"]:
                    raise fail((*path, 1), "expected variables with known types, such as (?r - receptacle)")
            _check_formula(inner, (*path, 2), objects, bound | {name for name, _ in declared}, fail)
        case _:
            atom = _flat(node)
            if atom is None:
                raise fail(path, f"expected a formula, got {node!r:.60}")
            known = known_domain()["predicate"].get(atom[0])
            if len(atom) - 1 != (2 if atom[0] == "=" else len(known.meaning) if known else len(atom)):
                raise fail(path, f"{atom[0]!r} is not a predicate with {len(atom) - 1} argument(s)")
            for index, argument in enumerate(atom[1:], 1):
                if argument not in bound and argument not in objects:
                    raise fail((*path, index), f"{argument!r} is neither a variable in scope nor declared in :objects")


def write_problem(problem: PDDLProblem) -> str:
    """Return the PDDL text of a problem, one object or fact per line, which `read_problem` can read."""
    lines = [f"(define (problem {problem.name})", "(:domain alfred)", "(:objects"]
    lines += [f"    {name} - {kind}" for name, kind in problem.objects.items()]
    lines += [")", "(:init"]
    lines += [f"    ({' '.join(fact)})" for fact in problem.facts]
    lines += [")", f"(:goal {_text(problem.goal)})", ")", ""]
    return "\n".join(lines)


def _text(node: Expression) -> str:
    return node if isinstance(node, str) else f"({' '.join(map(_text, node))})"


# ---------------------------------------------------------------- the goal
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
            "agentgym_flow.envs.alfworld.problem"
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
