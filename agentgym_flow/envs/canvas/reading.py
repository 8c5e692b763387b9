"""Parses actions from the text of policies, as tags or JSON, and writes them.

Parsing never raises. Invalid text gives a reason, and tolerated errors give a list of repairs, which trainers can
count, or reject with `strict=True`. Words in sentences are never interpreted: "do not finish yet" is not `finish`.

Tags are the published form, `<action>add</action><operator>Plan</operator>`. The strict form is a sequence of tags and
nothing else. The lenient form removes thoughts (`prompts.thoughts`), accepts surrounding text and common errors,
takes the first action, and lists the repairs. Both parse any text in linear time. Within a tag, `&lt;`, `&gt;` and
`&amp;` have their meaning in XML; a bare `<` or `&` is itself.

JSON is an object with the same fields, `{"action": "add", "operator": "Plan", "prompt": "..."}`. `operators` and
`prompt` can be lists; `count` and `position` are numbers. Programs and structured decoders can pass such an object
directly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentgym_flow.envs.canvas.actions import FIELDS, Action, Add, Finish, action_of, fields_of
from agentgym_flow.envs.canvas.workflow import OperatorNode
from agentgym_flow.envs.canvas.workflow.rules import Language
from agentgym_flow.envs.canvas.workflow.text import Repair
from agentgym_flow.errors import BadWorkflow
from agentgym_flow.prompts import TAGS as THOUGHT_TAGS
from agentgym_flow.prompts import without_thoughts


class Reading(NamedTuple):
    """The outcome of parsing.

    Attributes:
        action: the action, or None.
        reason: why there is none, a sentence for the policy; empty if there is one.
        repairs: the tolerated errors.
    """

    action: Action | None
    reason: str = ""
    repairs: tuple[Repair, ...] = ()


def read_action(written: str | Mapping[str, Any], language: Language | None = None, *, strict: bool = False) -> Reading:
    """Parse an action; never raises, whatever the text or object.

    Args:
        written: tags, or JSON as text or as an object.
        language: the language; None for the default one.
        strict: whether to reject text that needs repairs.
    """
    language = language or Language()
    try:
        return _read(written, language, lenient=False)
    except BadWorkflow as refusal:
        reason = refusal
    if strict:
        return Reading(None, str(reason))
    said, repairs = spoken(written) if isinstance(written, str) else (written, ())
    if isinstance(said, str):
        if repairs and not said.strip():
            return Reading(None, ONLY_THINKING)
        word = said.strip().lower()  # of `finish`, or of an operator to add
        bare: Action | None = Finish() if word == "finish" else None
        bare = bare or next((Add(OperatorNode(name)) for name in language.known if name.lower() == word), None)
        if bare is not None:
            return Reading(bare, repairs=(*repairs, Repair.of("bare_word", said.strip())))
    try:
        reading = _read(said, language, lenient=True)
    except BadWorkflow as refusal:
        return Reading(None, str(refusal))
    return reading._replace(repairs=(*repairs, *reading.repairs))


def write_action(action: Action, language: Language | None = None, form: Literal["tags", "json"] = "tags") -> str:
    """Return the written form of `action`, which parses to the same action in the same language."""
    fields = fields_of(action, language or Language())
    if form == "json":
        return json.dumps(fields)
    texts = {name: ", ".join(value) if isinstance(value, list) else str(value) for name, value in fields.items()}
    return "".join(
        f"<{name}>{text.replace('&', '&amp;').replace('<', '&lt;')}</{name}>" for name, text in texts.items()
    )


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


# ---------------------------------------------------------------- tags
NO_ACTION = "There is no action in this text. Write one, such as <action>add</action><operator>Plan</operator>."
ONLY_THINKING = "There is only thinking in this text. Write an action after it."

_FREE = ("prompt", "answer")
_OPENING = re.compile(r"<([a-z_]{1,20})>", re.ASCII)
_ANY_TAG, _THOUGHT = (
    re.compile(rf"([<\[])\s*+(/?)\s*+({'|'.join(map(re.escape, names))})\s*+[>\]]", re.IGNORECASE | re.ASCII)
    for names in (FIELDS, THOUGHT_TAGS)
)
_ENTITY = re.compile("&(lt|gt|amp);")
_CHARACTERS = {"lt": "<", "gt": ">", "amp": "&"}


def _content(text: str) -> str:
    return _ENTITY.sub(lambda match: _CHARACTERS[match[1]], text).strip()


def read_tags(text: str) -> dict[str, list[str]]:
    """Parse a sequence of tags strictly. Raises `BadWorkflow` for any other text."""
    fields: dict[str, list[str]] = {}
    text = text.strip()
    position = 0
    while position < len(text):
        opening = _OPENING.match(text, position)
        if opening is None or opening[1] not in FIELDS:
            raise BadWorkflow(
                NO_ACTION if "action" not in fields else "there is something else than tags of the action"
            )
        name = opening[1]
        end = text.find(f"</{name}>", opening.end())
        if end < 0:
            raise BadWorkflow(f"the tag <{name}> is not closed")
        if name in fields and name != "prompt":
            raise BadWorkflow(f"there is more than one <{name}>; write one action at a time")
        fields.setdefault(name, []).append(_content(text[opening.end() : end]))
        position = end + len(name) + 3
        while position < len(text) and text[position].isspace():
            position += 1
    if "action" not in fields:
        raise BadWorkflow(NO_ACTION)
    return fields


def spoken(text: str) -> tuple[str, tuple[Repair, ...]]:
    """Return a text without its thoughts, and the repair for them. Thoughts in prompts and answers are kept."""
    exact = _THOUGHT.sub(r"<\2\3>", text)
    said = without_thoughts(exact, free=_FREE)
    return (text, ()) if said == exact else (said, (Repair.of("thinking"),))


def find_tags(text: str) -> tuple[dict[str, list[str]], list[Repair]]:
    """Return the fields of the first action in `text`, and the repairs. Raises `BadWorkflow` if there is none."""
    finder = _TagFinder(text)
    finder.run()
    if "action" not in finder.fields:
        raise BadWorkflow(NO_ACTION)
    return finder.fields, finder.repairs


class _TagFinder:
    """One pass over the tags of a text; at any time at most one tag is open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: dict[str, list[str]] = {}
        self.repairs: list[Repair] = []
        self._open = ""
        self._start = 0  # start of the content of the open tag, or of the text after the last closed one

    def run(self) -> None:
        for tag in _ANY_TAG.finditer(self.text):
            name, closing = tag[3].lower(), bool(tag[2])
            if self._open:
                own = closing and name == self._open
                if not own and self._open in _FREE:
                    continue  # free text ends only with its own tag
                if name == self._open and not closing:
                    self._note("unclosed_tag", name)  # the first one was only mentioned
                    self._open = ""
                else:
                    self._close(tag.start(), unclosed=not own)
                self._start = tag.end() if own else tag.start()
                if own:
                    self._look(tag)
                    continue
            self._between(tag.start())
            if name == "action" and not closing and "action" in self.fields:
                self._note("more_actions")
                return
            if closing:
                self._note("stray_tag", name)
            else:
                self._open = name
            self._start = tag.end()
            self._look(tag)
        if self._open:
            self._close(len(self.text), unclosed=True)
        else:
            self._between(len(self.text))

    def _close(self, end: int, unclosed: bool) -> None:
        name, self._open = self._open, ""
        if unclosed:
            self._note("unclosed_tag", name)
        if name in self.fields and name != "prompt":
            self._note("repeated_field", name)
            return
        self.fields.setdefault(name, []).append(_content(self.text[self._start : end]))

    def _between(self, end: int) -> None:
        around = self.text[self._start : end].strip()
        if around:
            self._note("text_around", around)

    def _look(self, tag: re.Match[str]) -> None:
        if tag[3] != tag[3].lower():
            self._note("tag_case", tag[3])
        if tag[1] == "[":
            self._note("brackets", tag[0])

    def _note(self, kind: str, detail: str = "") -> None:
        """Note the first repair of each kind."""
        if all(repair.kind != kind for repair in self.repairs):
            self.repairs.append(Repair.of(kind, detail))


