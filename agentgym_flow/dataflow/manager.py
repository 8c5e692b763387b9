"""The manager: what trainers and workers call. It knows every slot of every stream, and who was heard of when."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any, Protocol

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.ledger import FIXED, Ledger, Published, State
from agentgym_flow.dataflow.records import Arrival, Commit, Held, Lease, Slot, SlotId, Verdict
from agentgym_flow.errors import BadData, BadSetting, FlowDown, NoWorkers, UnknownName, shown

TICK = 1.0
"""Seconds after which a call that waits looks for leases that have ended, and for who is silent."""


class Store(Protocol):
    """Where published weights are. Safe in threads."""

    def put(self, policy: str, version: int, message: bytes) -> None:
        """Take a version in. Raises `BadData` if the message is damaged."""

    def get(self, policy: str, version: int, have: int | None) -> bytes:
        """Return a version as a message, relative to version `have` if possible. Raises `BadData` if it is not kept."""

    def prune(self, policy: str, versions: Collection[int]) -> None:
        """Keep only these versions."""


class MessageStore:
    """Keeps messages in memory as they came."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, int], bytes] = {}

    def put(self, policy: str, version: int, message: bytes) -> None:
        """Take a version in."""
        self._messages[policy, version] = message

    def get(self, policy: str, version: int, have: int | None) -> bytes:
        """Return the message of a version, whatever the receiver has."""
        message = self._messages.get((policy, version))
        if message is None:
            raise BadData(f"version {version} of {policy} is not kept any more; take a new lease")
        return message

    def prune(self, policy: str, versions: Collection[int]) -> None:
        """Keep only these versions."""
        for key in [key for key in self._messages if key[0] == policy and key[1] not in versions]:
            self._messages.pop(key, None)


class Stream:
    """A stream: its setup, its ledger and the payloads of its episodes."""

    def __init__(self, setup: dict[str, Any], ledger: Ledger, now: float) -> None:
        self.setup, self.ledger = setup, ledger
        self.payloads: dict[SlotId, str] = {}
        self.asked = now  # when its trainers last gave workers something to do


