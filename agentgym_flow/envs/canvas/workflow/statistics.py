"""What can be counted of a workflow without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agentgym_flow.envs.canvas.workflow.nodes import Chain, Conditional, Loop, Node, OperatorNode, Parallel, Structure


class Statistics(NamedTuple):
    """Counts of a workflow.

    Attributes:
        top_level: nodes of the top-level chain.
        operators: operators at any depth, checks included.
        kinds: how often each operator occurs, in the order of the first time.
        depth: 0 for the empty workflow, 1 without structures, one more for each structure around an operator.
        parallel: structures of this kind, at any depth; so are the next two.
        conditional: conditionals.
        loop: loops.
        instructions: operators with an instruction of their own.
        most_calls: how many operators one run calls at most; loops count as often as they run, a conditional with the
            longer of its cases.
    """

    top_level: int
    operators: int
    kinds: dict[str, int]
    depth: int
    parallel: int
    conditional: int
    loop: int
    instructions: int
    most_calls: int


def statistics(nodes: Chain) -> Statistics:
    """Return the statistics of a top-level chain."""
    tally = _Tally()
    depth, calls = tally.chain(nodes)
    return Statistics(
        top_level=len(nodes),
        operators=sum(tally.kinds.values()),
        kinds=tally.kinds,
        depth=depth,
        parallel=tally.structures["parallel"],
        conditional=tally.structures["conditional"],
        loop=tally.structures["loop"],
        instructions=tally.instructions,
        most_calls=calls,
    )


def every(nodes: Chain) -> Iterator[Node]:
    """Yield every node of a chain, at any depth, in the order in which the workflow is written down."""
    for node in nodes:
        yield node
        for chain in node.chains:
            yield from every(chain)


class _Tally:
    """One walk over a graph. A workflow is counted after every edit, so that it is worth not to walk once per count."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.structures = {"parallel": 0, "conditional": 0, "loop": 0}
        self.instructions = 0

    def chain(self, nodes: Chain) -> tuple[int, int]:
        """Count a chain; return its depth, and how many operators one run of it calls at most."""
        deepest = calls = 0
        for node in nodes:
            if isinstance(node, OperatorNode):
                self.kinds[node.name] = self.kinds.get(node.name, 0) + 1
                self.instructions += bool(node.instruction)
                depth, most = 1, 1
            else:
                depth, most = self._structure(node)
            deepest = max(deepest, depth)
            calls += most
        return deepest, calls

    def _structure(self, node: Structure) -> tuple[int, int]:
        self.structures[node.kind] += 1
        depths, calls = zip(*map(self.chain, node.chains), strict=True)
        match node:
            case Loop(_, count):
                most = count * calls[0]
            case Conditional():
                most = calls[0] + max(calls[1:])
            case Parallel():
                most = sum(calls)
        return 1 + max(depths), most
