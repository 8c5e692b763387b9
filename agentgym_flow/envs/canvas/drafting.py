"""One turn of an episode: from the text of a policy to the new draft, with inline or two-phase prompts.

Inline, an action is applied at once. In two phases, as published, an action that adds operators without instructions
waits until each of them has one, one turn for each: an operator takes two turns, a parallel of three takes four.
Actions that would be rejected never wait. The policy leaves this state by writing the prompts, or another action, which
replaces the waiting one. A prompt is a text without known tags, or the content of one pair of prompt tags with nothing
around it. Everything else is parsed like actions: with repairs, or without if `strict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.canvas.actions import Action, Add, Finish, Modify, apply
from agentgym_flow.envs.canvas.operators import OPERATORS, Offer, Operator
from agentgym_flow.envs.canvas.reading import Reading, read_action, spoken
from agentgym_flow.envs.canvas.workflow import Node, OperatorNode, Workflow, cleaned, form
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

NO_PROMPT = f"A prompt has {SHORTEST_INSTRUCTION} to {LONGEST_INSTRUCTION} characters. Write the prompt for {{}}."
UNCLEAR_PROMPT = (
    "This is not a prompt alone: {}. "
    "Write the prompt for {}, as it is or in one pair of <prompt> tags, and nothing else."
)

_SHORT = 400  # the maximum length of actions that are likely to be repeated
_read_before = lru_cache(maxsize=1 << 10)(read_action)

_NAMES = ("prompt", "action", "operator", "target", "answer")
_TAG = re.compile(rf"<(/?)({'|'.join(_NAMES)})>", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class CanvasDraft:
    """The immutable state between two turns.

    Attributes:
        workflow: the workflow so far.
        waiting: the action that waits for prompts, or None.
    """

    workflow: Workflow = field(default_factory=Workflow)
    waiting: Add | Modify | None = None

    @property
    def asked(self) -> OperatorNode | None:
        """The operator whose prompt is requested, or None."""
        return None if self.waiting is None else next(_unprompted(_node(self.waiting)))[1]

    @property
    def identity(self) -> str:
        """A digest of 64 hex digits, equal if and only if the drafts are."""
        if self.waiting is None:
            return self.workflow.identity
        where = self.waiting.target if isinstance(self.waiting, Modify) else self.waiting.position
        return stable_hash([self.workflow.identity, form(_node(self.waiting)), where])


class TurnResult(NamedTuple):
    """The outcome of a turn.

    Attributes:
        draft: the draft after it.
        action: the action that was applied or waits, or None.
        reason: why nothing was done, a sentence for the policy; otherwise empty.
        repairs: the tolerated errors in the action or the prompt.
        edited: whether the workflow was edited, so that it must run.
        finished: whether it was submitted.
    """

    draft: CanvasDraft
    action: Action | None = None
    reason: str = ""
    repairs: tuple[Repair, ...] = ()
    edited: bool = False
    finished: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the text was valid and the rules allowed the action."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Drafting:
    """The rules of turns.

    Attributes:
        language: the language of workflows.
        finish: the requirements for submitting a workflow.
        prompting: `"inline"` or `"two_phase"`.
        strict: whether to reject actions and prompts that need repairs.
        offer: the operators with their descriptions.

    Raises:
        BadSetting: no workflow of the language meets the requirements.
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
        """Return the outcome of a policy's text or object; never raises."""
        if draft.waiting is not None:
            text = written if isinstance(written, str) else ""
            meant = "<action>" in text.lower() or text.lower().strip() == "finish"
            reading = self._read(written, strict=self.strict or not meant)
            if reading.action is None:
                return self._prompted(text, draft, draft.waiting)
            return self._done(reading.action, CanvasDraft(draft.workflow), draft, reading.repairs, circumstances)
        reading = self._read(written, strict=self.strict)
        if reading.action is None:
            return TurnResult(draft, reason=reading.reason)
        return self._done(reading.action, draft, draft, reading.repairs, circumstances)

    def _read(self, written: str | Mapping[str, Any], *, strict: bool) -> Reading:
        # Operators of users may be redefined and then parse differently.
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
        """Apply `action` to `draft`; return the draft `before` if it is rejected."""
        edit = apply(action, draft.workflow, self.language, self.finish, about)
        if not edit.accepted:
            return TurnResult(before, reason=edit.reason)
        if self.prompting == "two_phase" and isinstance(action, (Add, Modify)) and any(_unprompted(_node(action))):
            return TurnResult(CanvasDraft(draft.workflow, action), action, repairs=repairs)
        edited = not isinstance(action, Finish)
        return TurnResult(CanvasDraft(edit.workflow), action, repairs=repairs, edited=edited, finished=edit.finished)

    def _prompted(self, text: str, draft: CanvasDraft, waiting: Add | Modify) -> TurnResult:
        """Use `text` as the requested prompt."""
        prompt, repairs = prompt_in(text)
        place, operator = next(_unprompted(_node(waiting)))
        if repairs and self.strict:
            kinds = ", ".join(repair.kind for repair in repairs)
            return TurnResult(draft, reason=UNCLEAR_PROMPT.format(kinds, operator.name))
        if not SHORTEST_INSTRUCTION <= len(prompt) <= LONGEST_INSTRUCTION:
            return TurnResult(draft, reason=NO_PROMPT.format(operator.name))
        node = Workflow((_node(waiting),)).replace(place, replace(operator, instruction=prompt)).nodes[0]
        if isinstance(waiting, Add):
            return self._done(replace(waiting, node=node), CanvasDraft(draft.workflow), draft, repairs, None)
        assert isinstance(node, OperatorNode), "an operator is replaced by an operator"
        return self._done(replace(waiting, operator=node), CanvasDraft(draft.workflow), draft, repairs, None)


