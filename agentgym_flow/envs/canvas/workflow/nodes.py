"""The four kinds of node: an operator, parallel branches, a conditional, a loop. Values, checked when they are made.

Nodes stand in *chains*: in a chain each node works on what the one before it made. A workflow is a chain, and so is
every branch of a parallel or a conditional and the body of a loop; so structures nest to any depth. How deep a policy
may go, and whether it may at all, is said by `language.Language`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from agentgym_flow.envs.canvas.operators import CHECKERS, OPERATORS, STANDARD, Role
from agentgym_flow.errors import BadWorkflow

MOST_LOOPS = 10
"""A loop runs at most so often."""

DEFAULT_LOOPS = 3
"""A loop runs so often when nothing else is said."""

_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """One operator.

    Attributes:
        name: a name in `operators.OPERATORS`.
        instruction: what it is told instead of its default; empty for the default. Blanks around it are dropped, and
            halves of surrogate pairs, which no file can hold, become the replacement character.

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
        """The chains within: none."""
        return ()


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branches that all start from the same result; what they make is gathered in their order.

    Attributes:
        branches: at least two chains, none empty. A branch does not begin with an ensemble, which would have nothing to
            gather there.

    Raises:
        BadWorkflow: the branches are not like that.
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
        """Return the same with another branch number `slot`; without this branch when `chain` is empty."""
        return Parallel(self.branches[:slot] + ((chain,) if chain else ()) + self.branches[slot + 1 :])


@dataclass(frozen=True, slots=True)
class Conditional:
    """A check, and what runs when the solution passes it and when it fails it.

    Attributes:
        check: an operator that says whether the solution passes: its role is that of a checker.
        passed: runs when it does. Empty: the solution goes on as it is.
        failed: runs when it does not. Empty: likewise. At least one of the two is not empty.

    Raises:
        BadWorkflow: the check is no checker, or there is nothing to run either way.
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
        """Return the same with another chain number `slot` of `chains`."""
        if slot == 0:
            if len(chain) != 1 or not isinstance(chain[0], OperatorNode):
                raise BadWorkflow("the condition of a conditional is exactly one operator")
            return Conditional(chain[0], self.passed, self.failed)
        return Conditional(self.check, chain, self.failed) if slot == 1 else Conditional(self.check, self.passed, chain)


@dataclass(frozen=True, slots=True)
class Loop:
    """A chain that runs several times, each time on what the last time made.

    Attributes:
        body: what runs; not empty.
        count: how often, from 1 to `MOST_LOOPS`.

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
        """Return the same with another body; `slot` is 0."""
        return Loop(chain, self.count)


Structure: TypeAlias = Parallel | Conditional | Loop
Node: TypeAlias = OperatorNode | Structure
Chain: TypeAlias = tuple[Node, ...]


def form(node: Node) -> list[Any]:
    """Return everything that makes the node what it is, JSON-able; different nodes, different forms."""
    match node:
        case OperatorNode(name, instruction):
            return ["operator", name, instruction]
        case Loop(body, count):
            return ["loop", [form(child) for child in body], count]
        case _:
            return [node.kind, *([form(child) for child in chain] for chain in node.chains)]


def unknown_operator(name: str, known: Sequence[str] = STANDARD) -> str:
    """Return the refusal of a name that no operator has, with the closest that one of `known` has."""
    short = name[:_LONGEST_NAME]
    close = difflib.get_close_matches(short, known, n=1, cutoff=0.5)
    guess = f" Did you mean {close[0]}?" if close else ""
    return f"There is no operator {short!a}.{guess} Known: {', '.join(known)}."


def cleaned(text: str) -> str:
    """Return `text` without blanks around it, its surrogate pairs joined, and halves of pairs replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.strip()
