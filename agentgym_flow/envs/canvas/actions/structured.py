"""The structured form: a JSON object with the same fields, `{"action": "add", "operator": "Plan", "prompt": "..."}`.

`operators` and `prompt` can be lists, `count` and `position` are numbers. An object that is at hand already (a program
that acts, a structured decoder) is read without going through text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentgym_flow.envs.canvas.actions.fields import FIELDS
from agentgym_flow.envs.canvas.workflow.text import Repair
from agentgym_flow.errors import BadWorkflow

NO_OBJECT = 'There is no JSON object here. Write one, such as {"action": "add", "operator": "Plan"}.'

_LISTS = ("operators", "prompt")
_NUMBERS = ("count", "position")


def to_json(fields: dict[str, str | list[str] | int]) -> str:
    """Return the fields of an action as one line of ASCII JSON."""
    return json.dumps(fields)


def read_json(text: str) -> dict[str, Any]:
    """Return the object that `text` is. Raises `BadWorkflow` when it is anything else."""
    found = _decoded(text.strip())
    if found[1] != len(text.strip()):
        raise BadWorkflow("there is something after the JSON object; write one action at a time")
    return found[0]


def find_json(text: str) -> tuple[dict[str, Any], list[Repair]]:
    """Return the object that begins with the first `{` in `text`, and what stood around it. Raises `BadWorkflow`."""
    start = text.find("{")
    if start < 0:
        raise BadWorkflow(NO_OBJECT)
    found, end = _decoded(text[start:])
    around = (text[:start] + text[start + end :]).strip()
    return found, [Repair.of("text_around", around)] if around else []


def _decoded(text: str) -> tuple[dict[str, Any], int]:
    try:
        found, end = json.JSONDecoder(object_pairs_hook=_once).raw_decode(text)
    except (ValueError, RecursionError):  # too deep for the decoder, or a number of thousands of digits
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
    """Return the fields that an object has, and what was overlooked. Raises `BadWorkflow` for a wrong type.

    The strict reading also refuses unknown fields, and null.
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
