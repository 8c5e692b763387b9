"""Weights on their way from a trainer to workers: messages, the manager's store, and relays near other regions.

A message is full, or a delta to weights that the receiver has: a safetensors file. A delta has the new values of a
tensor with their places, not differences, so the result is exact for every type, and applying a message twice has the
same effect as once. Every message has the SHA-256 of the resulting weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import check_positive, stable_hash
from agentgym_flow.dataflow.network.client import RemoteFlow
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import BadData, shown

State = Mapping[str, torch.Tensor]
Bits = npt.NDArray[Any]

FULL, DELTA, LORA = "full", "delta", "lora"
KINDS = (FULL, DELTA, LORA)
"""The kinds of messages, for statistics: a message with tensors of adapters only is `lora`."""

_SCHEMA = "agentgym_flow.weights/1"
_DENSE, _INDICES, _MASK, _VALUES = "dense/", "indices/", "mask/", "values/"
_MOST_INDEXED = 1 << 31
_LARGEST_HEADER = 100_000_000  # as in safetensors


class Header(NamedTuple):
    """The header of a message.

    Attributes:
        kind: one of `KINDS`.
        digest: of the resulting weights, see `digest`.
        base: the digest of the weights that a delta applies to; empty for a full message.
        gone: names of tensors in the base that the new weights do not have.
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
    """Return a message with the values of `new` that differ from `base` in their bits.

    For each tensor it has nothing, the new values with their places (as indices, or as a bit for each place), or the
    whole tensor, whichever is smallest. Its header can make it larger than the full message.
    """
    return _delta(base, digest(base), new, digest(new))


def apply(base: State | None, message: bytes) -> dict[str, torch.Tensor]:
    """Return the weights after applying a message, on the CPU. They may share tensors with `base`, which is unchanged.

    Args:
        base: the weights that a delta applies to, or its result; not needed for a full message.
        message: as `full` or `delta` returns it.

    Raises:
        BadData: it is damaged, or applies to other weights.
    """
    about = header(message)
    try:
        state = _apply(base, about, load(message))
    except BadData:
        raise
    except Exception as error:
        raise BadData(f"damaged weights: {error!s:.200}; fetch them again") from None
    if digest(state) != about.digest:
        raise BadData("the weights are damaged: their SHA-256 differs from the announced one; fetch them again in full")
    return state


def header(message: bytes) -> Header:
    """Return the header of a message without reading the weights. Raises `BadData` if it is invalid."""
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


# ---------------------------------------------------------------- creating messages
def _message(tensors: State, result: str, base: str, gone: list[str]) -> bytes:
    seen: set[int] = set()
    owned = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        where = tensor.untyped_storage().data_ptr()
        owned[name] = tensor.clone() if where in seen else tensor  # a file has no tied weights
        seen.add(where)
    return save(owned, {"agentgym_flow": json.dumps([_SCHEMA, result, base, gone])})


def _delta(base: State, base_digest: str, new: State, new_digest: str) -> bytes:
    sent: dict[str, torch.Tensor] = {}
    for name, tensor in new.items():
        sent |= _changes(name, base.get(name), tensor)
    return _message(sent, new_digest, base_digest, sorted(base.keys() - new.keys()))


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


_ENDING = ".safetensors"


