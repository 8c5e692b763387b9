"""The manager: what trainers and workers call. It knows every slot of every stream, and who was heard of when."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Protocol

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.entries import State
from agentgym_flow.dataflow.journal import Event, Journal, Memory, digest_of
from agentgym_flow.dataflow.ledger import Ledger
from agentgym_flow.dataflow.records import Arrival, Commit, Held, Lease, Slot, SlotId, Verdict
from agentgym_flow.dataflow.versions import Published
from agentgym_flow.dataflow.weight_store import WeightStore
from agentgym_flow.errors import BadSetting, FlowDown, NoWorkers, UnknownName, shown

ACTOR, ACTORS = "actor", "actors"
"""What a trainer tells workers of its policy, and where workers find it."""

TICK = 1.0
"""Seconds after which a call that waits looks for leases that have ended, and for who is silent."""


class Store(Protocol):
    """Where published weights are kept, as `agentgym_flow.dataflow.weight_store.WeightStore` does."""

    def put(self, policy: str, version: int, message: bytes) -> None:
        """Take a version in. Raises `BadData` if the message is damaged."""

    def get(self, policy: str, version: int, have: int | None) -> bytes:
        """Return a version as a message, relative to version `have` if possible. Raises `BadData` if it is not kept."""

    def prune(self, policy: str, versions: Collection[int]) -> None:
        """Keep only these versions."""


class Manager:
    """Implements `agentgym_flow.dataflow.records.Flow`. Safe in threads.

    With a journal, nothing that was answered is lost when the process ends: make a manager with the same journal, and
    a store that finds its weights again, and it goes on. Leases are then valid for `lease_seconds` from that moment.

    Args:
        lease_seconds: how long a lease is valid, unless it is renewed.
        deadline: seconds of silence after which a trainer, or all workers together, are taken for dead.
        journal: what survives this process; by default nothing.
        store: where published weights are; by default in memory.
        clock: the seconds of a clock that never goes back.

    Raises:
        BadSetting: a number is out of its range.
        BadData: the journal is damaged.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = 60.0,
        deadline: float = 600.0,
        journal: Journal | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, seconds in (("lease_seconds", lease_seconds), ("deadline", deadline)):
            if not seconds > 0:
                raise BadSetting(f"{name} must be above 0 seconds, got {shown(seconds)}")
        self.lease_seconds, self.deadline = lease_seconds, deadline
        self._store = WeightStore() if store is None else store
        self._journal = Memory() if journal is None else journal
        self._clock = clock
        self._began = clock()
        self._changed = threading.Condition()
        self._publishing = threading.Lock()  # storing weights can take long, and keeps nobody else waiting
        self._down = ""  # why nothing can be answered any more
        self._setups: dict[str, dict[str, Any]] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._asked: dict[str, float] = {}  # when a stream's trainers last gave workers something to do
        self._trainers: dict[str, float] = {}  # when a policy's trainer was heard of last
        self._workers: dict[str, float] = {}
        self._handed_in: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by worker, since this process began
        self._events: defaultdict[str, list[Event]] = defaultdict(list)  # of this call, by stream
        self._payloads: list[tuple[str, SlotId, bytes]] = []
        self._forgotten: list[tuple[str, SlotId]] = []
        for stream, (setup, ledger) in self._journal.load().items():
            ledger.renew_all(self._began + lease_seconds)
            self._add(stream, setup, ledger)
            for policy in ledger.policies:  # also what was stored last, and its version never answered
                self._store.prune(policy, ledger.needed(policy))

    # ---------------------------------------------------------------- workers
    def describe(self) -> dict[str, Any]:
        """Return for each stream what its trainers gave, and under `actors` for each policy what its own did."""
        with self._changed:
            return {name: {**setup, ACTORS: {**setup[ACTORS]}} for name, setup in self._setups.items()}

    def lease(self, worker: str, count: int, wait: float = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play for `wait` seconds.

        Among streams, the one comes first of whose slots the smallest share is leased or committed.

        Raises `FlowDown` if no trainer was heard of for longer than the deadline.
        """
        check_positive("count", count)
        end = time.monotonic() + wait
        with self._changed:
            while True:
                with self._call(worker):
                    self._check_trainers()
                    self._expire()
                    leases = self._lease(worker, count)
                if leases or not self._waited(end):
                    return leases

    def renew(self, worker: str, held: list[Held]) -> list[Held]:
        """Renew leases, and return those that have ended."""
        with self._call(worker):
            deadline = self._clock() + self.lease_seconds
            ledgers = [self._ledgers.get(one.stream) for one in held]
            both = zip(held, ledgers, strict=True)
            return [one for one, ledger in both if not (ledger and ledger.renew(one.slot, one.attempt, deadline))]

    def commit(self, worker: str, commits: list[Commit]) -> list[Verdict]:
        """Hand in episodes; return what became of each."""
        contents = [commit.payload.encode("utf-8", "surrogatepass") for commit in commits]
        digests = [digest_of(content) for content in contents]
        with self._call(worker):
            verdicts = [self._commit(*one) for one in zip(commits, contents, digests, strict=True)]
            self._handed_in[worker].update(verdict.value for verdict in verdicts)
            self._changed.notify_all()
            return verdicts

    def fail(self, worker: str, held: Held, reason: str) -> None:
        """Give a lease back."""
        with self._call(worker):
            ledger = self._ledgers.get(held.stream)
            if ledger is not None and ledger.fail(held.slot, held.attempt, reason):
                self._events[held.stream].append(("fail", held.slot, held.attempt, reason))
                self._changed.notify_all()

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message. Raises `BadData` if they are not kept any more."""
        return self._store.get(policy, version, have)

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any]) -> dict[str, Any]:
        """Begin, or go on from before `batch`; return the figures of the stream.

        `setup` has the stream's `policies`, `order`, `staleness` and `max_attempts`, and what else workers need to know
        of it; all trainers of a stream give the same. What only workers need to know of this policy is its `actor`.

        Raises `BadSetting` if the stream has another setup, or what the batch needs is not there any more.
        """
        setup = json.loads(json.dumps(setup))
        actor = setup.pop(ACTOR, {})
        with self._call(durable=True):
            self._check_setup(stream, policy, setup)
            if stream not in self._ledgers:
                settings = {name: setup[name] for name in ("order", "staleness", "max_attempts") if name in setup}
                ledger = Ledger(setup["policies"], **settings, first=batch)
                self._add(stream, {**setup, ACTORS: {}}, ledger)
                self._journal.begin(stream, self._setups[stream], ledger)
            void = self._ledgers[stream].rewind(policy, batch)
            self._forgotten += [(stream, slot) for slot in void]
            self._note(stream, policy, "rewind", policy, batch)
            if self._setups[stream][ACTORS].get(policy) != actor:
                self._setups[stream][ACTORS][policy] = actor
                self._write(durable=True)
                self._compact()
            return self._figures(stream)

    def publish(self, policy: str, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update; return their version. Raises what the store raises."""
        digest = digest_of(message)
        with self._publishing:
            with self._call():
                stream = self._stream_of(policy)
                ledger = self._ledgers[stream]
                newest = ledger.newest(policy)
                if newest is not None and (newest.update, newest.step, newest.digest) == (update, step, digest):
                    return newest.version
                published = Published(ledger.weights.of[policy].last + 1, update, step, digest)
            self._store.put(policy, published.version, message)
            with self._call(durable=True):
                ledger.publish(policy, published)
                self._note(stream, policy, "publish", policy, *asdict(published).values())
                needed = ledger.needed(policy)
            self._store.prune(policy, needed)
            return published.version

    def admit(self, stream: str, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is there with another task or seed."""
        with self._call():
            self._ledger(stream).admit(slots)
            self._note(stream, None, "admit", slots)

    def arrivals(self, stream: str, policy: str, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not trained on, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker was heard of for longer than the deadline, and `FlowDown` if it waits for the
        weights of another policy whose trainer was not.
        """
        end = time.monotonic() + wait
        with self._changed:
            while True:
                with self._call():
                    self._expire()
                    self._ledger(stream)
                    found = self._arrivals(stream, policy, after)
                    self._trainers[policy] = self._clock()
                    if not found:
                        self._check_progress(stream)
                if found or not self._waited(end):
                    return found

    def reject(self, stream: str, slot: SlotId, attempt: int, reason: str) -> None:
        """Refuse a committed episode; it will be played again."""
        with self._call():
            ledger = self._ledger(stream)
            if ledger.reject(slot, attempt, reason):
                self._handed_in[ledger.entries[slot].worker]["rejected"] += 1
                self._note(stream, None, "reject", slot, attempt, reason)

    def ack(self, stream: str, policy: str, batch: int, trained: list[SlotId], dropped: list[SlotId]) -> list[SlotId]:
        """Note that `policy` makes its batch of the slots `trained`, and does not want those in `dropped`.

        Returns those whose episodes are void: then nothing is noted. Raises as `Ledger.ack`.
        """
        with self._call(durable=True):
            void = self._ledger(stream).ack(policy, batch, trained, dropped)
            if not void:
                self._note(stream, policy, "ack", policy, batch, trained, dropped)
            return void

    def keep(self, stream: str, policy: str, batch: int) -> None:
        """Forget what was acknowledged before `batch`. Raises `BadSetting` if something before it was not."""
        with self._call():
            self._forgotten += [(stream, slot) for slot in self._ledger(stream).keep(policy, batch)]
            self._note(stream, policy, "keep", policy, batch)

    def beat(self, policy: str) -> None:
        """Note that the trainer of `policy` is alive."""
        with self._call():
            self._stream_of(policy)
            self._trainers[policy] = self._clock()

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data.

        `settings` has those of the manager. `streams` has for each stream the slots in each of the `states`, how often
        what happened (`counts`), and for each of its `policies`: how many batches it has acknowledged (`done`), the
        batch of its last checkpoint (`kept`), what it published last (`newest`; None before), how many of its episodes
        were played with weights how many updates old (`ages`), and for how many seconds it has been `silent`. `workers`
        has for each worker for how long it has been `silent`, and how many of its episodes were `accepted`, `repeated`,
        `late` and `rejected` since this process began.
        """
        with self._call():
            now = self._clock()
            return {
                "settings": {"lease_seconds": self.lease_seconds, "deadline": self.deadline},
                "streams": {stream: self._figures(stream) for stream in self._ledgers},
                "workers": {
                    name: {"silent": now - heard, **self._handed_in[name]} for name, heard in self._workers.items()
                },
            }

    def close(self) -> None:
        """Close the journal. Every later call raises `FlowDown`."""
        with self._changed:
            self._down = "the manager has ended; start it again with its journal"
            self._journal.close()
            self._changed.notify_all()

    # ---------------------------------------------------------------- inside
    @contextmanager
    def _call(self, worker: str | None = None, *, durable: bool = False) -> Iterator[None]:
        """Let nobody else in, and write what was done before it is answered."""
        with self._changed:
            if self._down:
                raise FlowDown(self._down)
            if worker is not None:
                self._workers[worker] = self._clock()
            try:
                try:
                    yield
                finally:
                    self._write(durable)
            except sqlite3.Error as error:  # what was not answered did not happen: the journal decides, not this memory
                self._down = f"the journal cannot be used ({error}); mend that and start the manager again"
                self._changed.notify_all()
                raise FlowDown(self._down) from error

    def _write(self, durable: bool) -> None:
        if self._events or self._payloads or self._forgotten:
            events, payloads, forgotten = dict(self._events), [*self._payloads], [*self._forgotten]
            for done in (self._events, self._payloads, self._forgotten):
                done.clear()
            self._journal.write(events, payloads, forgotten, durable=durable)
            if self._journal.is_long:
                self._compact()

    def _compact(self) -> None:
        self._journal.compact({name: (self._setups[name], ledger) for name, ledger in self._ledgers.items()})

    def _note(self, stream: str, policy: str | None, name: str, *args: Any) -> None:
        """Note what a trainer did."""
        self._events[stream].append((name, *args))
        self._asked[stream] = self._clock()
        if policy is not None:
            self._trainers[policy] = self._clock()
        self._changed.notify_all()

    def _waited(self, end: float) -> bool:
        """Wait until something has changed or some time has passed; return whether it was not `end` before."""
        left = end - time.monotonic()
        if left > 0:
            self._changed.wait(min(left, TICK))
        return left > 0

    def _add(self, stream: str, setup: dict[str, Any], ledger: Ledger) -> None:
        self._setups[stream], self._ledgers[stream] = setup, ledger
        self._asked[stream] = self._clock()
        self._trainers.update(dict.fromkeys(ledger.policies, self._clock()))

    def _ledger(self, stream: str) -> Ledger:
        if stream not in self._ledgers:
            raise UnknownName.among(stream, self._ledgers)
        return self._ledgers[stream]

    def _stream_of(self, policy: str) -> str:
        for stream, ledger in self._ledgers.items():
            if policy in ledger.policies:
                return stream
        raise UnknownName.among(policy, [one for ledger in self._ledgers.values() for one in ledger.policies])

    def _expire(self) -> None:
        now = self._clock()
        for stream, ledger in self._ledgers.items():
            for entry in ledger.expire(now):
                self._events[stream].append(("fail", entry.slot.id, entry.attempt, entry.reason, "expired"))

    def _lease(self, worker: str, count: int) -> list[Lease]:
        deadline = self._clock() + self.lease_seconds
        leases: list[Lease] = []
        waiting = dict(self._ledgers)
        while waiting and len(leases) < count:
            stream = min(waiting, key=lambda one: waiting[one].share)
            entries = waiting[stream].lease(worker, 1 if len(waiting) > 1 else count - len(leases), deadline)
            leases += [Lease(stream, one.slot, one.attempt, dict(one.weights), self.lease_seconds) for one in entries]
            if entries:
                self._events[stream].append(("lease", worker, len(entries)))
            else:
                del waiting[stream]
        return leases

    def _commit(self, commit: Commit, content: bytes, digest: str) -> Verdict:
        stream, slot, attempt = commit.held
        ledger = self._ledgers.get(stream)
        verdict = Verdict.LATE if ledger is None else ledger.commit(slot, attempt, digest)
        if ledger is not None and verdict is not Verdict.REPEATED:
            self._events[stream].append(("commit", slot, attempt, digest))
        if verdict is Verdict.ACCEPTED:
            self._payloads.append((stream, slot, content))
        return verdict

    def _arrivals(self, stream: str, policy: str, after: int) -> list[Arrival]:
        ledger, found = self._ledgers[stream], []
        known: dict[
            tuple[int, ...], tuple[dict[str, int], dict[str, int]]
        ] = {}  # many are played with the same weights
        for entry in ledger.arrived(policy, after):
            versions = tuple(entry.weights.values())
            if versions not in known:
                published = {one: ledger.version(one, version) for one, version in entry.weights.items()}
                there = {one: it for one, it in published.items() if it is not None}
                known[versions] = {p: it.step for p, it in there.items()}, {p: it.update for p, it in there.items()}
            content = self._journal.payload(stream, entry.slot.id) if entry.digest else b""
            assert content is not None, "the journal has what was committed"
            payload = content.decode("utf-8", "surrogatepass")
            found.append(Arrival(entry.number, entry.slot, entry.attempt, *known[versions], payload, entry.reason))
        return found

    def _check_trainers(self) -> None:
        silent = self._clock() - max(self._trainers.values(), default=self._began)
        if silent > self.deadline:
            raise FlowDown(f"no trainer was heard of for {silent:.0f} seconds; start it again, then this worker")

    def _check_progress(self, stream: str) -> None:
        """Raise if a trainer waits for episodes that do not come."""
        ledger, now = self._ledgers[stream], self._clock()
        states = ledger.states()
        if not states[State.QUEUED] + states[State.LEASED]:
            return
        silent = now - max([self._asked[stream], *self._workers.values()])
        if silent > self.deadline:
            raise NoWorkers(
                f"no rollout worker was heard of for {silent:.0f} seconds; start one: agentgym-flow worker --join URL"
            )
        other = None if states[State.LEASED] else ledger.waits_for()
        if other is not None and now - self._trainers[other] > self.deadline:
            raise FlowDown(
                f"the next episodes need new weights of {other}, whose trainer was not heard of for "
                f"{now - self._trainers[other]:.0f} seconds; start it again, then this one"
            )

    def _figures(self, stream: str) -> dict[str, Any]:
        ledger, now = self._ledgers[stream], self._clock()
        policies = {}
        for policy in ledger.policies:
            newest = ledger.newest(policy)
            policies[policy] = {
                "done": ledger.done[policy],
                "kept": ledger.kept[policy],
                "newest": None if newest is None else asdict(newest),
                "ages": {str(age): count for age, count in sorted(ledger.ages[policy].items()) if count},
                "silent": now - self._trainers[policy],
            }
        return {"states": ledger.states(), "counts": dict(ledger.counts), "policies": policies}

    def _check_setup(self, stream: str, policy: str, setup: dict[str, Any]) -> None:
        policies = setup.get("policies")
        if not isinstance(policies, list) or policy not in policies or len({*policies}) < len(policies):
            raise BadSetting(f"setup['policies'] must list the stream's policies, {policy} too, got {shown(policies)}")
        for other, known in self._setups.items():
            for name in sorted({*setup, *known} - {ACTORS}) if other == stream else ():
                if setup.get(name) != known.get(name):
                    raise BadSetting(
                        f"stream {stream} has {name}={shown(known.get(name))}, and this trainer "
                        f"{shown(setup.get(name))}: give all trainers of a stream the same settings"
                    )
            if other != stream and {*policies} & {*known["policies"]}:
                twice = sorted({*policies} & {*known["policies"]})
                raise BadSetting(f"{twice[0]} acts in stream {other}, so it cannot act in {stream} too")
