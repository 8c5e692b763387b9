"""The published written form: `<action>add</action><operator>Plan</operator>`.

The strict form is a row of tags and nothing else. The lenient one takes what models write around it and instead of it,
finds the first action in it, and says what it had to overlook. Both read any text in linear time. Within a tag, `&lt;`,
`&gt;` and `&amp;` stand for what they stand for in XML; a bare `<` or `&` is itself.
"""

from __future__ import annotations

import re

from agentgym_flow.envs.canvas.actions.fields import FIELDS
from agentgym_flow.envs.canvas.workflow.text import Repair
from agentgym_flow.errors import BadWorkflow

THINKING = ("think", "thinking", "thought", "reasoning", "scratchpad")
"""Tags whose content is none of an action."""

NO_ACTION = "There is no action in this text. Write one, such as <action>add</action><operator>Plan</operator>."
ONLY_THINKING = "There is only thinking in this text. Write an action after it."

_FREE = ("prompt", "answer")
_OPENING = re.compile(r"<([a-z_]{1,20})>", re.ASCII)
_ANY_TAG = re.compile(rf"([<\[])\s*+(/?)\s*+({'|'.join((*FIELDS, *THINKING))})\s*+[>\]]", re.IGNORECASE | re.ASCII)
_ENTITY = re.compile("&(lt|gt|amp);")
_CHARACTERS = {"lt": "<", "gt": ">", "amp": "&"}


def to_tags(fields: dict[str, str | list[str] | int]) -> str:
    """Return the tags of the fields of an action."""
    return "".join(f"<{name}>{_escaped(value)}</{name}>" for name, value in fields.items())


def _escaped(value: str | list[str] | int) -> str:
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _content(text: str) -> str:
    return _ENTITY.sub(lambda match: _CHARACTERS[match[1]], text).strip()


def read_tags(text: str) -> dict[str, list[str]]:
    """Return the fields of a row of tags. Raises `BadWorkflow` when `text` is anything else."""
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


def find_tags(text: str) -> tuple[dict[str, list[str]], list[Repair]]:
    """Return the fields of the first action in `text`, and what was overlooked. Raises `BadWorkflow` for none."""
    finder = _Finder(text)
    finder.run()
    if "action" not in finder.fields:
        raise BadWorkflow(ONLY_THINKING if finder.thought else NO_ACTION)
    return finder.fields, finder.repairs


class _Finder:
    """One pass over the tags of a text; at any time at most one tag is open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: dict[str, list[str]] = {}
        self.repairs: list[Repair] = []
        self.thought = False
        self._open = ""
        self._start = 0  # where the content of the open tag begins, or the text after the last closed one

    def run(self) -> None:
        for tag in _ANY_TAG.finditer(self.text):
            name, closing = tag[3].lower(), bool(tag[2])
            if self._open:
                own = closing and name == self._open
                if not own and self._open in (*_FREE, *THINKING):
                    continue  # free text ends with its own tag alone
                if name == self._open and not closing:
                    self._note("unclosed_tag", name)  # it was only mentioned
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
            self._begin(name, closing=closing)
            self._start = tag.end()
            self._look(tag)
        if self._open:
            self._close(len(self.text), unclosed=True)
        else:
            self._between(len(self.text))

    def _begin(self, name: str, *, closing: bool) -> None:
        if not closing:
            self._open = name
        elif name in THINKING:
            # Some chat templates write the opening tag themselves; then all before the closing one is thinking.
            self.fields.clear()
            self.repairs.clear()
            self._think()
        else:
            self._note("stray_tag", name)

    def _close(self, end: int, unclosed: bool) -> None:
        name, self._open = self._open, ""
        if name in THINKING:
            self._think()
            return
        if unclosed:
            self._note("unclosed_tag", name)
        if name in self.fields and name != "prompt":
            self._note("repeated_field", name)
            return
        self.fields.setdefault(name, []).append(_content(self.text[self._start : end]))

    def _think(self) -> None:
        self.thought = True
        self._note("thinking")

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