def prompt_in(text: str) -> tuple[str, tuple[Repair, ...]]:
    """Return the prompt in a text, and the tolerated errors.

    The prompt is the content of the first prompt tag, or everything except thoughts and known tags. Takes linear time
    for any text.
    """
    found = _PromptFinder(text)
    around = "".join(found.around).strip()
    if not found.prompts:
        return cleaned(around), tuple(found.repairs.values())
    if around:
        found.note("text_around", around)
    if len(found.prompts) > 1:
        found.note("prompts_left")
    return cleaned(found.prompts[0]), tuple(found.repairs.values())


class _PromptFinder:
    """The prompts in a text, found in one pass over its tags; at most one tag is open at any time.

    Attributes:
        prompts: the contents of prompt tags.
        around: the pieces of text outside of prompt tags and thoughts.
        repairs: the tolerated errors, the first of each kind.
    """

    def __init__(self, text: str) -> None:
        self.prompts: list[str] = []
        self.around: list[str] = []
        text, thoughts = spoken(text)
        self.repairs: dict[str, Repair] = {repair.kind: repair for repair in thoughts}
        opened, start = "", 0
        for tag in _TAG.finditer(text):
            name, closing = tag[2].lower(), bool(tag[1])
            if opened and not (closing and name == opened):
                continue  # free text ends only with its own tag
            self._keep(opened, text[start : tag.start()])
            starts_prompt = not opened and name == "prompt" and not closing
            if not opened and not starts_prompt:
                self.note("stray_tag", name)
            opened, start = name if starts_prompt else "", tag.end()
            if tag[2] != name:
                self.note("tag_case", tag[2])
        self._keep(opened, text[start:])
        if opened == "prompt":
            self.note("unclosed_tag", opened)

    def note(self, kind: str, detail: str = "") -> None:
        """Add a repair unless there is one of this kind."""
        self.repairs.setdefault(kind, Repair.of(kind, detail))

    def _keep(self, opened: str, part: str) -> None:
        (self.prompts if opened else self.around).append(part)


def _node(action: Add | Modify) -> Node:
    return action.node if isinstance(action, Add) else action.operator


def _unprompted(node: Node) -> Iterator[tuple[str, OperatorNode]]:
    """Yield the operators of `node` without instruction, with their ids in a workflow of only this node."""
    for place in Workflow((node,)).places.values():
        if isinstance(place.node, OperatorNode) and not place.node.instruction:
            yield place.id, place.node


PROMPTINGS = ("inline", "two_phase")
"""Instructions are part of the action, or requested in separate turns, as published."""


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
        operators: the usable operators; None for all of the language.
        finish: one of `FINISH_RULES`.
        prompting: one of `PROMPTINGS`.
        strict: whether to reject actions that need repairs.
        descriptions: name of an operator -> a description that replaces its own.

    Raises:
        UnknownOption: a name is unknown, or a description is for an operator that is not usable.
        BadSetting: no workflow could be finished.
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
