"""Parts of a dataflow for tests: a clock that tests set, a store without weights, and what a worker hands in."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

from agentgym_flow.dataflow.bookkeeping.journal import digest_of
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.records import Claim, Commit, Flow, Lease, LeaseKey


class Clock:
    """Shows `now`."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Messages:
    """A store of messages that are no weights."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], bytes] = {}

    def digest(self, message: bytes) -> str:
        return digest_of(message)

    def put(self, policy: str, version: int, message: bytes) -> None:
        assert self.kept.setdefault((policy, version), message) == message

    def get(self, policy: str, version: int, have: int | None) -> bytes:
        return self.kept[policy, version]

    def prune(self, policy: str, versions: Collection[int]) -> None:
        self.kept = {key: one for key, one in self.kept.items() if key[0] != policy or key[1] in versions}

    def versions(self) -> list[int]:
        return [version for _, version in self.kept]


def make_manager(clock: Clock, **settings: Any) -> Manager:
    """Return a manager that takes any bytes for weights."""
    usual: dict[str, Any] = {"store": Messages(), "deadline": 10.0, "lease_seconds": 5.0}
    return Manager(clock=clock, **{**usual, **settings})


_NUMBERS = itertools.count()


def opened(flow: Flow, stream: str, policy: str, batch: int, setup: dict[str, Any]) -> Claim:
    """Open a stream as a trainer that was never there before."""
    return flow.open(stream, policy, batch, setup, f"trainer {next(_NUMBERS)}")


def held(lease: Lease) -> LeaseKey:
    return LeaseKey(lease.stream, lease.slot.id, lease.attempt)


def commit_of(lease: Lease, payload: str) -> Commit:
    return Commit(held(lease), payload.encode("utf-8", "surrogatepass"), lease.digests)


def played(lease: Lease) -> Commit:
    return commit_of(lease, f"{lease.slot} with {lease.weights}")
