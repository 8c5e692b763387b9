"""Read a workflow and a run of it from plain data, such as Canvas's `info["workflow"]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym_flow.errors import BadSetting

ROLES = ("planner", "solver", "checker", "reviser", "ensemble")
"""The roles with a colour, in the order of the legend."""


@dataclass(frozen=True, slots=True)
class WorkflowOperator:
    """An operator. `instruction` is empty for the default; `role` may have no colour."""

    id: str
    name: str
    role: str
    instruction: str


@dataclass(frozen=True, slots=True)
class WorkflowParallel:
    """Branches with the same input."""

    id: str
    branches: tuple[Chain, ...]


@dataclass(frozen=True, slots=True)
class WorkflowConditional:
    """A check, and the chains that run if it passes or fails; either may be empty."""

    id: str
    check: WorkflowOperator
    passed: Chain
    failed: Chain


@dataclass(frozen=True, slots=True)
class WorkflowLoop:
    """A chain that runs `count` times."""

    id: str
    body: Chain
    count: int


Node: TypeAlias = WorkflowOperator | WorkflowParallel | WorkflowConditional | WorkflowLoop
Chain: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class WorkflowCall:
    """One call of an operator in a run. `passed` is None without a verdict."""

    ok: bool
    passed: bool | None
    influential: bool
    notes: str


Calls: TypeAlias = Mapping[str, Sequence[WorkflowCall]]
"""The calls of a run by the id of the operator. Operators that did not run are missing."""


def read_graph(graph: Sequence[Mapping[str, Any]]) -> Chain:
    """Return the chain described by plain data.

    Every node has `kind` and `id`; an `"operator"` has `name`, `role` and `instruction`, a `"parallel"` has `branches`,
    a `"conditional"` has `check`, `passed` and `failed`, a `"loop"` has `body` and `count`.

    Raises `BadSetting` if the data has another form.
    """
    return tuple(map(_node, graph))


def read_run(run: Sequence[Mapping[str, Any]]) -> Calls:
    """Return the calls described by plain data.

    Every call has `place`, `status` (`"ok"` or another word), `passed`, `influential` and `notes`.

    Raises `BadSetting` if the data has another form.
    """
    calls: dict[str, list[WorkflowCall]] = {}
    for plain in run:
        call = WorkflowCall(
            ok=_taken(plain, "status", str) == "ok",
            passed=_taken(plain, "passed", bool | None),
            influential=_taken(plain, "influential", bool),
            notes=_taken(plain, "notes", str),
        )
        calls.setdefault(_taken(plain, "place", str), []).append(call)
    return calls


def operators(chain: Chain) -> list[WorkflowOperator]:
    """Return the operators of a chain at any depth, in the order of the workflow's text."""
    found: list[WorkflowOperator] = []
    for node in chain:
        match node:
            case WorkflowOperator():
                found.append(node)
            case WorkflowParallel(_, branches):
                found += [operator for branch in branches for operator in operators(branch)]
            case WorkflowConditional(_, check, passed, failed):
                found += [check, *operators(passed), *operators(failed)]
            case WorkflowLoop(_, body):
                found += operators(body)
    return found


def in_words(chain: Chain) -> str:
    """Return a description of a chain, for readers who cannot see the picture."""
    return ", then ".join(map(_words, chain)) or "nothing"


def _words(node: Node) -> str:
    match node:
        case WorkflowOperator(_, name):
            return name
        case WorkflowParallel(_, branches):
            return f"in parallel ({'; '.join(map(in_words, branches))})"
        case WorkflowConditional(_, check, passed, failed):
            return f"{check.name} (if it passes {in_words(passed)}; if it fails {in_words(failed)})"
        case WorkflowLoop(_, body, count):
            return f"{count} times ({in_words(body)})"


def _node(plain: Mapping[str, Any]) -> Node:
    own = _taken(plain, "id", str)
    match _taken(plain, "kind", str):
        case "operator":
            return WorkflowOperator(own, *(_taken(plain, name, str) for name in ("name", "role", "instruction")))
        case "parallel":
            return WorkflowParallel(own, tuple(map(read_graph, _taken(plain, "branches", Sequence))))
        case "conditional":
            check = _node(_taken(plain, "check", Mapping))
            if not isinstance(check, WorkflowOperator):
                raise BadSetting("the check of a conditional is an operator")
            cases = (read_graph(_taken(plain, case, Sequence)) for case in ("passed", "failed"))
            return WorkflowConditional(own, check, *cases)
        case "loop":
            return WorkflowLoop(own, read_graph(_taken(plain, "body", Sequence)), _taken(plain, "count", int))
        case other:
            raise BadSetting(f"unknown kind of node {other[:40]!a}: operator, parallel, conditional, loop")


def _taken(plain: Any, name: str, kind: Any) -> Any:
    if not isinstance(plain, Mapping) or name not in plain or not isinstance(plain[name], kind):
        known = kind if not isinstance(kind, type) else kind.__name__
        raise BadSetting(f"not a workflow or a run as plain data: {name!r} of type {known} is missing in {plain!r:.80}")
    return plain[name]
