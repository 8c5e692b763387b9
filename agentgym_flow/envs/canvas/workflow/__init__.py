"""Workflows as immutable values: nodes, their ids, statistics, and edits.

A node is an operator, a parallel, a conditional or a loop; nodes are validated on creation. Nodes form *chains*, in
which each node works on the output of the previous one. A workflow is a chain, and so is every branch of a parallel or
a conditional and the body of a loop, so structures nest to any depth. `rules.Language` limits the depth for policies.

An edit applies completely or not at all. Nothing here runs a workflow.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias

from agentgym_flow.core import canonical
from agentgym_flow.envs.canvas.operators import CHECKERS, OPERATORS, STANDARD, Role
from agentgym_flow.errors import BadWorkflow

MOST_LOOPS = 10
"""The maximum number of rounds of a loop."""

DEFAULT_LOOPS = 3
"""The default number of rounds of a loop."""

_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """One operator.

    Attributes:
        name: a name in `operators.OPERATORS`.
        instruction: its instruction; empty for the default one. Surrounding whitespace is removed, and lone surrogates,
            which files cannot contain, become the replacement character.

    Raises:
        BadWorkflow: there is no such operator.
    """

    kind: ClassVar[str] = "operator"
    name: str
    instruction: str = ""

    def __post_init__(self) -> None:
        if self.name not in OPERATORS:
            raise BadWorkflow(unknown_operator(self.name))
        if self.instruction:
            object.__setattr__(self, "instruction", cleaned(self.instruction))

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The chains in this node: none."""
        return ()


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branches that start from the same result; their outputs are collected in order.

    Attributes:
        branches: at least two non-empty chains. A branch must not begin with an ensemble, which would have nothing to
            combine there.

    Raises:
        BadWorkflow: the branches are invalid.
    """

    kind: ClassVar[str] = "parallel"
    branches: tuple[Chain, ...]

    def __post_init__(self) -> None:
        if len(self.branches) < 2 or not all(self.branches):
            raise BadWorkflow("a parallel needs at least two branches, and none can be empty")
        for first, *_ in self.branches:
            if isinstance(first, OperatorNode) and OPERATORS[first.name].role is Role.ENSEMBLE:
                raise BadWorkflow(f"{first.name} gathers branches: it goes after the parallel, not into it")

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The branches."""
        return self.branches

    def with_chain(self, slot: int, chain: Chain) -> Parallel:
        """Return a copy with another branch number `slot`, or without it if `chain` is empty."""
        return Parallel(self.branches[:slot] + ((chain,) if chain else ()) + self.branches[slot + 1 :])


@dataclass(frozen=True, slots=True)
class Conditional:
    """A check, with the chains for a pass and for a fail.

    Attributes:
        check: a checker, which judges the solution.
        passed: the chain that runs if the solution passes; if it is empty, the solution stays unchanged.
        failed: the chain that runs if the solution fails, possibly empty. At least one of the chains is not empty.

    Raises:
        BadWorkflow: the check is not a checker, or both chains are empty.
    """

    kind: ClassVar[str] = "conditional"
    check: OperatorNode
    passed: Chain = ()
    failed: Chain = ()

    def __post_init__(self) -> None:
        if OPERATORS[self.check.name].role is not Role.CHECKER:
            raise BadWorkflow(f"{self.check.name} gives no verdict; the condition is one of {', '.join(CHECKERS)}")
        if not self.passed and not self.failed:
            raise BadWorkflow("a conditional needs something to run in at least one of its two cases")

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The check alone, the chain for a pass, the chain for a fail."""
        return ((self.check,), self.passed, self.failed)

    def with_chain(self, slot: int, chain: Chain) -> Conditional:
        """Return a copy with another chain number `slot`."""
        if slot == 0:
            if len(chain) != 1 or not isinstance(chain[0], OperatorNode):
                raise BadWorkflow("the condition of a conditional is exactly one operator")
            return Conditional(chain[0], self.passed, self.failed)
        return Conditional(self.check, chain, self.failed) if slot == 1 else Conditional(self.check, self.passed, chain)


@dataclass(frozen=True, slots=True)
class Loop:
    """A chain that runs several times, each time on the output of the previous round.

    Attributes:
        body: a non-empty chain.
        count: the number of rounds, from 1 to `MOST_LOOPS`.

    Raises:
        BadWorkflow: the body is empty or the count is out of range.
    """

    kind: ClassVar[str] = "loop"
    body: Chain
    count: int = DEFAULT_LOOPS

    def __post_init__(self) -> None:
        if not self.body:
            raise BadWorkflow("a loop needs at least one operator")
        if not isinstance(self.count, int) or isinstance(self.count, bool) or not 1 <= self.count <= MOST_LOOPS:
            raise BadWorkflow(f"a loop runs 1 to {MOST_LOOPS} times")

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The body."""
        return (self.body,)

    def with_chain(self, slot: int, chain: Chain) -> Loop:
        """Return a copy with another body; `slot` is 0."""
        return Loop(chain, self.count)


