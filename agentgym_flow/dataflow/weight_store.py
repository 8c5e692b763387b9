"""Where weights are kept: the manager's store, files on its disk, and relays near workers in other regions."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, MutableMapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import torch

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.network.client import RemoteFlow
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.dataflow.weights import (
    Header,
    Rows,
    applied,
    apply,
    check_rows,
    delta_between,
    full,
    header,
    in_memory,
    rebased,
    rows_in,
    saves,
)
from agentgym_flow.errors import BadData

_ENDING = ".safetensors"

_PART = 1 << 20
"""Bytes of a file that are written at a time. Linux takes up to ten times as long for half a gigabyte at once."""


class FileMessage:
    """A message in a file, which is read in parts as it is sent: memory for all of it takes longer than to read it.

    It has what `HttpReply` and `header` need of bytes, and is pickled as bytes.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        content = b""
        while len(content) < stop - start:
            if not (more := os.pread(self._file.fileno(), stop - start - len(content), start + len(content))):
                raise OSError(errno.EIO, "the file was cut off while it was read", str(self._file.name))
            content += more
        return content

    def __bytes__(self) -> bytes:
        return self[:]

    def __eq__(self, other: object) -> bool:
        return bytes(self) == (bytes(other) if isinstance(other, FileMessage) else other)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


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
            if os.name != "posix":  # Windows deletes no open file
                return self._path(name).read_bytes()
            return cast("bytes", FileMessage(self._path(name)))
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, content: bytes) -> None:
        with write_atomically(self._path(name)) as partial:
            with partial.open("wb", buffering=0) as file:
                for start in range(0, len(content), _PART):
                    file.write(memoryview(content)[start : start + _PART])
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

    A version is kept as a full message, or as a delta of whole tensors to one that is; that one is then kept too.

    Args:
        kept: where messages are kept, by name: a dictionary, or `Files`, which survive a restart.

    Attributes:
        sent: for each of `updates.KINDS`, the bytes of the messages that were returned.
    """

    def __init__(self, kept: MutableMapping[str, bytes] | None = None) -> None:
        self._kept = {} if kept is None else kept
        self._deltas: dict[tuple[str, int, int], bytes] = {}  # empty if the full message is smaller
        self._whole: dict[str, tuple[str, bytes]] = {}  # for each policy, the last full message made of a delta
        self._headers: dict[str, Header] = {}  # of kept messages
        self._rows: dict[str, Rows] = {}  # of kept full messages
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
        about, name = header(message), _name(policy, version)
        with self._lock(policy):
            known = self._header(name)
            if known is not None and known.digest != about.digest:
                raise BadData(f"version {version} of {policy} exists with other weights; publish a new version")
            base = self._of_digest(policy, about.base)
            origin = None if base is None else self._header(base)
            if base is not None and origin is not None and not origin.base and about.names is not None:
                rows: Rows = {one: row for one, row in self._rows_of(base).items() if one not in about.gone}
                check_rows({**rows, **rows_in(message)}, about.digest)
            elif not about.base and about.names is not None:
                check_rows(rows := rows_in(message), about.digest)
            else:
                state, rows = applied(None if base is None else self._state(base), message)
                message = full(state) if about.base else message
            if known is None:
                self._kept[name], self._headers[name] = message, header(message)
                if not self._headers[name].base:
                    self._rows[name] = rows

    def get(self, policy: str, version: int, have: int | None = None) -> bytes:
        """Return the smallest message with a version, for a receiver that has version `have` or none.

        A delta between two versions that were sent in full is only made if it probably `saves` a tenth.

        Raises `BadData` if the version is not kept.
        """
        with self._lock(policy):
            key = (policy, version if have is None else have, version)
            if have is not None and key not in self._deltas:
                self._deltas[key] = self._delta(*key)
            message = self._deltas.get(key) or self._full(policy, version)
        with self._counting:
            self.sent[header(message).kind] += len(message)
        return message

    def prune(self, policy: str, versions: Collection[int]) -> None:
        """Keep only these versions, and those that they are deltas to."""
        with self._lock(policy):
            headers = {version: self._header(_name(policy, version)) for version in self.versions(policy)}
            bases = {one.base for version, one in headers.items() if one is not None and version in versions}
            for version, one in headers.items():
                if version not in versions and (one is None or one.base or one.digest not in bases):
                    name = _name(policy, version)
                    del self._kept[name]
                    self._headers.pop(name, None)
                    self._rows.pop(name, None)
            if policy in self._whole and self._whole[policy][0] not in self._kept:
                del self._whole[policy]
            for key in list(self._deltas):
                if key[0] == policy and not {*key[1:]} <= {*versions}:
                    del self._deltas[key]

    def versions(self, policy: str) -> list[int]:
        """Return the versions that are kept, in order."""
        pattern = re.compile(re.escape(_name(policy, 0)[:-1]) + r"(\d+)")
        return sorted(int(found[1]) for name in list(self._kept) if (found := pattern.fullmatch(name)))

    def _lock(self, policy: str) -> Lock:
        return self._locks.setdefault(policy, Lock())

    def _header(self, name: str) -> Header | None:
        """Return the header of a kept message; None if there is none, or it is damaged."""
        if name not in self._headers and (message := self._kept.get(name)) is not None:
            try:
                self._headers[name] = header(message)
            except BadData:
                return None
        return self._headers.get(name)

    def _state(self, name: str) -> dict[str, torch.Tensor]:
        """Return kept weights. Raises `BadData` if they are damaged, or their base is not kept."""
        message = self._kept[name]
        base = self._of_digest(name.rpartition("@")[0], header(message).base, quoted=True)
        return apply(None if base is None else self._state(base), message)

    def _rows_of(self, name: str) -> Rows:
        """Return the rows of a kept full message."""
        if name not in self._rows:
            self._rows[name] = rows_in(in_memory(self._kept[name]))
        return self._rows[name]

    def _full(self, policy: str, version: int) -> bytes:
        """Return a full message with a version."""
        message = self._kept.get(name := _name(policy, version))
        if message is None:
            raise BadData(f"version {version} of {policy} is not kept any more; take a new lease")
        if not header(message).base:
            return message
        if self._whole.get(policy, ("", b""))[0] != name:  # workers that join get the same one
            self._whole[policy] = name, full(self._state(name))
        return self._whole[policy][1]

    def _of_digest(self, policy: str, wanted: str, *, quoted: bool = False) -> str | None:
        """Return the name of the kept weights with a digest; None for no digest, or if they are not kept.

        A full message comes first: a delta without a change has the digest of its own base.
        """
        prefix, delta = f"{policy}@" if quoted else _name(policy, 0)[:-1], None
        for name in [one for one in list(self._kept) if one.rpartition("@")[0] + "@" == prefix] if wanted else ():
            about = self._header(name)
            if about is not None and about.digest == wanted != about.base:
                if not about.base:
                    return name
                delta = name
        return delta

    def _delta(self, policy: str, have: int, version: int) -> bytes:
        """Return a delta; empty if it is not smaller than the full message, or the receiver's version is damaged."""
        old, new = _name(policy, have), _name(policy, version)
        known, wanted = self._header(old), self._header(new)
        if known is None or wanted is None:
            return b""
        if wanted.base and wanted.names is not None:
            if known.digest == wanted.base:
                return self._kept[new]
            same = known.base == wanted.base and known.gone == wanted.gone
            if same and known.names is not None and known.names <= wanted.names:
                return rebased(in_memory(self._kept[new]), known.digest)
        try:  # `_state` checks the digests
            if not (known.base or wanted.base) and not saves(self._kept[old], self._kept[new]):
                return b""
            change = delta_between(self._state(old), known.digest, self._state(new), wanted.digest)
        except BadData:
            return b""
        return change if len(change) < len(self._kept[new]) or wanted.base else b""


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
