"""Typed access to the fields of published records; errors name the field and its value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_flow._util.records import no_value
from agentgym_flow.errors import BadData

Record = Mapping[str, Any]


def present(record: Record, *names: str) -> str:
    """Return the first of `names` that is a field with a value. Raises `BadData` if all are missing or null."""
    name = next((name for name in names if record.get(name) is not None), None)
    if name is None:
        raise BadData(f"{no_value(record, names)}.")
    return name


def text(record: Record, *names: str, empty: bool = False) -> str:
    """Return the first existing field of `names` as text; numbers are converted.

    Raises `BadData` if there is none, or it is not a text, or it is blank and `empty` is False.
    """
    name = present(record, *names)
    value = record[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise BadData(f"the field {name} must be a text, got {value!r:.60}.")
    if not empty and not value.strip():
        raise BadData(f"the field {name} is blank.")
    return value


def optional(record: Record, *names: str) -> str:
    """Return the first existing field as `text` does, which may be blank; empty if there is none."""
    return text(record, *names, empty=True) if any(record.get(name) is not None for name in names) else ""


def texts(value: Any, name: str) -> tuple[str, ...]:
    """Return a list of texts; a single text becomes a list of one. Raises `BadData` for other values."""
    if isinstance(value, str):
        return (value,)
    found = items(value, name)
    wrong = next((item for item in found if not isinstance(item, str)), None)
    if wrong is not None:
        raise BadData(f"the field {name} must be a list of texts, got {wrong!r:.60} in it.")
    return tuple(found)


def items(value: Any, name: str) -> Sequence[Any]:
    """Return `value`. Raises `BadData` unless it is a list."""
    if not isinstance(value, list | tuple):
        raise BadData(f"the field {name} must be a list, got {value!r:.60}.")
    return value


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return `value`. Raises `BadData` unless it is an object."""
    if not isinstance(value, Mapping):
        raise BadData(f"the field {name} must be an object, got {value!r:.60}.")
    return value


def decoded(value: Any, name: str) -> Any:
    """Decode a field with JSON as text; return other values unchanged. Raises `BadData` for invalid JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise BadData(f"the field {name} must be JSON in a text: {error}.") from error


def distinct(found: Sequence[str]) -> tuple[str, ...]:
    """Return the stripped texts without duplicates and blank ones, in order."""
    return tuple(dict.fromkeys(stripped for one in found if (stripped := one.strip())))
