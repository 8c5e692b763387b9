"""Messages with weights, from a trainer to the manager and from there to workers; `weight_store` keeps them.

A message is full, or a delta to weights that the receiver has: a safetensors file. A delta has the new values of a
tensor with their places, not differences, so the result is exact for every type, and applying a message twice has the
same effect as once. Every message has the SHA-256 of the resulting weights.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch

from agentgym_flow._util.http import LARGE, large_room
from agentgym_flow.core import stable_hash
from agentgym_flow.errors import BadData, shown

State = Mapping[str, torch.Tensor]
Bits = npt.NDArray[Any]
Rows = Mapping[str, list[Any]]
"""For each tensor of some weights its type, its shape, and the SHA-256 of its bytes."""

FULL, DELTA, LORA = "full", "delta", "lora"
KINDS = (FULL, DELTA, LORA)
"""The kinds of messages, for statistics: a message with tensors of adapters only is `lora`."""

_SCHEMA = "agentgym_flow.weights/1"
_DENSE, _INDICES, _MASK, _VALUES = "dense/", "indices/", "mask/", "values/"
_MOST_INDEXED = 1 << 31
_SAMPLES, _SAMPLE = 32, 4096  # parts of a tensor that are compared first, and bytes of each
_WORTHWHILE = 0.9
_LARGEST_HEADER = 100_000_000  # as in safetensors
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
"""The names of types in safetensors."""
_TYPE_NAMES = {dtype: name for name, dtype in _TYPES.items()}

with warnings.catch_warnings():  # PyTorch warns once in a process; nobody writes to tensors in a message
    warnings.simplefilter("ignore")
    torch.frombuffer(b"0", dtype=torch.uint8)


class Header(NamedTuple):
    """The header of a message.

    Attributes:
        kind: one of `KINDS`.
        digest: of the resulting weights, see `digest`.
        base: the digest of the weights that a delta applies to; empty for a full message.
        gone: names of tensors in the base that the new weights do not have.
        names: of the tensors that are sent as a whole; None if others are sent in part.
    """

    kind: str
    digest: str
    base: str
    gone: tuple[str, ...]
    names: frozenset[str] | None


def digest(state: State) -> str:
    """Return the SHA-256 (hex) of names, types, shapes and bytes; the order of the tensors does not matter."""
    return digest_of_rows(rows_of(state))


def rows_of(state: State) -> dict[str, list[Any]]:
    """Return what the digest of weights is computed from, with one thread for each core."""
    of = {name: (tensor.dtype, list(tensor.shape), _bits(tensor).data) for name, tensor in state.items()}
    return _hashed(of)


def rows_in(message: bytes) -> dict[str, list[Any]]:
    """Return the rows of the tensors in a message that has whole ones only, without a copy of them.

    Raises `BadData` if it is damaged.
    """
    content = memoryview(message)
    return _hashed(
        {
            _name_of(one): (dtype, shape, content[begin:end])
            for one, (dtype, shape, begin, end) in _parts(message).items()
        }
    )


def _parts(message: bytes) -> dict[str, tuple[torch.dtype, list[int], int, int]]:
    """Return type, shape, beginning and end of each tensor in a message. Raises `BadData` if it is damaged."""
    try:
        start = place = 8 + int.from_bytes(message[:8], "little")
        entries = json.loads(bytes(message[8:start]))
        del entries["__metadata__"]
        found = {}
        for name, entry in sorted(entries.items(), key=lambda one: one[1]["data_offsets"]):
            dtype, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            fits = all(type(size) is int and size >= 0 for size in shape)
            if not fits or start + begin != place or end - begin != math.prod(shape, start=dtype.itemsize):
                raise ValueError(f"{shown(name)} has another size")
            found[name] = dtype, shape, start + begin, start + end
            place = start + end
        if place != len(message):
            raise ValueError("it is cut off")
    except Exception as error:
        raise BadData(f"damaged weights: {error!s:.200}; fetch them again") from None
    return found


def _tensors(message: bytes) -> dict[str, torch.Tensor]:
    """Return the tensors in a message, which share its memory. Raises `BadData` if it is damaged."""
    return {
        name: torch.frombuffer(message, dtype=dtype, count=math.prod(shape), offset=begin).reshape(shape)
        if end > begin
        else torch.empty(shape, dtype=dtype)
        for name, (dtype, shape, begin, end) in _parts(message).items()
    }


def _hashed(of: Mapping[str, tuple[torch.dtype, list[int], memoryview]]) -> dict[str, list[Any]]:
    with ThreadPoolExecutor() as threads:
        contents = threads.map(lambda one: hashlib.sha256(one[2]).hexdigest(), of.values())
        return {
            name: [str(dtype), shape, content]
            for (name, (dtype, shape, _)), content in zip(of.items(), contents, strict=True)
        }


def digest_of_rows(rows: Rows) -> str:
    """Return the digest of weights with these rows."""
    return stable_hash([[name, *rows[name]] for name in sorted(rows)])


def full(state: State) -> bytes:
    """Return a message with all weights."""
    return _message({_DENSE + name: tensor for name, tensor in state.items()}, digest(state), "", [])


def delta(base: State, new: State) -> bytes:
    """Return a message with the values of `new` that differ from `base` in their bits.

    For each tensor it has nothing, the new values with their places (as indices, or as a bit for each place), or the
    whole tensor, whichever is smallest. Its header can make it larger than the full message.
    """
    return delta_between(base, digest(base), new, digest(new))


class Sender:
    """Makes the messages of one trainer: all weights, or only tensors that have changed since it last sent all.

    With adapters, these are a small part. All of them are hashed each time, so no change is missed.
    """

    def __init__(self) -> None:
        self._origin: Rows = {}  # of the weights last sent in full

    def message(self, state: State) -> bytes:
        """Return the next message, a delta if most bytes are those of the last full one."""
        rows = rows_of(state)
        changed = {name: tensor for name, tensor in state.items() if self._origin.get(name) != rows[name]}
        if 2 * sum(one.nbytes for one in changed.values()) > sum(one.nbytes for one in state.values()):
            return self.full(state, rows)
        parts = {_DENSE + name: tensor for name, tensor in changed.items()}
        gone = sorted(self._origin.keys() - rows.keys())
        return _message(parts, digest_of_rows(rows), digest_of_rows(self._origin), gone)

    def full(self, state: State, rows: Rows | None = None) -> bytes:
        """Return a message with all weights, to which later ones refer."""
        self._origin = rows_of(state) if rows is None else rows
        return _message({_DENSE + name: one for name, one in state.items()}, digest_of_rows(self._origin), "", [])


def apply(base: State | None, message: bytes) -> dict[str, torch.Tensor]:
    """Return the weights after applying a message, as `applied`."""
    return applied(base, message)[0]


def applied(base: State | None, message: bytes, known: Rows | None = None) -> tuple[dict[str, torch.Tensor], Rows]:
    """Return the weights after applying a message, on the CPU, and their rows.

    They may share memory with the message and with `base`, which is unchanged, so they must not be changed either.

    Args:
        base: the weights that a delta applies to, or its result; not needed for a full message.
        message: as `full` or `delta` returns it.
        known: the rows of `base`, computed when it was loaded; None to compute them.

    Raises:
        BadData: it is damaged, or applies to other weights.
    """
    about, message = header(message), in_memory(message)
    try:
        state = _apply(base, about, _tensors(message))
    except BadData:
        raise
    except Exception as error:
        raise BadData(f"damaged weights: {error!s:.200}; fetch them again") from None
    old = {name: known[name] for name, one in state.items() if base and base.get(name) is one} if known else {}
    rows = old | rows_of({name: tensor for name, tensor in state.items() if name not in old})
    check_rows(rows, about.digest)
    return state, rows


def in_memory(message: bytes) -> bytes:
    """Return a message that may be in a file (see `FileMessage`) as one that is not."""
    if isinstance(message, bytes | bytearray | memoryview):
        return message
    room = large_room(len(message))
    for start in range(0, len(room), LARGE):
        room[start : start + LARGE] = message[start : start + LARGE]
    return cast("bytes", room)


def check_rows(rows: Rows, announced: str) -> None:
    """Raise `BadData` if weights with these rows do not have the digest that their message announces."""
    if digest_of_rows(rows) != announced:
        raise BadData("the weights are damaged: their SHA-256 differs from the announced one; fetch them again in full")


def rebased(message: bytes, base: str) -> bytes:
    """Return a delta of whole tensors as one to other weights, with this digest, that differ in these tensors only."""
    length = int.from_bytes(message[:8], "little")
    entries = json.loads(bytes(message[8 : 8 + length]))
    schema, result, _, gone = json.loads(entries["__metadata__"]["agentgym_flow"])
    entries["__metadata__"]["agentgym_flow"] = json.dumps([schema, result, base, gone])
    return _headed(entries, memoryview(message)[8 + length :])


def header(message: bytes) -> Header:
    """Return the header of a message without reading the weights. Raises `BadData` if it is invalid."""
    try:
        length = int.from_bytes(message[:8], "little")
        if length > min(len(message), _LARGEST_HEADER):
            raise ValueError("it is cut off")
        entries = json.loads(bytes(message[8 : 8 + length]))
        schema, result, base, gone = json.loads(entries.pop("__metadata__")["agentgym_flow"])
        texts = all(isinstance(text, str) for text in (result, base, *gone))
        if schema != _SCHEMA or not texts:
            raise ValueError(f"its schema is {shown(schema)}")
    except Exception as error:
        raise BadData(f"not a message of weights: {error!s:.200}; fetch them again") from None
    kind = LORA if entries and all(".lora_" in name for name in entries) else DELTA if base else FULL
    whole = all(name.startswith(_DENSE) for name in entries)
    return Header(kind, result, base, tuple(gone), frozenset(map(_name_of, entries)) if whole else None)


def _name_of(part: str) -> str:
    return part.removeprefix(_DENSE)


# ---------------------------------------------------------------- creating messages
def _message(tensors: State, result: str, base: str, gone: list[str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"agentgym_flow": json.dumps([_SCHEMA, result, base, gone])}}
    contents, place = [], 0
    for name, tensor in sorted(tensors.items(), key=lambda one: (-one[1].element_size(), one[0])):  # aligned
        offsets = [place, place := place + tensor.nbytes]
        entries[name] = {"dtype": _TYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        contents.append(_bits(tensor).view(np.uint8).data)
    return _headed(entries, *contents)


def _headed(entries: Mapping[str, Any], *contents: memoryview) -> bytes:
    """Return a safetensors file; `safetensors.torch.save` would copy the tensors three times."""
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    parts: list[bytes | memoryview] = [len(head).to_bytes(8, "little"), head, *contents]
    if (size := sum(map(len, parts))) <= LARGE:
        return b"".join(parts)
    room, place = large_room(size), 0
    for part in parts:
        room[place : (place := place + len(part))] = part
    return cast("bytes", room)


def delta_between(base: State, base_digest: str, new: State, new_digest: str) -> bytes:
    """Return `delta` of weights whose digests are known."""
    sent: dict[str, torch.Tensor] = {}
    for name, tensor in new.items():
        sent |= _changes(name, base.get(name), tensor)
    return _message(sent, new_digest, base_digest, sorted(base.keys() - new.keys()))


def saves(base: bytes, new: bytes) -> bool:
    """Return whether a delta between full messages is probably smaller than the second one by a tenth.

    Samples of each tensor are compared: it would take as long to find all changes as to send all weights.
    """
    olds, expected, most = _parts(base), 0.0, 0
    for name, (dtype, shape, begin, end) in _parts(new).items():
        size, most = end - begin, most + end - begin
        old = olds.get(name)
        if old is None or old[:2] != (dtype, shape):
            expected += size
            continue
        bits = f"i{min(dtype.itemsize, 8)}"
        both = (_sampled(one, start, size).view(bits) for one, start in ((base, old[2]), (new, begin)))
        changed = np.not_equal(*both)
        share = np.count_nonzero(changed) / max(1, changed.size)
        expected += min(size, size * share + min(size / dtype.itemsize / 8, 4 * share * size / dtype.itemsize))
    return expected < _WORTHWHILE * most


def _sampled(message: bytes, start: int, size: int) -> Bits:
    """Return parts of a tensor in a message, or all of it if it is small."""
    if size <= _SAMPLES * _SAMPLE:
        return np.frombuffer(message[start : start + size], np.uint8)
    places = range(start, start + size - _SAMPLE, size // _SAMPLES // 16 * 16)  # no place is within a number
    return np.frombuffer(b"".join(message[place : place + _SAMPLE] for place in places), np.uint8)


def _changes(name: str, old: torch.Tensor | None, new: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parts of a delta for one tensor."""
    if old is None or old.dtype != new.dtype or old.shape != new.shape:
        return {_DENSE + name: new}
    bits = _bits(new)
    changed = _bits(old) != bits
    count, places, width = int(np.count_nonzero(changed)), changed.size, bits.itemsize
    if not count:
        return {}
    indexed = (4 + width) * count if places <= _MOST_INDEXED else places * width
    masked = -(-places // 8) + width * count
    if min(indexed, masked) >= places * width:
        return {_DENSE + name: new}
    values = {_VALUES + name: torch.from_numpy(bits[changed]).view(new.dtype)}
    if indexed < masked:
        return values | {_INDICES + name: torch.from_numpy(np.flatnonzero(changed).astype(np.int32))}
    return values | {_MASK + name: torch.from_numpy(np.packbits(changed))}


def _bits(tensor: torch.Tensor) -> Bits:
    """Return the elements of a tensor as a flat array of integers of their width."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.view(f"i{min(tensor.element_size(), 8)}")


# ---------------------------------------------------------------- applying messages
def _apply(base: State | None, about: Header, sent: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if about.base and base is None:
        raise BadData("these weights are a difference from weights that are missing here; fetch them in full")
    known = base if about.base and base is not None else {}
    state = {name: tensor for name, tensor in known.items() if name not in about.gone}
    while sent:
        key, tensor = sent.popitem()
        way, slash, name = key.partition("/")
        way += slash
        if way not in (_DENSE, _INDICES, _MASK, _VALUES):
            raise BadData(f"damaged weights: unknown part {shown(key)}; fetch them again")
        if way == _DENSE:
            state[name] = tensor
            continue
        other = _VALUES if way in (_INDICES, _MASK) else _INDICES if _INDICES + name in sent else _MASK
        parts = {way: tensor, other: sent.pop(other + name)}
        state[name] = _overwrite(name, known, parts)
    return state


def _overwrite(name: str, known: State, parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a tensor of the base with some values replaced."""
    old, values = known.get(name), parts[_VALUES]
    if old is None or old.dtype != values.dtype:
        raise BadData(
            f"these weights are a difference from other weights: {shown(name)} is not the same; fetch them in full"
        )
    bits = _bits(old).copy()
    if _MASK in parts:
        packed = parts[_MASK].numpy()
        if packed.size != -(-bits.size // 8):
            raise BadData(f"damaged weights: {shown(name)} has another size; fetch them in full")
        bits[np.unpackbits(packed, count=bits.size).view(bool)] = _bits(values)
    else:
        indices = parts[_INDICES].numpy()
        if indices.size != values.numel() or indices.min(initial=0) < 0:
            raise BadData(f"damaged weights: {shown(name)} has invalid positions; fetch them in full")
        bits[indices] = _bits(values)
    return torch.from_numpy(bits).view(old.dtype).reshape(old.shape)