class Files(MutableMapping[str, bytes]):
    """The files of a folder, by their names without the suffix. Writes are atomic and survive a loss of power."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _to_disk(folder.parent)

    def _path(self, name: str) -> Path:
        return self._folder / (name + _ENDING)

    def __getitem__(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, content: bytes) -> None:
        with write_atomically(self._path(name)) as partial:
            partial.write_bytes(content)
            _to_disk(partial)
        _to_disk(self._folder)

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (path.name.removesuffix(_ENDING) for path in self._folder.glob(f"*{_ENDING}"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _to_disk(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WeightStore:
    """Stores versions of weights, and returns each as the smallest message that its receiver can use. Thread-safe.

    Args:
        kept: where full messages are kept, by name: a dictionary, or `Files`, which survive a restart.

    Attributes:
        sent: for each of `updates.KINDS`, the bytes of the messages that were returned.
    """

    def __init__(self, kept: MutableMapping[str, bytes] | None = None) -> None:
        self._kept = {} if kept is None else kept
        self._deltas: dict[tuple[str, int, int], bytes] = {}  # empty if the full message is smaller
        self._locks: dict[str, Lock] = {}
        self._counting = Lock()
        self.sent: Counter[str] = Counter()

    def digest(self, message: bytes) -> str:
        """Return the digest of the weights in a message, according to its header. Raises `BadData` if it is invalid."""
        return header(message).digest

    def put(self, policy: str, version: int, message: bytes) -> None:
        """Store a version: a full message, or a delta to weights that are kept. Repeating it has no effect.

        Raises `BadData` if the message is damaged, is a delta to weights that are not kept, or other weights have this
        version.
        """
        about = header(message)
        with self._lock(policy):
            known = self._kept.get(_name(policy, version))
            if known is not None and header(known).digest != about.digest:
                raise BadData(f"version {version} of {policy} exists with other weights; publish a new version")
            state = apply(self._base(policy, about.base), message)
            if known is None:
                self._kept[_name(policy, version)] = full(state) if about.base else message

    def get(self, policy: str, version: int, have: int | None = None) -> bytes:
        """Return the smallest message with a version, for a receiver that has version `have` or none.

        Raises `BadData` if the version is not kept.
        """
        with self._lock(policy):
            key = (policy, version if have is None else have, version)
            if key not in self._deltas and have is not None and _name(policy, have) in self._kept:
                self._deltas[key] = self._delta(*key)
            message = self._deltas.get(key) or self._message(policy, version)
        with self._counting:
            self.sent[header(message).kind] += len(message)
        return message

    def prune(self, policy: str, versions: Collection[int]) -> None:
        """Keep only these versions."""
        with self._lock(policy):
            for version in self.versions(policy):
                if version not in versions:
                    del self._kept[_name(policy, version)]
            for key in list(self._deltas):
                if key[0] == policy and not {*key[1:]} <= {*versions}:
                    del self._deltas[key]

    def versions(self, policy: str) -> list[int]:
        """Return the versions that are kept, in order."""
        pattern = re.compile(re.escape(_name(policy, 0)[:-1]) + r"(\d+)")
        return sorted(int(found[1]) for name in list(self._kept) if (found := pattern.fullmatch(name)))

    def _lock(self, policy: str) -> Lock:
        return self._locks.setdefault(policy, Lock())

    def _message(self, policy: str, version: int) -> bytes:
        message = self._kept.get(_name(policy, version))
        if message is None:
            raise BadData(f"version {version} of {policy} is not kept any more; take a new lease")
        return message

    def _base(self, policy: str, wanted: str) -> dict[str, torch.Tensor] | None:
        """Return the weights with a digest; None for no digest, or if they are not kept."""
        for version in reversed(self.versions(policy)) if wanted else ():
            message = self._message(policy, version)
            if header(message).digest == wanted:
                return apply(None, message)
        return None

    def _delta(self, policy: str, have: int, version: int) -> bytes:
        """Return a delta; empty if it is not smaller than the full message, or the receiver's version is damaged."""
        known, message = self._message(policy, have), self._message(policy, version)
        try:  # `apply` has checked the digests
            change = _delta(apply(None, known), header(known).digest, apply(None, message), header(message).digest)
        except BadData:
            return b""
        return change if len(change) < len(message) else b""


def _name(policy: str, version: int) -> str:
    return f"{quote(policy, safe='')}@{version}"


class Relay:
    """A store near workers that fetches missing versions from a remote store, each once. Thread-safe.

    Args:
        fetch: `get` of the remote store, or of another relay.
        store: where versions are kept; by default in memory.
        keep: how many versions of a policy are kept, the newest.

    Attributes:
        fetched: for each of `updates.KINDS`, the bytes that came from the remote store.
    """

    def __init__(
        self, fetch: Callable[[str, int, int | None], bytes], store: WeightStore | None = None, keep: int = 8
    ) -> None:
        self.store = store or WeightStore()
        self._fetch = fetch
        self._keep = check_positive("keep", keep)
        self._locks: dict[str, Lock] = {}
        self._counting = Lock()
        self.fetched: Counter[str] = Counter()

    def get(self, policy: str, version: int, have: int | None = None) -> bytes:
        """Return a version as `WeightStore.get` does; fetch it first if it is missing.

        Raises `BadData` if the remote store does not have it or sends other weights, and whatever fetching raises.
        """
        with self._locks.setdefault(policy, Lock()):  # concurrent calls wait, and then find it here
            versions = self.store.versions(policy)
            if version not in versions:
                self._get(policy, version, versions[-1] if versions else None)
                self.store.prune(policy, [*sorted({*versions, version})[-self._keep :], version])
        return self.store.get(policy, version, have)

    def _get(self, policy: str, version: int, have: int | None) -> None:
        try:
            message = self._fetch(policy, version, have)
            self.store.put(policy, version, message)
        except BadData:
            if have is None:
                raise
            self._get(policy, version, None)  # the base here may be damaged
            return
        with self._counting:
            self.fetched[header(message).kind] += len(message)


class RelayFlow(RemoteFlow):
    """A manager for the workers of a region, which fetches each version of the weights from far away only once.

    Args:
        upstream: the manager, or another relay.

    Attributes:
        relay: keeps the weights.
    """

    def __init__(self, upstream: Flow) -> None:
        super().__init__("the manager behind this relay", deadline=0.0)  # its clients repeat calls
        self._upstream = upstream
        self.relay = Relay(upstream.fetch)

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "fetch":
            return self.relay.get(**arguments)
        return getattr(self._upstream, name)(**arguments)
