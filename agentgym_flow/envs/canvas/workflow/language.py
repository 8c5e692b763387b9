"""What a policy may write: which operators, how deep, how much, and which case of a conditional is written first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from agentgym_flow.core import check_positive
from agentgym_flow.envs.canvas.operators import ADVERTISED, OPERATORS, STANDARD
from agentgym_flow.envs.canvas.workflow.graph import Statistics, every, statistics
from agentgym_flow.envs.canvas.workflow.nodes import Chain, OperatorNode, unknown_operator
from agentgym_flow.errors import BadSetting, BadWorkflow

SHORTEST_INSTRUCTION = 5
"""An instruction has at least so many characters, as in the published environment."""

LONGEST_INSTRUCTION = 4000
"""An instruction has at most so many characters."""


@dataclass(frozen=True, slots=True)
class Language:
    """The rules of what can be written.

    Attributes:
        operators: the operators that can be used, in the order in which they are shown. Leaving some out is how one
            measures what they are worth.
        nesting: whether structures can hold chains and other structures. Without it a structure is at the top level and
            holds single operators, as published.
        first_case: the case of a conditional that is written first, in `Verify ? A : B` and in the tag `<true>`.
            `"passed"`: A runs when the solution passes the check, which is what the published prompt says.
            `"failed"`: A runs when it fails, which is what the published code does.
        most_operators: operators of a workflow at any depth.
        most_depth: levels of a workflow; 1 is no structures.
        most_calls: operators that one run may call, loops counted as often as they run.

    Raises:
        BadSetting: an operator does not exist, there is none, or a number is not a positive integer.
    """

    operators: tuple[str, ...] = STANDARD
    nesting: bool = True
    first_case: Literal["passed", "failed"] = "passed"
    most_operators: int = 40
    most_depth: int = 4
    most_calls: int = 200

    def __post_init__(self) -> None:
        if not self.operators:
            raise BadSetting("a language needs at least one operator")
        for name in self.operators:
            if name not in OPERATORS:
                raise BadSetting(unknown_operator(str(name), tuple(OPERATORS)))
        if self.first_case not in ("passed", "failed"):
            raise BadSetting(f"first_case is 'passed' or 'failed', got {self.first_case!r:.40}")
        for setting in ("most_operators", "most_depth", "most_calls"):
            check_positive(setting, getattr(self, setting))

    @property
    def known(self) -> tuple[str, ...]:
        """The names that are read as operators: the standard ones, whether usable or not, and the others usable here.

        What other modules have registered is unknown here, so that no episode depends on what was imported.
        """
        return _known(self.operators)

    def check(self, nodes: Chain, counted: Statistics | None = None) -> None:
        """Raise `BadWorkflow` when a top-level chain breaks a rule, and say which.

        Args:
            nodes: the chain.
            counted: its statistics, where they are known already.
        """
        for node in every(nodes):
            if isinstance(node, OperatorNode):
                self.check_operator(node)
        counted = counted or statistics(nodes)
        count, levels, calls = counted.operators, counted.depth, counted.most_calls
        if count > self.most_operators:
            raise BadWorkflow(f"a workflow has at most {self.most_operators} operators, this would have {count}")
        if levels > self.most_depth:
            raise BadWorkflow(f"a workflow has at most {self.most_depth} levels, this would have {levels}")
        if calls > self.most_calls:
            raise BadWorkflow(f"a run calls at most {self.most_calls} operators, this could call {calls}")
        if not self.nesting and levels > 1:
            _check_flat(nodes)

    def check_operator(self, operator: OperatorNode) -> None:
        """Raise `BadWorkflow` when the operator is left out here, or its instruction is too short or too long."""
        if operator.name not in self.operators:
            raise BadWorkflow(f"{operator.name} cannot be used here; use one of {', '.join(self.operators)}")
        length = len(operator.instruction)
        if length and not SHORTEST_INSTRUCTION <= length <= LONGEST_INSTRUCTION:
            raise BadWorkflow(
                f"an instruction has {SHORTEST_INSTRUCTION} to {LONGEST_INSTRUCTION} characters, this has {length}"
            )


@lru_cache(maxsize=1 << 8)
def _known(operators: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*STANDARD, *operators)))


PUBLISHED = Language(operators=ADVERTISED, nesting=False, first_case="failed")
"""The published language, and what its conditionals really did."""

LANGUAGES: Mapping[str, Language] = {"full": Language(), "published": PUBLISHED}
"""What can be written: everything, or what the published environment knew (twelve operators, no nesting, the first
case of a conditional runs when its check fails)."""


def _check_flat(nodes: Chain) -> None:
    for node in nodes:
        chains: Iterable[Chain] = node.chains
        single = node.kind != "loop"
        for chain in chains:
            if (single and len(chain) > 1) or not all(isinstance(child, OperatorNode) for child in chain):
                raise BadWorkflow("structures do not nest here: inside one there are single operators only")
