"""The fields of a published record, of the type they must have; the error says which field, and what was there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_flow.errors import BadData

Record = Mapping[str, Any]


def text(record: Record, *names: str, empty: bool = False) -> str:
    """Return the first of the fields `names` that is there, as text; a number is written as one.

    Raises `BadData` when none is there, or it is no text, or blank and not `empty`.
    """
    name = next((name for name in names if record.get(name) is not None), None)
    if name is None:
        raise BadData(f"the field {' or '.join(names)} is missing; there are {', '.join(sorted(record)) or 'none'}.")
    value = record[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise BadData(f"the field {name} must be a text, got {value!r:.60}.")
    if not empty and not value.strip():
        raise BadData(f"the field {name} is blank.")
    return value


def optional(record: Record, *names: str) -> str:
    """Return the first of the fields that is there, as `text` does, blank or not; empty when none is there."""
    return text(record, *names, empty=True) if any(record.get(name) is not None for name in names) else ""


def texts(value: Any, name: str) -> tuple[str, ...]:
    """Return a list of texts, or one text as a list of it. Raises `BadData` for everything else."""
    if isinstance(value, str):
        return (value,)
    found = items(value, name)
    wrong = next((item for item in found if not isinstance(item, str)), None)
    if wrong is not None:
        raise BadData(f"the field {name} must be a list of texts, got {wrong!r:.60} in it.")
    return tuple(found)


def items(value: Any, name: str) -> Sequence[Any]:
    """Return a list. Raises `BadData` when `value` is none."""
    if not isinstance(value, list | tuple):
        raise BadData(f"the field {name} must be a list, got {value!r:.60}.")
    return value


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return an object. Raises `BadData` when `value` is none."""
    if not isinstance(value, Mapping):
        raise BadData(f"the field {name} must be an object, got {value!r:.60}.")
    return value


def decoded(value: Any, name: str) -> Any:
    """Return what a field says that holds JSON as text; another value unchanged. Raises `BadData` for broken JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise BadData(f"the field {name} must be JSON in a text: {error}.") from error


def distinct(found: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without blanks around them, each once, in their order; blank ones are left out."""
    return tuple(dict.fromkeys(stripped for one in found if (stripped := one.strip())))