class Manager:
    """Implements `agentgym_flow.dataflow.records.Flow`. Safe in threads.

    Args:
        order: how batches are put together, one of `agentgym_flow.dataflow.ledger.ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.
        max_attempts: a slot that was leased so often without success is lost.
        lease_seconds: how long a lease is valid, unless it is renewed.
        deadline: seconds of silence after which a trainer, or all workers together, are taken for dead.
        store: where published weights are; by default in memory.
        clock: the seconds of a clock that never goes back.

    Raises:
        BadSetting: a number is out of its range.
        UnknownOption: there is no such order.
    """

    def __init__(
        self,
        *,
        order: str = FIXED,
        staleness: int = 4,
        max_attempts: int = 20,
        lease_seconds: float = 60.0,
        deadline: float = 600.0,
        store: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings: dict[str, Any] = {"order": order, "staleness": staleness, "max_attempts": max_attempts}
        Ledger(["any"], **self._settings)  # checks them
        for name, seconds in (("lease_seconds", lease_seconds), ("deadline", deadline)):
            if not seconds > 0:
                raise BadSetting(f"{name} must be above 0 seconds, got {shown(seconds)}")
        self.lease_seconds, self.deadline = lease_seconds, deadline
        self._store = MessageStore() if store is None else store
        self._clock = clock
        self._streams: dict[str, Stream] = {}
        self._trainers: dict[str, float] = {}  # when which policy's was heard of last
        self._workers: dict[str, float] = {}
        self._began = clock()
        self._version: dict[str, int] = {}
        self._changed = threading.Condition()
        self._publishing = threading.Lock()  # storing weights can take long, and keeps nobody else waiting

    # ---------------------------------------------------------------- workers
    def describe(self) -> dict[str, Any]:
        """Return the setup of each stream."""
        with self._changed:
            return {name: stream.setup for name, stream in self._streams.items()}

    def lease(self, worker: str, count: int, wait: float = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play for `wait` seconds.

        Among streams, the one comes first of whose slots the smallest share is leased or committed.

        Raises `FlowDown` if no trainer was heard of for longer than the deadline.
        """
        check_positive("count", count)
        end = time.monotonic() + wait
        with self._changed:
            while True:
                self._workers[worker] = self._clock()
                self._check_trainers()
                self._expire()
                leases = self._leased(worker, count)
                if leases or not self._wait_until(end):
                    return leases

    def renew(self, worker: str, held: list[Held]) -> list[Held]:
        """Renew leases, and return those that have ended."""
        with self._changed:
            now = self._workers[worker] = self._clock()
            return [one for one in held if not self._renewed(one, now)]

    def commit(self, worker: str, commits: list[Commit]) -> list[Verdict]:
        """Hand in episodes; return what became of each."""
        digests = [hashlib.sha256(commit.payload.encode()).hexdigest() for commit in commits]
        with self._changed:
            self._workers[worker] = self._clock()
            verdicts = [self._committed(*both) for both in zip(commits, digests, strict=True)]
            self._changed.notify_all()
            return verdicts

    def fail(self, worker: str, held: Held, reason: str) -> None:
        """Give a lease back."""
        with self._changed:
            self._workers[worker] = self._clock()
            stream = self._streams.get(held.stream)
            if stream is not None:
                stream.ledger.fail(held.slot, held.attempt, reason)
                self._changed.notify_all()

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message. Raises `BadData` if they are not kept any more."""
        return self._store.get(policy, version, have)

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any]) -> dict[str, Any]:
        """Begin, or go on from before `batch`; return the figures of the stream.

        Raises `BadSetting` if the stream has another setup, or what the batch needs is not there any more.
        """
        setup = json.loads(json.dumps(setup))
        policies = setup.get("policies")
        if not isinstance(policies, list) or policy not in policies or len({*policies}) < len(policies):
            raise BadSetting(
                f"setup['policies'] must list all policies of the stream, {policy} too, got {shown(policies)}"
            )
        with self._changed:
            there = self._streams.get(stream)
            if there is None:
                for name, other in self._streams.items():
                    for one in {*policies} & {*other.ledger.policies}:
                        raise BadSetting(f"{one} acts in stream {name} already; a policy acts in one stream")
                there = self._streams[stream] = Stream(setup, Ledger(policies, **self._settings), self._clock())
            _check_same(stream, there.setup, setup)
            there.ledger.rewind(policy, batch)
            self._heard(there, policy)
            for other_policy in policies:
                self._trainers.setdefault(other_policy, self._clock())
            return self._figures(there)

    def publish(self, policy: str, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update; return their version. Raises what the store raises."""
        with self._publishing:
            with self._changed:
                stream = self._stream_of(policy)
                version = self._version[policy] = self._version.get(policy, 0) + 1
            self._store.put(policy, version, message)
            with self._changed:
                stream.ledger.publish(policy, Published(version, update, step))
                self._heard(stream, policy)
                return version

    def admit(self, stream: str, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is there with another task or seed."""
        with self._changed:
            there = self._stream(stream)
            there.ledger.admit(slots)
            there.asked = self._clock()
            self._changed.notify_all()

    def arrivals(self, stream: str, policy: str, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not trained on, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker was heard of for longer than the deadline.
        """
        end = time.monotonic() + wait
        with self._changed:
            there = self._stream(stream)
            while True:
                self._trainers[policy] = self._clock()
                self._expire()
                entries = there.ledger.arrived(policy, after)
                if entries:
                    return [_arrival(there, entry) for entry in entries]
                self._check_workers(there)
                if not self._wait_until(end):
                    return []

    def reject(self, stream: str, slot: SlotId, attempt: int, reason: str) -> None:
        """Refuse a committed episode; it will be played again."""
        with self._changed:
            self._stream(stream).ledger.reject(slot, attempt, reason)
            self._changed.notify_all()

    def ack(self, stream: str, policy: str, batch: int, trained: list[SlotId], dropped: list[SlotId]) -> list[SlotId]:
        """Note that `policy` makes its batch of the slots `trained`, and does not want those in `dropped`."""
        with self._changed:
            there = self._stream(stream)
            self._heard(there, policy)
            return there.ledger.ack(policy, batch, trained, dropped)

    def keep(self, stream: str, policy: str, batch: int) -> None:
        """Forget what was acknowledged before `batch`."""
        with self._changed:
            there = self._stream(stream)
            for slot in there.ledger.keep(policy, batch):
                there.payloads.pop(slot, None)
            self._heard(there, policy)

    def beat(self, policy: str) -> None:
        """Note that the trainer of `policy` is alive."""
        with self._changed:
            self._stream_of(policy)
            self._trainers[policy] = self._clock()

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data."""
        with self._changed:
            now = self._clock()
            return {
                "settings": {**self._settings, "lease_seconds": self.lease_seconds, "deadline": self.deadline},
                "streams": {name: self._figures(stream) for name, stream in self._streams.items()},
                "workers": {name: {"silent": now - heard} for name, heard in self._workers.items()},
            }

    # ---------------------------------------------------------------- inside
    def _stream(self, name: str) -> Stream:
        if name not in self._streams:
            raise UnknownName.among(name, self._streams)
        return self._streams[name]

    def _stream_of(self, policy: str) -> Stream:
        for stream in self._streams.values():
            if policy in stream.ledger.policies:
                return stream
        raise UnknownName.among(policy, [one for stream in self._streams.values() for one in stream.ledger.policies])

    def _heard(self, stream: Stream, policy: str) -> None:
        self._trainers[policy] = stream.asked = self._clock()
        self._changed.notify_all()

    def _wait_until(self, end: float) -> bool:
        left = end - time.monotonic()
        if left > 0:
            self._changed.wait(min(left, TICK))
        return left > 0

    def _expire(self) -> None:
        now = self._clock()
        for stream in self._streams.values():
            stream.ledger.expire(now)

    def _leased(self, worker: str, count: int) -> list[Lease]:
        deadline = self._clock() + self.lease_seconds
        found: list[Lease] = []
        waiting = dict(self._streams)
        while waiting and len(found) < count:
            name = min(waiting, key=lambda one: _share(waiting[one].ledger))
            entries = waiting[name].ledger.lease(worker, 1, deadline)
            found += [Lease(name, one.slot, one.attempt, dict(one.weights), self.lease_seconds) for one in entries]
            if not entries:
                del waiting[name]
        return found

    def _renewed(self, held: Held, now: float) -> bool:
        stream = self._streams.get(held.stream)
        return stream is not None and stream.ledger.renew(held.slot, held.attempt, now + self.lease_seconds)

    def _committed(self, commit: Commit, digest: str) -> Verdict:
        stream = self._streams.get(commit.held.stream)
        if stream is None:
            return Verdict.LATE
        verdict = stream.ledger.commit(commit.held.slot, commit.held.attempt, digest)
        if verdict is Verdict.ACCEPTED:
            stream.payloads[commit.held.slot] = commit.payload
        return verdict

    def _check_trainers(self) -> None:
        silent = self._clock() - max(self._trainers.values(), default=self._began)
        if silent > self.deadline:
            raise FlowDown(f"no trainer was heard of for {silent:.0f} seconds; start it again, then this worker")

    def _check_workers(self, stream: Stream) -> None:
        states = stream.ledger.states()
        silent = self._clock() - max([stream.asked, *self._workers.values()])
        if silent > self.deadline and states[State.QUEUED] + states[State.LEASED]:
            raise NoWorkers(
                f"no rollout worker was heard of for {silent:.0f} seconds; start one: agentgym-flow worker --join URL"
            )

    def _figures(self, stream: Stream) -> dict[str, Any]:
        ledger, now = stream.ledger, self._clock()
        policies = {}
        for policy in ledger.policies:
            newest = ledger.newest(policy)
            policies[policy] = {
                "silent": now - self._trainers.get(policy, self._began),
                "newest": None if newest is None else asdict(newest),
            }
        return {"states": ledger.states(), "counts": dict(ledger.counts), "policies": policies}


def _share(ledger: Ledger) -> float:
    states = ledger.states()
    there = states[State.LEASED] + states[State.COMMITTED]
    return there / max(1, there + states[State.QUEUED])


def _arrival(stream: Stream, entry: Any) -> Arrival:
    published = {policy: stream.ledger.version(policy, version) for policy, version in entry.weights.items()}
    steps = {policy: one.step for policy, one in published.items() if one is not None}
    updates = {policy: one.update for policy, one in published.items() if one is not None}
    payload = stream.payloads.get(entry.slot.id, "") if entry.digest else ""
    return Arrival(entry.number, entry.slot, entry.attempt, steps, updates, payload, entry.reason)


def _check_same(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            raise BadSetting(
                f"stream {name} has {key}={shown(old.get(key))}, and this trainer {shown(new.get(key))}: give all "
                "trainers of a stream the same settings"
            )
