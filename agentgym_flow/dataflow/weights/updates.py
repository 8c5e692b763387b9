"""Weights on their way from a trainer to workers: whole, or what has changed since weights that the receiver has.

A message is a safetensors file. What has changed of a tensor is its new values with their places, never a difference,
so what comes out has the same bits, whatever the type, and applying a message twice does no more than applying it once.
Every message has the SHA-256 of all the weights that it leads to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save

from agentgym_flow.errors import BadData, shown
from agentgym_flow.seeding import stable_hash

State = Mapping[str, torch.Tensor]
Bits = npt.NDArray[Any]

FULL, DELTA, LORA = "full", "delta", "lora"
KINDS = (FULL, DELTA, LORA)
"""What a message is, for statistics: one that has tensors of adapters only is `lora`."""

_SCHEMA = "agentgym_flow.weights/1"
_DENSE, _INDICES, _MASK, _VALUES = "dense/", "indices/", "mask/", "values/"
_MOST_INDEXED = 1 << 31
_LARGEST_HEADER = 100_000_000  # as in safetensors


class Header(NamedTuple):
    """What a message says of itself.

    Attributes:
        kind: one of `KINDS`.
        digest: of the weights that it leads to, see `digest`.
        base: the digest of the weights that it was made against; empty if it needs none.
        gone: names of tensors that these have and the new ones have not.
    """

    kind: str
    digest: str
    base: str
    gone: tuple[str, ...]


def digest(state: State) -> str:
    """Return the SHA-256 (hex) of names, types, shapes and bytes; the order of the tensors does not matter."""
    rows = []
    for name in sorted(state):
        tensor = state[name]
        content = hashlib.sha256(_bits(tensor).data).hexdigest()
        rows.append([name, str(tensor.dtype), list(tensor.shape), content])
    return stable_hash(rows)


def full(state: State) -> bytes:
    """Return a message with all weights."""
    return _message({_DENSE + name: tensor for name, tensor in state.items()}, digest(state), "", [])


def delta(base: State, new: State) -> bytes:
    """Return a message with what of `new` has other bits than `base`.

    For each tensor it has nothing, the new values with their places (as indices, or as a bit for each place), or all
    of it: whichever is smallest. It can be larger than the full message, by its header.
    """
    sent: dict[str, torch.Tensor] = {}
    for name, tensor in new.items():
        sent |= _changed(name, base.get(name), tensor)
    return _message(sent, digest(new), digest(base), sorted(base.keys() - new.keys()))


def apply(base: State | None, message: bytes) -> dict[str, torch.Tensor]:
    """Return the weights that a message leads to, on the CPU. They may share tensors with `base`, which is not changed.

    Args:
        base: the weights that it was made against, or those that it leads to; not needed for a full message.
        message: as `full` or `delta` makes it.

    Raises:
        BadData: it is damaged, or was made against other weights.
    """
    about = header(message)
    try:
        state = _applied(base, about, load(message))
    except BadData:
        raise
    except Exception as error:
        raise BadData(f"damaged weights: {error!s:.200}; fetch them again") from None
    if digest(state) != about.digest:
        raise BadData("the weights have another SHA-256 than was announced: they are damaged; fetch them again in full")
    return state


def header(message: bytes) -> Header:
    """Return what a message says of itself; the weights are not read. Raises `BadData` if it is none."""
    try:
        length = int.from_bytes(message[:8], "little")
        if length > min(len(message), _LARGEST_HEADER):
            raise ValueError("it is cut off")
        entries = json.loads(message[8 : 8 + length])
        schema, result, base, gone = json.loads(entries.pop("__metadata__")["agentgym_flow"])
        texts = all(isinstance(text, str) for text in (result, base, *gone))
        if schema != _SCHEMA or not texts:
            raise ValueError(f"its schema is {shown(schema)}")
    except Exception as error:
        raise BadData(f"not a message of weights: {error!s:.200}; fetch them again") from None
    kind = LORA if entries and all(".lora_" in name for name in entries) else DELTA if base else FULL
    return Header(kind, result, base, tuple(gone))


# ---------------------------------------------------------------- making messages
def _message(tensors: State, result: str, base: str, gone: list[str]) -> bytes:
    seen: set[int] = set()
    owned = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        where = tensor.untyped_storage().data_ptr()
        owned[name] = tensor.clone() if where in seen else tensor  # a file has no tied weights
        seen.add(where)
    return save(owned, {"agentgym_flow": json.dumps([_SCHEMA, result, base, gone])})


def _changed(name: str, old: torch.Tensor | None, new: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what is sent of one tensor."""
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
    """Return the elements of a tensor as integers of their width, in one row."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.view(f"i{min(tensor.element_size(), 8)}")


# ---------------------------------------------------------------- applying them
def _applied(base: State | None, about: Header, sent: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if about.base and base is None:
        raise BadData("these weights were made against others, which are not here; fetch them in full")
    known = base if about.base and base is not None else {}
    state = {name: tensor for name, tensor in known.items() if name not in about.gone}
    while sent:
        way, name, tensor = _split(*sent.popitem())
        if way == _DENSE:
            state[name] = tensor
            continue
        other = _VALUES if way in (_INDICES, _MASK) else _INDICES if _INDICES + name in sent else _MASK
        parts = {way: tensor, other: sent.pop(other + name)}
        state[name] = _overwritten(name, known, parts)
    return state


def _split(key: str, tensor: torch.Tensor) -> tuple[str, str, torch.Tensor]:
    way, slash, name = key.partition("/")
    if way + slash not in (_DENSE, _INDICES, _MASK, _VALUES):
        raise BadData(f"damaged weights: unknown part {shown(key)}; fetch them again")
    return way + slash, name, tensor


def _overwritten(name: str, known: State, parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a tensor of the base with new values in some places."""
    old, values = known.get(name), parts[_VALUES]
    if old is None or old.dtype != values.dtype:
        raise BadData(f"these weights were made against others: {shown(name)} is not the same; fetch them in full")
    bits = _bits(old).copy()
    if _MASK in parts:
        packed = parts[_MASK].numpy()
        if packed.size != -(-bits.size // 8):
            raise BadData(f"damaged weights: {shown(name)} has another size; fetch them in full")
        bits[np.unpackbits(packed, count=bits.size).view(bool)] = _bits(values)
    else:
        indices = parts[_INDICES].numpy()
        if indices.size != values.numel() or indices.min(initial=0) < 0:
            raise BadData(f"damaged weights: {shown(name)} has places that cannot be; fetch them in full")
        bits[indices] = _bits(values)
    return torch.from_numpy(bits).view(old.dtype).reshape(old.shape)
