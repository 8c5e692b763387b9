"""One turn of building: from what a policy wrote to the draft after it, with prompts inline or asked for one by one.

Inline, an action is done when it is read. In two phases, the published way, an action that brings operators without
instructions waits until each has got one, a turn for each: one operator takes two turns, a parallel of three takes
four. Nothing waits that could not be done: the action is tried first. Whoever is asked for a prompt can leave by giving
one, or by writing another action, which drops the one that waits. A prompt is a text without tags of ours, or what is
in one pair of prompt tags with nothing around it. All else is read as actions are: with repairs, or not when `strict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from agentgym_flow.envs.canvas.actions.edits import Action, Add, Finish, Modify, apply
from agentgym_flow.envs.canvas.actions.reading import THINKING, Reading, read_action
from agentgym_flow.envs.canvas.operators import OPERATORS, Operator
from agentgym_flow.envs.canvas.operators.offer import Offer
from agentgym_flow.envs.canvas.workflow.graph import Node, OperatorNode, Workflow, cleaned, form
from agentgym_flow.envs.canvas.workflow.rules import (
    FINISH_RULES,
    LANGUAGES,
    LONGEST_INSTRUCTION,
    SHORTEST_INSTRUCTION,
    Circumstances,
    FinishRules,
    Language,
)
from agentgym_flow.envs.canvas.workflow.text import Repair
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.seeding import stable_hash

NO_PROMPT = f"A prompt has {SHORTEST_INSTRUCTION} to {LONGEST_INSTRUCTION} characters. Write the prompt for {{}}."
UNCLEAR_PROMPT = (
    "This is not a prompt alone: {}. "
    "Write the prompt for {}, as it is or in one pair of <prompt> tags, and nothing else."
)

_SHORT = 400  # characters of an action that is likely to be written again
_read_before = lru_cache(maxsize=1 << 10)(read_action)

_NAMES = ("prompt", "action", "operator", "target", "answer", *THINKING)
_TAG = re.compile(rf"<(/?)({'|'.join(_NAMES)})>", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class CanvasDraft:
    """What there is between two turns. A value.

    Attributes:
        workflow: the workflow so far.
        waiting: the action that waits for prompts; None when none does.
    """

    workflow: Workflow = field(default_factory=Workflow)
    waiting: Add | Modify | None = None

    @property
    def asked(self) -> OperatorNode | None:
        """The operator whose prompt is asked for; None when none is."""
        return None if self.waiting is None else next(_unprompted(_node(self.waiting)))[1]

    @property
    def identity(self) -> str:
        """64 hex digits, equal if and only if the drafts are."""
        if self.waiting is None:
            return self.workflow.identity
        where = self.waiting.target if isinstance(self.waiting, Modify) else self.waiting.position
        return stable_hash([self.workflow.identity, form(_node(self.waiting)), where])


class TurnResult(NamedTuple):
    """What came of a turn.

    Attributes:
        draft: the draft now.
        action: what was read and done, or waits; None when nothing was.
        reason: why nothing was done, in a sentence for the policy; empty otherwise.
        repairs: what was overlooked to read the action, or the prompt.
        edited: whether the workflow was edited, so that it is to be run.
        finished: whether it was handed in.
    """

    draft: CanvasDraft
    action: Action | None = None
    reason: str = ""
    repairs: tuple[Repair, ...] = ()
    edited: bool = False
    finished: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the text was read and the rules allowed what it says."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Drafting:
    """The rules of turns.

    Attributes:
        language: what can be written.
        finish: when a workflow can be handed in.
        prompting: `"inline"` or `"two_phase"`.
        strict: refuse actions and prompts that have to be repaired.
        offer: the operators, with their descriptions for the policy.

    Raises:
        BadSetting: no workflow of the language can be handed in.
    """

    language: Language = field(default_factory=Language)
    finish: FinishRules = field(default_factory=FinishRules)
    prompting: Literal["inline", "two_phase"] = "inline"
    strict: bool = False
    offer: Offer = field(default_factory=Offer)

    def __post_init__(self) -> None:
        self.finish.simplest(self.language)

    def turn(
        self, written: str | Mapping[str, Any], draft: CanvasDraft, circumstances: Circumstances | None = None
    ) -> TurnResult:
        """Return what comes of what a policy wrote; never raises for any text or object."""
        if draft.waiting is not None:
            reading = self._read(written, strict=self.strict or not _is_meant_as_action(written))
            if reading.action is None:
                return self._prompted(written if isinstance(written, str) else "", draft, draft.waiting)
            return self._done(reading.action, CanvasDraft(draft.workflow), draft, reading.repairs, circumstances)
        reading = self._read(written, strict=self.strict)
        if reading.action is None:
            return TurnResult(draft, reason=reading.reason)
        return self._done(reading.action, draft, draft, reading.repairs, circumstances)

    def _read(self, written: str | Mapping[str, Any], *, strict: bool) -> Reading:
        # Other operators may be defined anew, and be read in another way then.
        kept = isinstance(written, str) and len(written) <= _SHORT and not self.offer.others
        return (_read_before if kept else read_action)(written, self.language, strict=strict)

    def _done(
        self,
        action: Action,
        draft: CanvasDraft,
        before: CanvasDraft,
        repairs: tuple[Repair, ...],
        about: Circumstances | None,
    ) -> TurnResult:
        """Do `action` on `draft`; leave everything as it was `before` when it is refused."""
        edit = apply(action, draft.workflow, self.language, self.finish, about)
        if not edit.accepted:
            return TurnResult(before, reason=edit.reason)
        if self.prompting == "two_phase" and isinstance(action, (Add, Modify)) and any(_unprompted(_node(action))):
            return TurnResult(CanvasDraft(draft.workflow, action), action, repairs=repairs)
        edited = not isinstance(action, Finish)
        return TurnResult(CanvasDraft(edit.workflow), action, repairs=repairs, edited=edited, finished=edit.finished)

    def _prompted(self, text: str, draft: CanvasDraft, waiting: Add | Modify) -> TurnResult:
        """Take `text` for the prompt that is asked for."""
        prompt, repairs = prompt_in(text)
        place, operator = next(_unprompted(_node(waiting)))
        if repairs and self.strict:
            kinds = ", ".join(repair.kind for repair in repairs)
            return TurnResult(draft, reason=UNCLEAR_PROMPT.format(kinds, operator.name))
        if not SHORTEST_INSTRUCTION <= len(prompt) <= LONGEST_INSTRUCTION:
            return TurnResult(draft, reason=NO_PROMPT.format(operator.name))
        node = Workflow((_node(waiting),)).replace(place, replace(operator, instruction=prompt)).nodes[0]
        action = _with_node(waiting, node)
        return self._done(action, CanvasDraft(draft.workflow), draft, repairs, None)


def _is_meant_as_action(written: str | Mapping[str, Any]) -> bool:
    """Return whether there is an action tag in what was written, or nothing but `finish`."""
    lowered = written.lower() if isinstance(written, str) else ""
    return "<action>" in lowered or lowered.strip() == "finish"


def prompt_in(text: str) -> tuple[str, tuple[Repair, ...]]:
    """Return the prompt in a text that is taken for one, and what was overlooked to read it.

    The prompt is what is in the first prompt tag, or all but thinking and tags of ours. Linear in the text, which may
    be anything.
    """
    found = _FoundPrompts(text)
    around = "".join(found.around).strip()
    if not found.prompts:
        return cleaned(around), tuple(found.repairs.values())
    if around:
        found.note("text_around", around)
    if len(found.prompts) > 1:
        found.note("prompts_left")
    return cleaned(found.prompts[0]), tuple(found.repairs.values())


class _FoundPrompts:
    """What one pass over the tags of a text finds; at any time at most one tag is open, of a prompt or of thinking.

    Attributes:
        prompts: what is in prompt tags.
        around: what is neither in them nor thinking, in pieces.
        repairs: what was overlooked, the first of each kind.
    """

    def __init__(self, text: str) -> None:
        self.prompts: list[str] = []
        self.around: list[str] = []
        self.repairs: dict[str, Repair] = {}
        opened, start = "", 0
        for tag in _TAG.finditer(text):
            name, closing = tag[2].lower(), bool(tag[1])
            if opened and not (closing and name == opened):
                continue  # free text ends with its own tag alone
            self._keep(opened, text[start : tag.start()])
            opened, start = "" if opened else self._opened(name, closing=closing), tag.end()
            if tag[2] != name:
                self.note("tag_case", tag[2])
        self._keep(opened, text[start:])
        if opened == "prompt":
            self.note("unclosed_tag", opened)

    def note(self, kind: str, detail: str = "") -> None:
        """Note the first repair of each kind."""
        self.repairs.setdefault(kind, Repair.of(kind, detail))

    def _keep(self, opened: str, part: str) -> None:
        if opened not in THINKING:
            (self.prompts if opened else self.around).append(part)

    def _opened(self, name: str, *, closing: bool) -> str:
        """Return which tag is open after this one, where none was."""
        if name in THINKING:
            if closing:  # its opening tag was written by the chat template: all before is thinking
                self.prompts.clear()
                self.around.clear()
                self.repairs.clear()
            self.note("thinking")
            return "" if closing else name
        if name == "prompt" and not closing:
            return name
        self.note("stray_tag", name)
        return ""


def _node(action: Add | Modify) -> Node:
    return action.node if isinstance(action, Add) else action.operator


def _with_node(action: Add | Modify, node: Node) -> Add | Modify:
    if isinstance(action, Add):
        return Add(node, action.position)
    assert isinstance(node, OperatorNode), "an operator is replaced by an operator"
    return Modify(action.target, node)


def _unprompted(node: Node) -> Iterator[tuple[str, OperatorNode]]:
    """Yield the operators of `node` that have no instruction, with their places in a workflow of this node alone."""
    for place in Workflow((node,)).places.values():
        if isinstance(place.node, OperatorNode) and not place.node.instruction:
            yield place.id, place.node


PROMPTINGS = ("inline", "two_phase")
"""Instructions come with the action, or are asked for one by one in turns of their own, as published."""


def drafting_of(
    language: str,
    operators: Sequence[Operator] | None,
    finish: str,
    prompting: Any,
    strict: bool,
    descriptions: Mapping[str, str] | None = None,
) -> Drafting:
    """Return the rules of turns.

    Args:
        language: one of `LANGUAGES`.
        operators: the only operators that can be used; None for all of the language.
        finish: one of `FINISH_RULES`.
        prompting: one of `PROMPTINGS`.
        strict: refuse actions that have to be repaired.
        descriptions: name of an operator -> the description for the policy, in place of the operator's own description.

    Raises:
        UnknownOption: a name is none of these, or a description is of no operator that can be used.
        BadSetting: no workflow can be finished with these.
    """
    for name, known in ((language, LANGUAGES), (finish, FINISH_RULES), (prompting, PROMPTINGS)):
        if name not in known:
            raise UnknownOption.among(name, known)
    if not isinstance(strict, bool):
        raise BadSetting(f"strict is True or False, got {strict!r:.40}")
    spoken = LANGUAGES[language]
    used = [OPERATORS[name] for name in spoken.operators] if operators is None else operators
    offer = Offer(tuple(used), dict(descriptions or {}))
    spoken = replace(spoken, operators=offer.names)
    way: Literal["inline", "two_phase"] = prompting
    return Drafting(spoken, replace(FINISH_RULES[finish], others=offer.others), way, strict, offer)
