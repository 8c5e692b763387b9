"""Plain values: untrusted JSON, finite numbers, and text that is safe to display."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeGuard

from agentgym_flow.errors import AgentGymFlowError

MAX_DEPTH = 64
"""The deepest nesting of lists and objects that is accepted."""

MOST_BYTES = 1 << 22
"""The largest file that is accepted."""


def decode_file(raw: bytes, error: type[AgentGymFlowError], where: str) -> Any:
    """Return the value of a JSON file. Raises `error`, its message starting with `where`, if it is invalid."""
    if len(raw) > MOST_BYTES:
        raise error(f"{where}: more than {MOST_BYTES:,} bytes")
    try:
        value = decode(raw.decode("utf-8"))
    except (ValueError, RecursionError) as problem:  # UnicodeDecodeError among them
        raise error(f"{where}: not JSON ({problem!s:.200})") from None
    if is_deep(value):
        raise error(f"{where}: a value is nested more than {MAX_DEPTH} deep")
    return value


def finite(value: Any) -> Any:
    """Return `value` with None in place of NaN and infinities, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def is_deep(value: Any) -> bool:
    """Return whether a value is nested more than `MAX_DEPTH` deep."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        layer = [
            item
            for outer in layer
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return False
    return True


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return row


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


decode = json.JSONDecoder(object_pairs_hook=_no_repeats, parse_constant=_no_constant).decode
"""Returns the value of a JSON text. Raises `ValueError` or `RecursionError` if it is invalid."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a number that fits a finite float, also one of NumPy's; booleans are not numbers."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def printable(text: str) -> str:
    """Return `text` with characters that HTML and XML cannot hold (controls, lone surrogates) replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))
