"""Storage of published weights: at the manager, and at a relay near the workers of another region."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, MutableMapping
from pathlib import Path
from urllib.parse import quote

import torch

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.weights.updates import apply, delta, full, header
from agentgym_flow.errors import BadData

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
        message = self._message(policy, version)
        try:
            change = delta(apply(None, self._message(policy, have)), apply(None, message))
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
