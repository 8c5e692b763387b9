"""What can be counted of a workflow without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agentgym_flow.envs.canvas.workflow.nodes import Chain, Conditional, Loop, Node, Operator, Parallel


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
    found = list(every(nodes))
    operators = [node for node in found if isinstance(node, Operator)]
    kinds: dict[str, int] = {}
    for operator in operators:
        kinds[operator.name] = kinds.get(operator.name, 0) + 1
    return Statistics(
        top_level=len(nodes),
        operators=len(operators),
        kinds=kinds,
        depth=depth(nodes),
        parallel=sum(isinstance(node, Parallel) for node in found),
        conditional=sum(isinstance(node, Conditional) for node in found),
        loop=sum(isinstance(node, Loop) for node in found),
        instructions=sum(bool(operator.instruction) for operator in operators),
        most_calls=most_calls(nodes),
    )


def every(nodes: Chain) -> Iterator[Node]:
    """Yield every node of a chain, at any depth, in the order in which the workflow is written down."""
    for node in nodes:
        yield node
        for chain in node.chains:
            yield from every(chain)


def depth(nodes: Chain) -> int:
    """Return how deep a chain nests; 0 for the empty one."""
    return max((1 + max((depth(chain) for chain in node.chains), default=0) for node in nodes), default=0)


def most_calls(nodes: Chain) -> int:
    """Return how many operators one run of a chain calls at most."""
    return sum(map(_most_calls, nodes))


def _most_calls(node: Node) -> int:
    match node:
        case Operator():
            return 1
        case Parallel(branches):
            return sum(map(most_calls, branches))
        case Conditional(_, passed, failed):
            return 1 + max(most_calls(passed), most_calls(failed))
        case Loop(body, count):
            return count * most_calls(body)
