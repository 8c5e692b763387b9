"""Plain data as JSON, and back: the messages between the two sides.

`decode` returns only plain data, whatever the other side sends: never an object with methods of its own.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LARGEST = 1 << 62  # larger integers are sent as hexadecimal text, for which Python has no limit of digits
_MOST_ITEMS = 100_000


class ObjectReference:
    """A reference, by number, to an object in the program; the tests can only pass it back."""

    def __init__(self, number: int) -> None:
        object.__setattr__(self, "number", number)


class NotPlain(Exception):
    """A value is not plain data; the message names its type."""


def encode(value: object) -> Any:
    """Return JSON for `value`. Raises `NotPlain` for anything but plain data, and for data that contains itself.

    Plain data are `None`, numbers, text, bytes, lists, tuples, dictionaries, sets, ranges, Python's own types, and
    iterators, which are exhausted. A value of a derived class is sent as its base class.
    """
    try:
        return _encode(value)
    except RecursionError:
        raise NotPlain("nested too deeply") from None


def _encode(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -_LARGEST < number < _LARGEST else ["int", hex(number)]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, range):
        return ["range", *map(_encode, (value.start, value.stop, value.step))]
    if isinstance(value, dict):
        return ["dict", *([_encode(key), _encode(entry)] for key, entry in value.items())]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, *map(_encode, value)]
    if isinstance(value, Iterator):
        return ["iterator", *map(_encode, islice(value, _MOST_ITEMS))]
    if isinstance(value, type):
        name = value.__name__
        if getattr(builtins, name, None) is value:
            return ["type", name]
    if isinstance(value, ObjectReference):
        return ["held", object.__getattribute__(value, "number")]
    raise NotPlain(type(value).__name__)


def decode(data: Any, held: Mapping[int, Any] | None = None) -> Any:
    """Return the value that `encode` was given. Raises `ValueError` or `TypeError` for data that it never returns.

    `held` has the program's objects by number. The tests decode without it, so they never get such an object.
    """
    if not isinstance(data, list):
        return data
    kind, *parts = data
    if kind == "int":
        return int(parts[0], 16)
    if kind == "complex":
        return complex(*parts)
    if kind == "bytes":
        return bytes.fromhex(parts[0])
    if kind == "type":
        found = getattr(builtins, parts[0], None)
        if not isinstance(found, type):
            raise ValueError(f"no type of Python: {parts[0]!r}")
        return found
    if kind == "held":
        if held is None or parts[0] not in held:
            raise ValueError("nothing is kept under this number")
        return held[parts[0]]
    items = [decode(part, held) for part in parts] if kind != "dict" else []
    if kind == "range":
        return range(*items)
    if kind == "dict":
        return {decode(key, held): decode(entry, held) for key, entry in parts}
    if kind == "iterator":
        return iter(items)
    for sequence in (list, tuple, set, frozenset):
        if kind == sequence.__name__:
            return sequence(items)
    raise ValueError(f"no plain data: {kind!r}")
