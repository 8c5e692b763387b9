"""What both sides share: plain data as JSON, and back; and the line of an exception.

`decode` returns only plain data, whatever the other side sends: never an object with methods of its own.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from itertools import islice, product

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LARGEST = 1 << 62  # larger integers are sent as hexadecimal text, for which Python has no limit of digits
_MOST_ITEMS = 100_000
_MOST_STEPS = 300_000  # in the search for an order of insertion: all rotations of 550 items, all moves of 65


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


def _is_unicode(text: str) -> bool:
    """Return whether a text has no surrogates, two of which JSON would join into one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -_LARGEST < number < _LARGEST else ["int", hex(number)]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text.isascii() or _is_unicode(text) else ["str", text.encode("utf-8", "surrogatepass").hex()]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes" if isinstance(value, bytes) else "bytearray", bytes(value).hex()]
    if isinstance(value, range):
        return ["range", *map(_encode, (value.start, value.stop, value.step))]
    if isinstance(value, dict):
        return ["dict", *([_encode(key), _encode(entry)] for key, entry in value.items())]
    if isinstance(value, (set, frozenset)):
        items = insertion(value)
        return ["set" if isinstance(value, set) else "frozenset", isinstance(items, dict), *map(_encode, items)]
    for kind in (list, tuple):
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


def insertion(value: set[Any] | frozenset[Any]) -> list[Any] | dict[Any, None]:
    """Return the items of a set such that a set made of them iterates in the same order.

    The order depends on when items with colliding hashes were inserted, and on the size of the table: a list makes it
    grow, a dictionary, like a literal in a program, allots it at once. Colliding items at the end of the table move to
    its front, so rotations are tried first, then orders with one item moved. If none of them has the same order, which
    is rare unless items were removed from the set, the result is in the order of `value`.
    """
    wanted = list(value)
    identities = list(map(id, wanted))
    for order in islice(_orders(wanted), _MOST_STEPS // (len(wanted) + 1)):
        for items in (order, dict.fromkeys(order)):
            if list(map(id, set(items))) == identities:
                return items
    return wanted


def _orders(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(len(items)):
        yield items[start:] + items[:start]
    for old, new in product(range(len(items)), repeat=2):
        order = list(items)
        order.insert(new, order.pop(old))
        yield order


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
    if kind == "str":
        return bytes.fromhex(parts[0]).decode("utf-8", "surrogatepass")
    if kind == "bytes":
        return bytes.fromhex(parts[0])
    if kind == "bytearray":
        return bytearray.fromhex(parts[0])
    if kind == "type":
        found = getattr(builtins, parts[0], None)
        if not isinstance(found, type):
            raise ValueError(f"no type of Python: {parts[0]!r}")
        return found
    if kind == "held":
        if held is None or parts[0] not in held:
            raise ValueError("nothing is kept under this number")
        return held[parts[0]]
    if kind in ("set", "frozenset"):
        at_once, *parts = parts
        items = [decode(part, held) for part in parts]
        return (set if kind == "set" else frozenset)(dict.fromkeys(items) if at_once else items)
    items = [decode(part, held) for part in parts] if kind != "dict" else []
    if kind == "range":
        return range(*items)
    if kind == "dict":
        return {decode(key, held): decode(entry, held) for key, entry in parts}
    if kind == "iterator":
        return iter(items)
    if kind in ("list", "tuple"):
        return items if kind == "list" else tuple(items)
    raise ValueError(f"no plain data: {kind!r}")


def line_in(file: str, error: BaseException) -> int | None:
    """Return the innermost line of `file` in the traceback of `error`, or of a syntax error; `None` if not found."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
