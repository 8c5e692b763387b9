"""The edits of workflows. An edit is applied completely, or rejected with a reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from agentgym_flow.envs.canvas.workflow.graph import Node, OperatorNode, Workflow, cleaned
from agentgym_flow.envs.canvas.workflow.rules import (
    LONGEST_INSTRUCTION,
    SHORTEST_INSTRUCTION,
    Circumstances,
    FinishRules,
    Language,
)
from agentgym_flow.errors import BadWorkflow


@dataclass(frozen=True, slots=True)
class Add:
    """Insert a new node into the top-level chain.

    Attributes:
        node: an operator, a parallel, a conditional or a loop, with all its instructions.
        position: its index, from 0; None for the end.
    """

    node: Node
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the node with the id `target`."""

    target: str


@dataclass(frozen=True, slots=True)
class Modify:
    """Replace the operator with the id `target`. The new one does not inherit the instruction."""

    target: str
    operator: OperatorNode


@dataclass(frozen=True, slots=True)
class SetPrompt:
    """Replace the instruction of the operator with the id `target`."""

    target: str
    instruction: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "instruction", cleaned(self.instruction))


@dataclass(frozen=True, slots=True)
class Finish:
    """Submit the workflow. `answer` is the policy's own answer, which does not affect the score."""

    answer: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer", cleaned(self.answer))


Action: TypeAlias = Add | Delete | Modify | SetPrompt | Finish


class Edit(NamedTuple):
    """The outcome of an action.

    Attributes:
        workflow: the workflow after it; the same object if nothing changed.
        reason: why the action was rejected, a sentence for the policy; empty if it was accepted.
        finished: whether the workflow was submitted.
    """

    workflow: Workflow
    reason: str = ""
    finished: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the action was accepted."""
        return not self.reason


def apply(
    action: Action,
    workflow: Workflow,
    language: Language,
    rules: FinishRules,
    circumstances: Circumstances | None = None,
) -> Edit:
    """Apply an action to a workflow; never raises.

    Args:
        action: the action.
        workflow: the workflow.
        language: the rules of workflows; edits that break them are rejected.
        rules: the requirements for `finish`.
        circumstances: facts for `rules`.
    """
    if isinstance(action, Finish):
        lacks = rules.missing(workflow.statistics, circumstances)
        return Edit(
            workflow, f"The workflow cannot be finished yet. It needs {'; '.join(lacks)}." if lacks else "", not lacks
        )
    try:
        edited = _edited(action, workflow, language)
        if edited.nodes != workflow.nodes:
            language.check(edited.nodes, edited.statistics)
    except BadWorkflow as refusal:
        return Edit(workflow, _sentence(str(refusal)))
    return Edit(edited)


def _edited(action: Add | Delete | Modify | SetPrompt, workflow: Workflow, language: Language) -> Workflow:
    match action:
        case Add(node, position):
            return workflow.insert(node, position)
        case Delete(target):
            if not language.nesting and target in workflow.places and len(workflow.places[target].path) > 1:
                raise BadWorkflow(f"{target} is part of a structure: delete the structure, or modify this part")
            return workflow.remove(target)
        case Modify(target, operator):
            _operator_at(workflow, target, "modify")
            return workflow.replace(target, operator)
        case SetPrompt(target, instruction):
            if not SHORTEST_INSTRUCTION <= len(instruction) <= LONGEST_INSTRUCTION:
                raise BadWorkflow(f"a prompt has {SHORTEST_INSTRUCTION} to {LONGEST_INSTRUCTION} characters")
            operator = _operator_at(workflow, target, "set_prompt")
            return workflow.replace(target, replace(operator, instruction=instruction))


def _operator_at(workflow: Workflow, target: str, verb: str) -> OperatorNode:
    node = workflow.place(target).node
    if not isinstance(node, OperatorNode):
        parts = ", ".join(place for place in workflow.places if place.startswith(f"{target}_"))
        raise BadWorkflow(f"{target} is a {node.kind}, and {verb} works on operators: {parts}")
    return node


def _sentence(reason: str) -> str:
    text = reason if reason.startswith("node_") else reason[:1].upper() + reason[1:]
    return text if text.endswith((".", "?")) else f"{text}."
