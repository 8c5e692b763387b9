"""Plain values: untrusted JSON, settings in YAML, types, finite numbers, texts to display, the package's JSON files."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import resources
from itertools import chain
from numbers import Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from agentgym_flow.errors import AgentGymFlowError, BadData, MissingExtra, shown

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
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise error(f"{where}: not JSON ({problem!s:.200})") from None
    except ValueError as problem:
        raise error(f"{where}: {problem!s:.200}") from None
    if is_deep(value):
        raise error(f"{where}: a value is nested more than {MAX_DEPTH} deep")
    return value


def settings_in(file: Path, error: type[AgentGymFlowError]) -> dict[str, Any]:
    """Return the settings in a YAML file; none if it is empty.

    Raises `error` if it cannot be read or holds something else, and `MissingExtra` if PyYAML is not installed.
    """
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra.of("yaml", "train") from None
    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as problem:
        raise error(f"{file} cannot be read ({problem!s:.200})") from None  # PyYAML lets some errors of values through
    if not isinstance(found, dict | None):
        raise error(f"there are no settings in {file}")
    return found or {}


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
    elif "matching regex" in what and (told := [one.description for one in _metas(kind) if one.description]):
        what = f"must be {told[0]}"
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


def _metas(kind: Any) -> Iterator[msgspec.Meta]:
    """Yield the constraints of a type or of its alternatives."""
    if get_origin(kind) is Annotated:
        yield from (one for one in get_args(kind)[1:] if isinstance(one, msgspec.Meta))
    elif get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from _metas(part)


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
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the name {twice!r:.80} occurs twice in one object")
    return row


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits:.40} is beyond the largest one that fits, {sys.float_info.max:.2g}")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_no_repeats, parse_constant=_no_constant, parse_float=_finite)


def decode(text: str) -> Any:
    """Return the value of a JSON text.

    Raises `json.JSONDecodeError` if it is not JSON, and another `ValueError` with the reason if a name occurs twice in
    an object, a number is NaN, infinite or too large, or the nesting is too deep.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("lists and objects are nested too deeply") from None
    except ValueError as error:
        raise ValueError("an integer has too many digits" if "integer string" in str(error) else str(error)) from None


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


# ---------------------------------------------------------------- JSON files of the package
class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object. Fields without a default must be there."""


def read_content(package: str, file: str, kind: type[T]) -> T:
    """Return the content of a JSON file in a package, as `kind`.

    A JSON object becomes a `Content` or dict, a list becomes a tuple, and a text becomes a member of an enumeration by
    its value.

    Args:
        package: such as `agentgym_flow.envs.webshop.generator`.
        file: the name of the file, such as `departments/beauty.json`.
        kind: such as `tuple[X, ...]` or `dict[str, X]`, where `X` is a `Content`.

    Raises `BadData` if a value has a wrong type, with its position in the file.
    """
    return typed(json.loads(resources.files(package).joinpath(file).read_text("utf-8")), kind, BadData, file)
