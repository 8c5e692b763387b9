"""A workflow and a run of it, read from plain data such as Canvas puts into `info["workflow"]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym_flow.errors import BadSetting

ROLES = ("planner", "solver", "checker", "reviser", "ensemble")
"""The roles that have a colour, in the order of the legend."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator; `instruction` is empty for the default, `role` may be one without a colour."""

    id: str
    name: str
    role: str
    instruction: str


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branches that start from the same result."""

    id: str
    branches: tuple[Chain, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """A check, and what runs when it passes and when it fails; either may be empty."""

    id: str
    check: Operator
    passed: Chain
    failed: Chain


@dataclass(frozen=True, slots=True)
class Loop:
    """A chain that runs `count` times."""

    id: str
    body: Chain
    count: int


Node: TypeAlias = Operator | Parallel | Conditional | Loop
Chain: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator in a run; `passed` is None without a verdict."""

    ok: bool
    passed: bool | None
    influential: bool
    notes: str


Calls: TypeAlias = Mapping[str, Sequence[Call]]
"""The calls of a run by the place that was called; a place that did not run is not there."""


def read_graph(graph: Sequence[Mapping[str, Any]]) -> Chain:
    """Return the chain that plain data says.

    Every node has `kind` and `id`; an `"operator"` has `name`, `role` and `instruction`, a `"parallel"` has `branches`,
    a `"conditional"` has `check`, `passed` and `failed`, a `"loop"` has `body` and `count`.

    Raises `BadSetting` when it is not like that.
    """
    return tuple(map(_node, graph))


def read_run(run: Sequence[Mapping[str, Any]]) -> Calls:
    """Return the calls that plain data says.

    Every call has `place`, `status` (`"ok"` or anything else), `passed`, `influential` and `notes`.

    Raises `BadSetting` when it is not like that.
    """
    calls: dict[str, list[Call]] = {}
    for plain in run:
        call = Call(
            ok=_taken(plain, "status", str) == "ok",
            passed=_taken(plain, "passed", bool | None),
            influential=_taken(plain, "influential", bool),
            notes=_taken(plain, "notes", str),
        )
        calls.setdefault(_taken(plain, "place", str), []).append(call)
    return calls


def operators(chain: Chain) -> list[Operator]:
    """Return the operators of a chain at any depth, in the order in which a workflow is written down."""
    found: list[Operator] = []
    for node in chain:
        match node:
            case Operator():
                found.append(node)
            case Parallel(_, branches):
                found += [operator for branch in branches for operator in operators(branch)]
            case Conditional(_, check, passed, failed):
                found += [check, *operators(passed), *operators(failed)]
            case Loop(_, body):
                found += operators(body)
    return found


def in_words(chain: Chain) -> str:
    """Return what a chain does as one phrase, for readers who do not see the picture."""
    return ", then ".join(map(_words, chain)) or "nothing"


def _words(node: Node) -> str:
    match node:
        case Operator(_, name):
            return name
        case Parallel(_, branches):
            return f"in parallel ({'; '.join(map(in_words, branches))})"
        case Conditional(_, check, passed, failed):
            return f"{check.name} (if it passes {in_words(passed)}; if it fails {in_words(failed)})"
        case Loop(_, body, count):
            return f"{count} times ({in_words(body)})"


def _node(plain: Mapping[str, Any]) -> Node:
    own = _taken(plain, "id", str)
    match _taken(plain, "kind", str):
        case "operator":
            return Operator(own, *(_taken(plain, name, str) for name in ("name", "role", "instruction")))
        case "parallel":
            return Parallel(own, tuple(map(read_graph, _taken(plain, "branches", Sequence))))
        case "conditional":
            check = _node(_taken(plain, "check", Mapping))
            if not isinstance(check, Operator):
                raise BadSetting("the check of a conditional is an operator")
            cases = (read_graph(_taken(plain, case, Sequence)) for case in ("passed", "failed"))
            return Conditional(own, check, *cases)
        case "loop":
            return Loop(own, read_graph(_taken(plain, "body", Sequence)), _taken(plain, "count", int))
        case other:
            raise BadSetting(f"there is no kind of node {other[:40]!a}: operator, parallel, conditional, loop")


def _taken(plain: Any, name: str, kind: Any) -> Any:
    if not isinstance(plain, Mapping) or name not in plain or not isinstance(plain[name], kind):
        known = kind if not isinstance(kind, type) else kind.__name__
        raise BadSetting(f"no workflow or run as plain data: {name!r} of type {known} is missing in {plain!r:.80}")
    return plain[name]
