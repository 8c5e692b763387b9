"""The edits of workflows, and the named fields of their written form, which tags and JSON share.

An edit is applied completely, or rejected with a reason. The fields of an action:

| action | structure | required | optional |
|---|---|---|---|
| `add` | none, or `operator` | `operator` | `prompt`, `position` |
| `add` | `parallel` | `operators`, one branch each | `prompt` once for each operator, `position` |
| `add` | `conditional` | `condition` | `true`, `false` (not both `done`), `prompt` as before, `position` |
| `add` | `loop` | `operators`, one step each | `count`, `prompt` as before, `position` |
| `delete` | | `target` | |
| `modify` | | `target`, `operator` | `prompt` |
| `set_prompt` | | `target`, `prompt` | |
| `finish` | | | `answer` |

Operators, branches, steps and cases are written in the syntax of `workflow.text`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from agentgym_flow.envs.canvas.workflow import (
    DEFAULT_LOOPS,
    Conditional,
    Loop,
    Node,
    OperatorNode,
    Parallel,
    Workflow,
    cleaned,
)
from agentgym_flow.envs.canvas.workflow.rules import (
    LONGEST_INSTRUCTION,
    SHORTEST_INSTRUCTION,
    Circumstances,
    FinishRules,
    Language,
)
from agentgym_flow.envs.canvas.workflow.text import DONE, Reader, Repair, conditional, to_text
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
        reason = str(refusal)
        if not reason.startswith("node_"):  # an id stays as it is
            reason = reason[:1].upper() + reason[1:]
        return Edit(workflow, reason if reason.endswith((".", "?")) else f"{reason}.")
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


TYPED_FORMS: Mapping[str, str] = {
    # A loop that runs once equals its steps, so one line adds a whole workflow: `Programmer -> Test ? done : Revise`.
    "add {operators}": "<action>add</action><structure>loop</structure><operators>{operators}</operators>"
    "<count>1</count>",
    "delete {node}": "<action>delete</action><target>{node}</target>",
    "prompt {node} {text}": "<action>set_prompt</action><target>{node}</target><prompt>{text}</prompt>",
    "finish": "<action>finish</action>",
}
"""Short forms that a person may type instead of tags, with their actions."""

VERBS = ("add", "delete", "modify", "set_prompt", "finish")
"""The actions."""

STRUCTURES = ("operator", "parallel", "conditional", "loop")
"""The structures that can be added."""

FIELDS = (
    "action", "structure", "operator", "operators", "condition", "true", "false", "count", "position", "target",
    "prompt", "answer",
)  # fmt: skip
"""All fields, in the order in which they are written."""

ACTION_TEMPLATES = (
    "<action>add</action><operator>{operator}</operator><prompt>{prompt}</prompt>",
    "<action>add</action><structure>parallel</structure><operators>{operators}</operators>",
    "<action>add</action><structure>conditional</structure><condition>{operator}</condition><true>{operators}</true>"
    "<false>{operators}</false>",
    "<action>add</action><structure>loop</structure><operators>{operators}</operators><count>{number}</count>",
    "<action>delete</action><target>{node}</target>",
    "<action>modify</action><target>{node}</target><operator>{operator}</operator><prompt>{prompt}</prompt>",
    "<action>set_prompt</action><target>{node}</target><prompt>{prompt}</prompt>",
)
"""The action templates."""

Fields: TypeAlias = Mapping[str, Sequence[str]]
"""The fields of a written action; `operators` and `prompt` can have several values, the others have one."""

_ID = re.compile(r"node_[0-9]+(?:_(?:p[0-9]+|l[0-9]+|s[0-9]+|cond|pass|fail))*", re.ASCII)
_LONGEST_ID = 100
_NO_ID = "a target is the id of a node, such as node_2"


class _FieldRules(NamedTuple):
    needs: tuple[str, ...]
    allows: tuple[str, ...] = ()


_FORMS = {
    "operator": _FieldRules(("operator",), ("structure", "prompt", "position")),
    "parallel": _FieldRules(("structure", "operators"), ("prompt", "position")),
    "conditional": _FieldRules(("structure", "condition"), ("true", "false", "prompt", "position")),
    "loop": _FieldRules(("structure", "operators"), ("count", "prompt", "position")),
    "delete": _FieldRules(("target",)),
    "modify": _FieldRules(("target", "operator"), ("prompt",)),
    "set_prompt": _FieldRules(("target", "prompt")),
    "finish": _FieldRules((), ("answer",)),
}


# ---------------------------------------------------------------------- reading
def action_of(fields: Fields, language: Language, *, lenient: bool = False) -> tuple[Action, list[Repair]]:
    """Return the action of some fields, with the repairs that were needed (none unless `lenient`).

    Raises `BadWorkflow` if the fields are invalid. Whether the action fits a workflow is not checked.
    """
    return _EditBuilder(dict(fields), language, lenient).build()


class _EditBuilder:
    def __init__(self, fields: dict[str, Sequence[str]], language: Language, lenient: bool) -> None:
        self.fields = fields
        self.language = language
        self.lenient = lenient
        self.repairs: list[Repair] = []

    def build(self) -> tuple[Action, list[Repair]]:
        form = self._form()
        self._check(form)
        several = form in ("parallel", "conditional", "loop")
        prompts = list(self.fields.get("prompt", ()))
        if not several and len(prompts) > 1:
            self._repair_or_refuse("repeated_field", "prompt", "one operator takes one prompt")
            prompts = prompts[:1]
        reader = Reader(self.language, lenient=self.lenient, instructions=[] if form == "set_prompt" else prompts)
        action = self._action(form, reader)
        if reader.instructions_left:
            left = str(reader.instructions_left)
            self._repair_or_refuse("prompts_left", left, "there are more prompts than operators")
        return action, self.repairs + reader.repairs

    def _action(self, form: str, reader: Reader) -> Action:
        match form:
            case "delete":
                return Delete(self._target())
            case "modify":
                return Modify(self._target(), reader.operator_of(self._one("operator")))
            case "set_prompt":
                return SetPrompt(self._target(), self._one("prompt"))
            case "finish":
                return Finish(self._one("answer"))
            case _:
                return Add(self._node(form, reader), self._position())

    def _node(self, form: str, reader: Reader) -> Node:
        match form:
            case "parallel":
                return Parallel(tuple(chain for text in self.fields["operators"] for chain in reader.chains_of(text)))
            case "loop":
                count = reader.count_of(self._one("count").strip()) if "count" in self.fields else DEFAULT_LOOPS
                chains = [chain for text in self.fields["operators"] for chain in reader.chains_of(text)]
                return Loop(tuple(node for chain in chains for node in chain), count)
            case "conditional":
                check = reader.operator_of(self._one("condition"))
                first, second = (reader.case_of(self._one(case, DONE)) for case in ("true", "false"))
                return conditional(check, first, second, self.language)
            case _:
                return reader.operator_of(self._one("operator"))

    # ------------------------------------------------------------------ fields
    def _form(self) -> str:
        """Return the row of the table, a key of `_FORMS`."""
        verb = self._word("action", (*VERBS, *STRUCTURES))
        if self.lenient and verb in STRUCTURES:
            self.repairs.append(Repair.of("structure_as_action", verb))
            self.fields["structure"] = [verb]
            verb = "add"
        if verb not in VERBS:
            raise BadWorkflow(f"there is no action {verb[:20]!a}; the actions are {', '.join(VERBS)}")
        if verb != "add":
            return verb
        structure = self._word("structure", STRUCTURES) or "operator"
        if structure not in STRUCTURES:
            raise BadWorkflow(f"there is no structure {structure[:20]!a}; there are {', '.join(STRUCTURES)}")
        return structure

    def _word(self, field: str, known: Sequence[str]) -> str:
        """Return the text of a field whose values are known words."""
        word = self._one(field).strip()
        if self.lenient and word not in known and word.lower() in known:
            self.repairs.append(Repair.of("word_case", word))
            return word.lower()
        return word

    def _check(self, form: str) -> None:
        """Drop or reject needless fields, and reject the action if a field is missing."""
        needs, allows = _FORMS[form]
        for field in needs:
            if not any(text.strip() for text in self.fields.get(field, ())):
                raise BadWorkflow(f"{_name(form)} needs {field}")
        for field in list(self.fields):
            if field != "action" and field not in (*needs, *allows):
                self._repair_or_refuse("needless_field", field, f"{_name(form)} takes no {field}")
                del self.fields[field]

    def _repair_or_refuse(self, kind: str, detail: str, reason: str) -> None:
        if not self.lenient:
            raise BadWorkflow(reason)
        self.repairs.append(Repair.of(kind, detail))

    def _one(self, field: str, default: str = "") -> str:
        return next(iter(self.fields.get(field, ())), default)

    def _position(self) -> int | None:
        text = self._one("position").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 7):
            raise BadWorkflow("a position is an integer, counted from 0")
        return int(text)

    def _target(self) -> str:
        target = self._one("target").strip()
        if len(target) > _LONGEST_ID:
            raise BadWorkflow(_NO_ID)
        if not self.lenient or _ID.fullmatch(target):
            known = target
        else:
            # In published ids, the cases of a conditional are `_true` and `_false`.
            passed = "_true" if self.language.first_case == "passed" else "_false"
            failed = "_false" if passed == "_true" else "_true"
            known = target.lower().replace(passed, "_pass").replace(failed, "_fail")
            self.repairs.append(Repair.of("target", target))
        if not _ID.fullmatch(known):
            raise BadWorkflow(_NO_ID)
        return known


def _name(form: str) -> str:
    return form if form in VERBS else f"add {form}"


# ---------------------------------------------------------------------- writing
def fields_of(action: Action, language: Language) -> dict[str, str | list[str] | int]:
    """Return the fields of `action` in order; `operators` is a list, and numbers are integers."""
    match action:
        case Add(node, position):
            where: dict[str, str | list[str] | int] = {} if position is None else {"position": position}
            return {"action": "add", **_node_fields(node, language), **where, **_prompt(node)}
        case Delete(target):
            return {"action": "delete", "target": target}
        case Modify(target, operator):
            return {"action": "modify", "target": target, "operator": operator.name, **_prompt(operator)}
        case SetPrompt(target, instruction):
            return {"action": "set_prompt", "target": target, "prompt": instruction}
        case Finish(answer):
            return {"action": "finish", **({"answer": answer} if answer else {})}


def _prompt(node: Node) -> dict[str, str]:
    return {"prompt": node.instruction} if isinstance(node, OperatorNode) and node.instruction else {}


def _node_fields(node: Node, language: Language) -> dict[str, str | list[str] | int]:
    match node:
        case OperatorNode(name):
            return {"operator": name}
        case Parallel(branches):
            return {"structure": "parallel", "operators": [to_text(branch, language) for branch in branches]}
        case Loop(body, count):
            steps = [to_text((step,), language) for step in body]
            return {"structure": "loop", "operators": steps, "count": count}
        case Conditional(check, passed, failed):
            cases = (passed, failed) if language.first_case == "passed" else (failed, passed)
            first, second = (to_text(case, language) or DONE for case in cases)
            condition = to_text((check,), language)
            return {"structure": "conditional", "condition": condition, "true": first, "false": second}
