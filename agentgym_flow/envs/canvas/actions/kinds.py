"""What a policy can do to a workflow, read from whatever text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agentgym_flow.envs.canvas.workflow.nodes import Node, OperatorNode, cleaned


@dataclass(frozen=True, slots=True)
class Add:
    """Put a new node into the top-level chain: an operator, a parallel, a conditional or a loop.

    Attributes:
        node: the node, with all its instructions.
        position: its index, from 0; None for the end.
    """

    node: Node
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Take the node at the place `target` out; its neighbours close up."""

    target: str


@dataclass(frozen=True, slots=True)
class Modify:
    """Put another operator at the place `target`, where there is an operator. It does not take over the instruction."""

    target: str
    operator: OperatorNode


@dataclass(frozen=True, slots=True)
class SetPrompt:
    """Give the operator at the place `target` another instruction."""

    target: str
    instruction: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "instruction", cleaned(self.instruction))


@dataclass(frozen=True, slots=True)
class Finish:
    """Hand the workflow in. `answer` is what the policy says the answer is; nothing is scored by it."""

    answer: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer", cleaned(self.answer))


Action: TypeAlias = Add | Delete | Modify | SetPrompt | Finish
