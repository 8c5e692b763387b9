"""Plain values: untrusted JSON and its types, finite numbers, and text that is safe to display."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from enum import Enum
from itertools import chain
from numbers import Real
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from agentgym_flow.errors import AgentGymFlowError, shown

T = TypeVar("T")

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A number except NaN and infinities, which JSON does not have."""

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


def typed(value: Any, kind: type[T], error: type[Exception], where: str) -> T:
    """Return a value of JSON as `kind`. Nothing is converted, but an integer is also a `float`.

    Raises `error` if it does not fit. The message starts with `where`; it says which part must be what, and what it is.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise error(f"{where}: {_explained(str(problem), value, kind)}") from None
    except UnicodeEncodeError:  # msgspec encodes a text that it finds in place of a number
        raise error(f"{where}: a text with half a character (a lone surrogate) is in place of another value") from None


_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_EXPECTED = re.compile(r"Expected (.*?)(?:, got .*)?")
_FIELD = re.compile(r"Object (?:contains (unknown)|missing required) field `(.*)`")


def _explained(problem: str, value: Any, kind: Any) -> str:
    """Return a message of msgspec, which has types and positions, with names and values."""
    what, _, path = problem.partition(" - at ")
    place = ""
    for step in _STEP.finditer(path):
        kind, names = _container(kind), ()
        key: Any = step[1] or step[2]
        if step[1]:
            kind = get_type_hints(kind, include_extras=True)[key]
        elif key == "...":  # some value of an object
            kind = get_args(kind)[-1]
            key = next(name for name, one in value.items() if not _fits(one, kind))
        else:
            key, names = int(key), getattr(kind, "_fields", ())
            kinds = get_args(kind) or [*get_type_hints(kind, include_extras=True).values()]
            kind = kinds[0] if len(kinds) == 1 or kinds[-1] is ... else kinds[key]
        value = value[key]
        place += f".{names[key] if names else key}" if step[1] or names else f"[{key!r:.80}]"
    place = place.removeprefix(".")
    if found := _FIELD.fullmatch(what):
        name = f"{place}.{found[2]}".removeprefix(".")
        known = ", ".join(get_type_hints(_container(kind)))
        return f"unknown field {name!r:.80}; the fields are {known}" if found[1] else f"field {name!r} is missing"
    subject = f"field {place!r} " if place else ""
    if what.startswith("Invalid enum value"):
        literals = [one for one in _alternatives(kind) if get_origin(one) is Literal]
        enums = [one for one in _alternatives(kind) if isinstance(one, type) and issubclass(one, Enum)]
        choices = [*chain(*map(get_args, literals)), *(member.value for one in enums for member in one)]
        what = f"must be one of {', '.join(map(repr, choices))}"
    elif expected := _EXPECTED.fullmatch(what):
        what = f"must be {expected[1].replace('`', '').replace('array', 'list')}"
    elif what.endswith("out of range"):
        what = "must be a finite number"
    else:
        return f"{subject and f'field {place!r}: '}{what}"
    return f"{subject}{what}, found {'a name that is not' if '`key`' in path else shown(value)}"


def _alternatives(kind: Any) -> list[Any]:
    """Return the types of a union, without annotations; a list of one for any other type."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [part for one in get_args(kind) for part in _alternatives(one)]
    return [kind]


def _container(kind: Any) -> Any:
    """Return that alternative of a type that has parts."""
    kinds = _alternatives(kind)
    has_parts = (one for one in kinds if hasattr(one, "__annotations__") or get_origin(one) not in (None, Literal))
    return next(has_parts, kinds[0])


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return False
    return True


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
