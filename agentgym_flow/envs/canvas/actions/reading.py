"""Reading an action out of what a policy wrote, in either form, and writing one down.

No text raises. What cannot be read comes with a reason, and what was read only with good will with a list of repairs,
so that whoever trains can count them, or refuse them with `strict=True`. Nothing is guessed from words in a sentence:
"do not finish yet" is no `finish`, and a failure to answer never becomes an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentgym_flow.envs.canvas.actions.fields import action_of, fields_of
from agentgym_flow.envs.canvas.actions.kinds import Action, Add, Finish
from agentgym_flow.envs.canvas.actions.structured import fields_in, find_json, read_json, to_json
from agentgym_flow.envs.canvas.actions.tags import find_tags, read_tags, to_tags
from agentgym_flow.envs.canvas.workflow.language import Language
from agentgym_flow.envs.canvas.workflow.nodes import OperatorNode
from agentgym_flow.envs.canvas.workflow.text import Repair
from agentgym_flow.errors import BadWorkflow


class Reading(NamedTuple):
    """What a text was read as.

    Attributes:
        action: the action; None when there is none.
        reason: why there is none, in a sentence for the policy; empty when there is one.
        repairs: what was overlooked to read it; empty for a text that is right.
    """

    action: Action | None
    reason: str = ""
    repairs: tuple[Repair, ...] = ()


def read_action(written: str | Mapping[str, Any], language: Language | None = None, *, strict: bool = False) -> Reading:
    """Return what is written as an action; never raises for any text or object.

    Args:
        written: tags, or JSON as text or as an object.
        language: what can be written; the default one if None.
        strict: read nothing that has to be repaired.
    """
    language = language or Language()
    try:
        return _read(written, language, lenient=False)
    except BadWorkflow as refusal:
        reason = refusal
    if strict:
        return Reading(None, str(reason))
    bare = _bare(written.strip().lower(), language) if isinstance(written, str) else None
    if bare is not None and isinstance(written, str):
        return Reading(bare, repairs=(Repair.of("bare_word", written.strip()),))
    try:
        return _read(written, language, lenient=True)
    except BadWorkflow as refusal:
        return Reading(None, str(refusal))


def _bare(word: str, language: Language) -> Action | None:
    """Return the action that a word alone says: `finish`, or the name of an operator to add."""
    if word == "finish":
        return Finish()
    return next((Add(OperatorNode(name)) for name in language.known if name.lower() == word), None)


def write_action(action: Action, language: Language | None = None, form: Literal["tags", "json"] = "tags") -> str:
    """Return `action` in one of the written forms; it reads back as the same action under the same language."""
    fields = fields_of(action, language or Language())
    return to_json(fields) if form == "json" else to_tags(fields)


def _read(written: str | Mapping[str, Any], language: Language, *, lenient: bool) -> Reading:
    repairs: list[Repair] = []
    if isinstance(written, str):
        fields, repairs = _fields(written, lenient=lenient)
    else:
        fields, repairs = fields_in(written, lenient=lenient)
    action, more = action_of(fields, language, lenient=lenient)
    return Reading(action, repairs=(*repairs, *more))


def _fields(text: str, *, lenient: bool) -> tuple[dict[str, list[str]], list[Repair]]:
    if not lenient:
        if text.lstrip().startswith("{"):
            return fields_in(read_json(text))
        return read_tags(text), []
    try:
        return find_tags(text)
    except BadWorkflow:
        if "{" not in text:
            raise
    found, around = find_json(text)
    fields, repairs = fields_in(found, lenient=True)
    return fields, around + repairs