Structure: TypeAlias = Parallel | Conditional | Loop
Node: TypeAlias = OperatorNode | Structure
Chain: TypeAlias = tuple[Node, ...]


def form(node: Node) -> list[Any]:
    """Return a JSON-able form of a node; different nodes have different forms."""
    match node:
        case OperatorNode(name, instruction):
            return ["operator", name, instruction]
        case Loop(body, count):
            return ["loop", [form(child) for child in body], count]
        case _:
            return [node.kind, *([form(child) for child in chain] for chain in node.chains)]


@lru_cache(maxsize=1 << 12)
def _written(node: Node) -> str:
    return canonical(form(node)).decode("ascii")


def unknown_operator(name: str, known: Sequence[str] = STANDARD) -> str:
    """Return the error message for an unknown operator, with the closest of the `known` names."""
    short = name[:_LONGEST_NAME]
    close = difflib.get_close_matches(short, known, n=1, cutoff=0.5)
    guess = f" Did you mean {close[0]}?" if close else ""
    return f"There is no operator {short!a}.{guess} Known: {', '.join(known)}."


def cleaned(text: str) -> str:
    """Return the stripped `text` with surrogate pairs joined and lone surrogates replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.strip()


UNDO_DEPTH = 100
"""The maximum number of edits that can be undone."""


class NodePosition(NamedTuple):
    """The position of a node.

    Attributes:
        id: its id. Top-level nodes are `node_1`, `node_2`, ... in order. In `node_2`, the branches of a parallel are
            `node_2_p0`, `node_2_p1`, ...; a conditional has `node_2_cond`, `node_2_pass` and `node_2_fail`; the body of
            a loop is `node_2_l0`, `node_2_l1`, ... The nodes of a longer branch are `node_2_p0_s0`, `node_2_p0_s1`, ...
        path: the index in the top-level chain, then for each level the number of the chain in `chains` and the index in
            it.
        node: the node.
    """

    id: str
    path: tuple[int, ...]
    node: Node


@dataclass(frozen=True)
class Workflow:
    """An immutable workflow. Every edit returns a new one.

    Workflows with equal nodes are equal, whatever their history.

    Attributes:
        nodes: the top-level chain; empty at first.
        history: the top-level chains before the last edits, oldest first.
    """

    nodes: Chain = ()
    history: tuple[Chain, ...] = field(default=(), compare=False, repr=False)

    def insert(self, node: Node, position: int | None = None) -> Workflow:
        """Return the workflow with `node` at top-level index `position`, or at the end.

        Raises `BadWorkflow` if there is no such index.
        """
        at = len(self.nodes) if position is None else position
        if not 0 <= at <= len(self.nodes):
            raise BadWorkflow(f"there is no position {str(at)[:20]}: positions go from 0 to {len(self.nodes)}")
        return self._edited((*self.nodes[:at], node, *self.nodes[at:]))

    def remove(self, place_id: str) -> Workflow:
        """Return the workflow without the node with this id.

        Raises `BadWorkflow` if there is none, or if the structure around it would be invalid without it.
        """
        return self._edited(_changed(self.nodes, self.place(place_id).path, None))

    def replace(self, place_id: str, node: Node) -> Workflow:
        """Return the workflow with another node at this id. Raises `BadWorkflow` as `remove` does."""
        return self._edited(_changed(self.nodes, self.place(place_id).path, node))

    def undo(self) -> Workflow:
        """Return the workflow before the last edit. Raises `BadWorkflow` if there is nothing to undo."""
        if not self.history:
            raise BadWorkflow("there is no edit to undo")
        return Workflow(self.history[-1], self.history[:-1])

    def _edited(self, nodes: Chain) -> Workflow:
        return Workflow(nodes, (*self.history[1 - UNDO_DEPTH :], self.nodes))

    @cached_property
    def places(self) -> Mapping[str, NodePosition]:
        """The positions of all nodes by id, in the order of the workflow's text."""
        found: dict[str, NodePosition] = {}
        _walk(top_ids(self.nodes), self.nodes, (), found)
        return found

    def place(self, place_id: str) -> NodePosition:
        """Return the position with this id. Raises `BadWorkflow` if there is none."""
        if place_id not in self.places:
            known = ", ".join(self.places) if self.places else "the workflow is empty"
            raise BadWorkflow(f"there is no node {place_id[:40]!a}: {known}")
        return self.places[place_id]

    @cached_property
    def statistics(self) -> Statistics:
        """The statistics of the workflow."""
        return statistics(self.nodes)

    @cached_property
    def identity(self) -> str:
        """A digest of 64 hex digits, equal if and only if the workflows are: `stable_hash` of the nodes' forms."""
        written = ",".join(map(_written, self.nodes))  # cached, because an edit leaves most nodes unchanged
        return hashlib.sha256(f"[{written}]".encode("ascii")).hexdigest()


