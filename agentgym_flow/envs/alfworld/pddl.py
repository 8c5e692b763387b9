"""Read and write the problem of a game in PDDL: its things, the facts at the start, and the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agentgym_flow.envs.alfworld.domain import PREDICATES, TYPES
from agentgym_flow.envs.alfworld.syntax import Expression, Fail, error_at, parse, typed

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
    for index, name, kind in typed(section[1:]):
        if not isinstance(name, str) or name.startswith("?"):
            raise fail((at, index + 1), f"expected the name of an object, got {name!r}")
        if not isinstance(kind, str) or kind not in TYPES:
            raise fail((at, index + 1), f"{name} has the unknown type {kind!r}; known: {', '.join(sorted(TYPES))}")
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
    if predicate not in PREDICATES:
        return f"unknown predicate {predicate!r}; known: {', '.join(PREDICATES)}"
    wanted = PREDICATES[predicate]
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
                if not isinstance(name, str) or not name.startswith("?") or kind not in TYPES:
                    raise fail((*path, 1), "expected variables with known types, such as (?r - receptacle)")
            _check_formula(inner, (*path, 2), objects, bound | {name for name, _ in declared}, fail)
        case _:
            atom = _flat(node)
            if atom is None:
                raise fail(path, f"expected a formula, got {node!r:.60}")
            wanted = 2 if atom[0] == "=" else len(PREDICATES.get(atom[0], atom))
            if len(atom) - 1 != wanted:
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