# ---------------------------------------------------------------- JSON
NO_OBJECT = 'There is no JSON object here. Write one, such as {"action": "add", "operator": "Plan"}.'

_LISTS = ("operators", "prompt")
_NUMBERS = ("count", "position")


def read_json(text: str) -> dict[str, Any]:
    """Parse a JSON object strictly. Raises `BadWorkflow` for any other text."""
    found = _decoded(text.strip())
    if found[1] != len(text.strip()):
        raise BadWorkflow("there is something after the JSON object; write one action at a time")
    return found[0]


def find_json(text: str) -> tuple[dict[str, Any], list[Repair]]:
    """Return the JSON object at the first `{` in `text`, with a repair for text around it. Raises `BadWorkflow`."""
    start = text.find("{")
    if start < 0:
        raise BadWorkflow(NO_OBJECT)
    found, end = _decoded(text[start:])
    around = (text[:start] + text[start + end :]).strip()
    return found, [Repair.of("text_around", around)] if around else []


def _decoded(text: str) -> tuple[dict[str, Any], int]:
    try:
        found, end = json.JSONDecoder(object_pairs_hook=_once).raw_decode(text)
    except (ValueError, RecursionError):  # nested too deep, or a number with thousands of digits
        raise BadWorkflow(NO_OBJECT) from None
    if not isinstance(found, dict):
        raise BadWorkflow(NO_OBJECT)
    return found, end


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadWorkflow("a field occurs twice in the JSON object")
    return found


def fields_in(found: Mapping[str, Any], *, lenient: bool = False) -> tuple[dict[str, list[str]], list[Repair]]:
    """Return the fields of an object, and the repairs. Raises `BadWorkflow` for a wrong type.

    Unless `lenient`, unknown fields and null are errors as well.
    """
    fields: dict[str, list[str]] = {}
    repairs: list[Repair] = []
    for name, value in found.items():
        known = isinstance(name, str) and name in FIELDS
        if lenient and (not known or value is None):
            repairs.append(Repair.of("needless_field", str(name)[:60]))
            continue
        if not known:
            raise BadWorkflow(f"there is no field {str(name)[:20]!a}; the fields are {', '.join(FIELDS)}")
        fields[name] = _texts(name, value)
    return fields, repairs[:10]


def _texts(name: str, value: Any) -> list[str]:
    if name in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
        return [str(value) if abs(value) < 10**6 else "1000000"]
    if isinstance(value, str):
        return [value]
    if name in _LISTS and isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return list(value)
    kinds = "a number" if name in _NUMBERS else "a text or a list of texts" if name in _LISTS else "a text"
    raise BadWorkflow(f"the field {name} is {kinds}")
