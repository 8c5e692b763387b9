"""Workflows and their runs as plain data, for `info` and for reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.envs.canvas.workflow.graph import (
    Chain,
    Conditional,
    Loop,
    Node,
    OperatorNode,
    Parallel,
    child_ids,
    top_ids,
)
from agentgym_flow.envs.canvas.workflow.run import WorkflowRun

NOTES_LENGTH = 150
"""The maximum number of characters shown of an instruction or of a checker's notes."""


def one_line(text: str, length: int) -> str:
    """Return `text` as one printable line of at most `length` characters."""
    return _line(text[: 4 * length], length, len(text) > 4 * length)


@lru_cache(maxsize=1 << 10)  # the next edit reports the same texts again
def _line(text: str, length: int, cut: bool) -> str:
    line = " ".join(text.split())
    shown = line if line.isprintable() else "".join(mark if mark.isprintable() else "?" for mark in line)
    return shown if len(shown) <= length and not cut else f"{shown[: length - 3]}..."


def plain_graph(nodes: Chain) -> list[dict[str, Any]]:
    """Return a top-level chain as nested JSON-able data, fresh on every call.

    Every node has `kind` and `id`, and:

    - `"operator"`: `name`, `role`, `instruction` (empty for the default);
    - `"parallel"`: `branches`, a list of chains;
    - `"conditional"`: `check`, an operator, and the chains `passed` and `failed`;
    - `"loop"`: the chain `body`, and `count`.
    """
    return _chain(top_ids(nodes), nodes)


def plain_run(run: WorkflowRun) -> list[dict[str, Any]]:
    """Return the calls of a run as JSON-able data, fresh on every call, in the order of `run.steps`.

    Each has `place`, `attempt`, `status`, `passed` (None without a verdict), `influential` (whether it contributed to
    the result) and `notes` (a checker's notes or the failure, in a short line).
    """
    influential = {step.id for step in run.influential}
    return [
        {
            "place": step.id.place,
            "attempt": step.id.attempt,
            "status": step.result.status,
            "passed": None if step.result.value is None else step.result.value.passed,
            "influential": step.id in influential,
            "notes": one_line(step.result.text if step.result.value is None else step.result.value.notes, NOTES_LENGTH),
        }
        for step in run.steps
    ]


def _chain(ids: Iterable[str], nodes: Sequence[Node]) -> list[dict[str, Any]]:
    return [_node(own, node) for own, node in zip(ids, nodes, strict=True)]


def _node(own: str, node: Node) -> dict[str, Any]:
    if isinstance(node, OperatorNode):
        return {
            "kind": "operator",
            "id": own,
            "name": node.name,
            "role": OPERATORS[node.name].role.value,
            "instruction": node.instruction,
        }
    known: dict[str, Any] = {"kind": node.kind, "id": own}
    chains = [_chain(ids, chain) for ids, chain in zip(child_ids(own, node), node.chains, strict=True)]
    match node:
        case Parallel():
            return known | {"branches": chains}
        case Conditional():
            return known | {"check": chains[0][0], "passed": chains[1], "failed": chains[2]}
        case Loop(_, count):
            return known | {"body": chains[0], "count": count}