def child_ids(own: str, node: Node) -> tuple[tuple[str, ...], ...]:
    """Return the ids of the children of `node`, whose id is `own`, for each chain in `node.chains`."""
    match node:
        case OperatorNode():
            return ()
        case Loop(body):
            return (tuple([f"{own}_l{index}" for index in range(len(body))]),)
        case Parallel(branches):
            return tuple([_branch_ids(f"{own}_p{slot}", branch) for slot, branch in enumerate(branches)])
        case Conditional(_, passed, failed):
            return (f"{own}_cond",), _branch_ids(f"{own}_pass", passed), _branch_ids(f"{own}_fail", failed)


def _branch_ids(name: str, chain: Chain) -> tuple[str, ...]:
    return (name,) if len(chain) == 1 else tuple([f"{name}_s{index}" for index in range(len(chain))])


def top_ids(nodes: Chain) -> tuple[str, ...]:
    """Return the ids of the nodes of a top-level chain."""
    return tuple(f"node_{number}" for number in range(1, len(nodes) + 1))


def _walk(ids: tuple[str, ...], chain: Chain, path: tuple[int, ...], found: dict[str, NodePosition]) -> None:
    """Add the positions of a chain to `found`; `path` leads to the chain."""
    for index, (place_id, node) in enumerate(zip(ids, chain, strict=True)):
        own = (*path, index)
        found[place_id] = NodePosition(place_id, own, node)
        if not isinstance(node, OperatorNode):
            for slot, (inner_ids, inner) in enumerate(zip(child_ids(place_id, node), node.chains, strict=True)):
                _walk(inner_ids, inner, (*own, slot), found)


def _changed(chain: Chain, path: tuple[int, ...], node: Node | None) -> Chain:
    """Return `chain` with `node` at `path`, or without the node there if `node` is None."""
    index, *rest = path
    if rest:
        around = chain[index]
        assert not isinstance(around, OperatorNode), "a path leads through structures"
        slot = rest[0]
        node = around.with_chain(slot, _changed(around.chains[slot], tuple(rest[1:]), node))
    return chain[:index] + (() if node is None else (node,)) + chain[index + 1 :]


class Statistics(NamedTuple):
    """Counts of a workflow, at any depth unless stated otherwise.

    Attributes:
        top_level: the nodes of the top-level chain.
        operators: the operators, checks included.
        kinds: operator -> the number of its occurrences, in the order of their first occurrence.
        depth: 0 for the empty workflow, 1 without structures, plus one for each structure around an operator.
        parallel: the parallels.
        conditional: the conditionals.
        loop: the loops.
        instructions: the operators with an instruction.
        most_calls: the maximum number of calls of one run, with every round of loops and the longer case of
            conditionals.
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
    """Yield all nodes of a chain at any depth, in the order of the workflow's text."""
    for node in nodes:
        yield node
        for chain in node.chains:
            yield from every(chain)


class _Tally:
    """Counts everything in one walk over a graph, because workflows are counted after every edit."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.structures = {"parallel": 0, "conditional": 0, "loop": 0}
        self.instructions = 0

    def chain(self, nodes: Chain) -> tuple[int, int]:
        """Count a chain; return its depth, and the maximum number of calls of one run."""
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
