"""The manager: what trainers and workers call. It knows every slot of every stream, and who was heard of when."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import asdict
from math import inf
from typing import Any, Protocol

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.bookkeeping.book import Book
from agentgym_flow.dataflow.bookkeeping.journal import Journal, digest_of
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.pace import Pace
from agentgym_flow.dataflow.bookkeeping.silence import Silence
from agentgym_flow.dataflow.bookkeeping.versions import Published
from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Commit, Held, Lease, Slot, Verdict
from agentgym_flow.dataflow.weights.store import WeightStore
from agentgym_flow.errors import BadSetting, shown

ACTOR, ACTORS = "actor", "actors"
"""What a trainer tells workers of its policy, and where workers find it."""


class Store(Protocol):
    """Where published weights are kept, as `agentgym_flow.dataflow.weights.store.WeightStore` does."""

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
        self._clock = clock
        self._silence, self._pace = Silence(deadline, clock), Pace(clock)
        self._publishing = threading.Lock()  # storing weights can take long: other calls go on
        self._handed_in: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by worker, since this process began
        self._book = Book(journal)
        for stream, ledger in self._book.ledgers.items():
            ledger.slots.renew_all(clock() + lease_seconds, inf)
            self._silence.begin(stream, ledger.policies)
            self._pace.begin(stream, ledger.policies)
            for policy in ledger.policies:  # also what was stored last, and its version never answered
                self._store.prune(policy, ledger.needed(policy))

    # ---------------------------------------------------------------- workers
    def describe(self) -> dict[str, Any]:
        """Return for each stream what its trainers gave, and under `actors` for each policy what its own did."""
        with self._book.call():
            return {name: {**setup, ACTORS: {**setup[ACTORS]}} for name, setup in self._book.setups.items()}

    def lease(self, worker: str, count: int, wait: float = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play for `wait` seconds.

        Among streams, the one comes first of whose slots the smallest share is leased or committed.

        Raises `FlowDown` if no trainer was heard of for longer than the deadline.
        """
        check_positive("count", count)
        end = time.monotonic() + wait
        with self._book.changed:
            while True:
                with self._book.call():
                    self._silence.heard_of_worker(worker)
                    self._silence.check_trainers()
                    self._expire()
                    leases = self._lease(worker, count)
                if leases or not self._book.waited(end):
                    return leases

    def renew(self, worker: str, held: list[Held]) -> list[Held]:
        """Renew leases, and return those that have ended."""
        with self._book.call():
            self._silence.heard_of_worker(worker)
            deadline = self._clock() + self.lease_seconds
            ledgers = [self._book.ledgers.get(one.stream) for one in held]
            both = zip(held, ledgers, strict=True)
            return [one for one, ledger in both if not (ledger and ledger.renew(one.slot, one.attempt, deadline))]

    def commit(self, worker: str, commits: list[Commit]) -> list[Verdict]:
        """Hand in episodes; return what became of each."""
        contents = [commit.payload.encode("utf-8", "surrogatepass") for commit in commits]
        digests = [digest_of(content) for content in contents]
        with self._book.call():
            self._silence.heard_of_worker(worker)
            verdicts = [self._commit(*one) for one in zip(commits, contents, digests, strict=True)]
            self._handed_in[worker].update(verdict.value for verdict in verdicts)
            self._book.changed.notify_all()
            return verdicts

    def fail(self, worker: str, held: Held, reason: str) -> None:
        """Give a lease back because its episode cannot be played here."""
        with self._book.call():
            self._silence.heard_of_worker(worker)
            ledger = self._book.ledgers.get(held.stream)
            if ledger is not None and ledger.fail(held.slot, held.attempt, reason):
                self._book.note(held.stream, "fail", held.slot, held.attempt, reason)
                self._book.changed.notify_all()

    def give_back(self, worker: str, held: list[Held]) -> None:
        """Give leases back because the worker leaves."""
        with self._book.call():
            for stream, slot, attempt in held:
                ledger = self._book.ledgers.get(stream)
                if ledger is not None and ledger.give_back(slot, attempt):
                    self._book.note(stream, "give_back", slot, attempt)
            self._book.changed.notify_all()

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message. Raises `BadData` if they are not kept any more."""
        return self._store.get(policy, version, have)

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or go on from before `batch`; return what names this trainer in all its calls.

        `setup` has the stream's `policies`, `order`, `staleness` and `max_attempts`, and what else workers need to know
        of it; all trainers of a stream give the same. What only workers need to know of this policy is its `actor`.

        Raises `BadSetting` if the stream has another setup, or what the batch needs is not there any more, and
        `Superseded` if another trainer has done this after the same one.
        """
        setup = json.loads(json.dumps(setup))
        actor = setup.pop(ACTOR, {})
        with self._book.call(durable=True):
            self._book.check_setup(stream, policy, setup, besides=[ACTORS])
            if stream not in self._book.ledgers:
                settings = {name: setup[name] for name in ("order", "staleness", "max_attempts") if name in setup}
                self._book.begin(stream, {**setup, ACTORS: {}}, Ledger(setup["policies"], **settings, first=batch))
                self._silence.begin(stream, setup["policies"])
                self._pace.begin(stream, setup["policies"])
            ledger = self._book.ledger(stream)
            self._book.drop_payloads(stream, ledger.open(policy, batch, trainer))
            claim = Claim(stream, policy, ledger.progress.epoch(policy))
            self._note(claim, "open", policy, batch, trainer)
            actors = self._book.setups[stream][ACTORS]
            if actors.get(policy) != actor:
                self._book.replace_setup(stream, {**setup, ACTORS: {**actors, policy: actor}})
            return claim

    def publish(self, claim: Claim, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update; return their version. Raises as `Ledger.publish`, and as the store."""
        digest = digest_of(message)
        with self._publishing:
            with self._book.call():
                ledger = self._book.claimed(claim)
                newest = ledger.newest(claim.policy)
                if newest is not None and (newest.update, newest.step, newest.digest) == (update, step, digest):
                    return newest.version
                version = ledger.weights.of[claim.policy].last + 1
            self._store.put(claim.policy, version, message)
            try:
                with self._book.call(durable=True):
                    published = Published(version, update, step, digest, claim.epoch)
                    self._book.drop_payloads(claim.stream, self._book.claimed(claim).publish(claim.policy, published))
                    self._note(claim, "publish", claim.policy, *asdict(published).values())
            finally:
                with self._book.changed:
                    needed = ledger.needed(claim.policy)
                self._store.prune(claim.policy, needed)
            return version

    def admit(self, claim: Claim, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is there with another task or seed."""
        with self._book.call():
            self._book.claimed(claim).admit(slots)
            self._note(claim, "admit", slots)

    def arrivals(self, claim: Claim, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not trained on, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker was heard of for longer than the deadline, and `FlowDown` if it waits for the
        weights of another policy whose trainer was not.
        """
        stream, policy, _ = claim
        began, end = self._clock(), time.monotonic() + wait
        with self._book.changed:
            while True:
                with self._book.call():
                    ledger = self._book.claimed(claim)
                    self._expire()
                    found = self._book.arrivals(stream, policy, after)
                    self._silence.heard_of_trainer(policy=policy)
                    if not found:
                        self._silence.check_progress(stream, ledger)
                if found or not self._book.waited(end):
                    self._pace.wait(policy, self._clock() - began)
                    return found

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Refuse a committed episode; it will be played again."""
        with self._book.call():
            ledger = self._book.claimed(claim)
            if ledger.reject(*attempt, reason):
                self._handed_in[ledger.entries[attempt.slot].worker]["rejected"] += 1
                self._note(claim, "reject", *attempt, reason)

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Note that the policy makes its batch of the episodes `trained`, and does not want those in `dropped`.

        Returns those that are void: then nothing is noted. Raises as `Ledger.ack`.
        """
        with self._book.call(durable=True):
            void = self._book.claimed(claim).ack(claim.policy, batch, trained, dropped)
            if not void:
                self._note(claim, "ack", claim.policy, batch, trained, dropped)
                self._pace.use(claim.policy, len(trained) + len(dropped))
            return void

    def keep(self, claim: Claim, batch: int) -> None:
        """Forget what was acknowledged before `batch`. Raises `BadSetting` if something before it was not."""
        with self._book.call():
            self._book.drop_payloads(claim.stream, self._book.claimed(claim).keep(claim.policy, batch))
            self._note(claim, "keep", claim.policy, batch)

    def beat(self, claim: Claim) -> None:
        """Note that the trainer is alive."""
        with self._book.call():
            self._book.claimed(claim)
            self._silence.heard_of_trainer(policy=claim.policy)

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data.

        `settings` has those of the manager. `streams` has for each stream the slots in each of the `states`, how often
        what happened (`counts`), and for each of its `policies`: which trainer speaks for it (`epoch`), how many
        batches it has acknowledged (`done`), the batch of its last checkpoint (`kept`), what it published last
        (`newest`; None before), how many of its episodes were played with weights how many updates old (`ages`), and
        for how many seconds it has been `silent`. `workers` has for each worker for how long it has been `silent`, and
        how many of its episodes were `accepted`, `repeated`, `late` and `rejected` since this process began. `pace` has
        `Pace.of` each policy, since then as well.
        """
        with self._book.call():
            silent = self._silence.of_workers()
            return {
                "settings": {"lease_seconds": self.lease_seconds, "deadline": self.deadline},
                "streams": {stream: self._figures(stream) for stream in self._book.ledgers},
                "workers": {name: {"silent": silent[name], **self._handed_in[name]} for name in silent},
                "pace": {name: self._pace.of(name) for one in self._book.ledgers.values() for name in one.policies},
            }

    def close(self) -> None:
        """Close the journal. Every later call raises `FlowDown`."""
        self._book.close()

    # ---------------------------------------------------------------- inside
    def _note(self, claim: Claim, name: str, *args: Any) -> None:
        """Note what a trainer did."""
        self._book.note(claim.stream, name, *args)
        self._silence.heard_of_trainer(claim.stream, claim.policy)
        self._book.changed.notify_all()

    def _expire(self) -> None:
        now = self._clock()
        for stream, ledger in self._book.ledgers.items():
            for entry, why in ledger.expire(now):
                self._book.note(stream, "fail", entry.slot.id, entry.attempt, entry.reason, why)

    def _lease(self, worker: str, count: int) -> list[Lease]:
        deadline = self._clock() + self.lease_seconds
        leases: list[Lease] = []
        waiting = dict(self._book.ledgers)
        while waiting and len(leases) < count:
            stream = min(waiting, key=lambda one: waiting[one].slots.share)
            entries = waiting[stream].lease(worker, 1 if len(waiting) > 1 else count - len(leases), deadline)
            leases += [Lease(stream, one.slot, one.attempt, dict(one.weights), self.lease_seconds) for one in entries]
            if entries:
                self._book.note(stream, "lease", worker, len(entries), [])
            else:
                del waiting[stream]
        return leases

    def _commit(self, commit: Commit, content: bytes, digest: str) -> Verdict:
        stream, slot, attempt = commit.held
        ledger = self._book.ledgers.get(stream)
        verdict = Verdict.LATE if ledger is None else ledger.commit(slot, attempt, digest)
        if ledger is not None and verdict is not Verdict.REPEATED:
            self._book.note(stream, "commit", slot, attempt, digest)
        if verdict is Verdict.ACCEPTED:
            self._book.put_payload(stream, slot, content)
            self._pace.enter(stream)
        return verdict

    def _figures(self, stream: str) -> dict[str, Any]:
        ledger = self._book.ledger(stream)
        progress, policies = ledger.progress, {}
        for policy in ledger.policies:
            newest = ledger.newest(policy)
            policies[policy] = {
                "epoch": progress.epoch(policy),
                "done": progress.done[policy],
                "kept": progress.kept[policy],
                "newest": None if newest is None else asdict(newest),
                "ages": {str(age): count for age, count in sorted(progress.ages[policy].items()) if count},
                "silent": self._silence.of_trainer(policy),
            }
        return {"states": ledger.slots.states(), "counts": dict(ledger.counts), "policies": policies}
