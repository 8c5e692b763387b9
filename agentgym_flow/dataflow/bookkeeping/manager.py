"""The manager that trainers and workers call: the slots of all streams, and the liveness of trainers and workers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.bookkeeping.book import Book
from agentgym_flow.dataflow.bookkeeping.callers import Liveness, Pace, WorkerRegistry, figures_of
from agentgym_flow.dataflow.bookkeeping.idle import IdleTimes
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal, digest_of, needing_space
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.progress import PublishedWeights
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.records import (
    Arrival,
    Attempt,
    Claim,
    Commit,
    CommitVerdict,
    Exchanged,
    Flow,
    Lease,
    LeaseKey,
    Slot,
)
from agentgym_flow.dataflow.trace import NAME, TracedFlow, TraceWriter
from agentgym_flow.dataflow.weight_store import Files, WeightStore
from agentgym_flow.errors import BadSetting, RunsFinished, shown

ACTOR, ACTORS = "actor", "actors"
"""The keys of a setup with what workers need for one policy: as a trainer gives it, and as workers get it by policy."""

MOST_REASON = 1000
"""The most characters of the reason for a failed attempt that are kept."""

JOURNAL, WEIGHTS = "journal.sqlite", "weights"
"""The contents of a manager's folder."""


class Manager:
    """Implements `agentgym_flow.dataflow.records.Flow`. Thread-safe.

    With a journal, no answered call is lost when the process ends: a manager with the same journal, and a store that
    still has the weights, continues. Leases are then valid for `lease_seconds` from its start.

    Args:
        lease_seconds: how long a lease is valid, unless it is renewed.
        episode_seconds: how long a lease can be renewed; another worker then plays an episode that hangs.
        deadline: seconds without a call after which a trainer, or all workers together, count as dead.
        journal: where calls are recorded; by default nothing survives this process.
        store: where published weights are kept; by default in memory.
        clock: a monotonic clock, in seconds.

    Attributes:
        lock: between its `acquire` and `release`, calls wait neither for others nor for the disk, see `Book.acquire`.

    Raises:
        BadSetting: a number is out of range.
        BadData: the journal is damaged.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = 60.0,
        episode_seconds: float = 3600.0,
        deadline: float = 600.0,
        journal: ManagerJournal | None = None,
        store: WeightStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = {"lease_seconds": lease_seconds, "episode_seconds": episode_seconds, "deadline": deadline}
        for name, seconds in settings.items():
            if not seconds > 0:
                raise BadSetting(f"{name} must be above 0 seconds, got {shown(seconds)}")
        self.settings = settings
        self._book, self._store, self._clock = Book(journal), WeightStore() if store is None else store, clock
        self.lock = self._book
        self._lease_seconds = lease_seconds
        self._workers = WorkerRegistry(lease_seconds, clock)
        self._idle = IdleTimes(clock, lease_seconds, self._book.ledgers)
        self._book.answered = self._idle.answered
        self._pace = Pace(clock, self._idle)
        self._liveness = Liveness(deadline, clock, self._workers)
        self._publishing = threading.Lock()  # storing weights can take long and must not block other calls
        for stream, ledger in self._book.ledgers.items():
            ledger.slots.renew_all(clock() + lease_seconds, clock() + episode_seconds)
            self._liveness.begin(stream, [name for name in ledger.policies if not ledger.of(name).finished])
            self._pace.begin(stream, ledger.policies)
            for policy in ledger.policies:  # the last version may have been stored, but not published
                self._store.prune(policy, ledger.needed(policy))

    # ---------------------------------------------------------------- workers
    def describe(self) -> dict[str, Any]:
        """Return the setup of each stream, with what workers need for each policy under `actors`."""
        with self._book.call():
            return {name: {**setup, ACTORS: {**setup[ACTORS]}} for name, setup in self._book.setups.items()}

    def lease(self, worker: str, count: int, wait: float = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play for `wait` seconds.

        Streams with the smallest share of leased or committed slots come first.

        Raises `FlowDown` if no trainer has called for longer than the deadline, `RunsFinished` if none needs more
        episodes, and `PutAside` if this worker's last episodes all failed.
        """
        return self._exchange(worker, [], None, count, wait).leases

    def exchange(
        self, worker: str, commits: list[Commit], held: list[LeaseKey], count: int, wait: float = 0.0
    ) -> Exchanged:
        """Commit episodes as `commit`, then return leases as `lease`, and first those whose answer was lost.

        Raises as `lease`, also after it has committed the episodes.
        """
        return self._exchange(worker, commits, held, count, wait)

    def renew(self, worker: str, held: list[LeaseKey]) -> list[LeaseKey]:
        """Renew leases, and return those that have ended.

        If all have ended, the call does not show that the worker is alive: one that hangs keeps renewing its leases
        from a thread.
        """
        with self._book.call():
            deadline = self._clock() + self._lease_seconds
            ledgers = [self._book.ledgers.get(one.stream) for one in held]
            both = zip(held, ledgers, strict=True)
            self._book.expire(self._clock())
            ended = [one for one, ledger in both if not (ledger and ledger.renew(one.slot, one.attempt, deadline))]
            if len(ended) < len(held):
                self._workers.hear(worker)
                self._idle.called(worker)
            return ended

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        """Commit episodes; return the verdict on each.

        Episodes of more than `LONGEST` bytes, or beyond the worker's `QUOTA`, are refused and count as failed attempts.
        """
        sent = [(commit, digest_of(commit.payload)) for commit in commits]
        with self._book.call():
            return self._commit(worker, sent)

    def fail(self, worker: str, held: LeaseKey, reason: str) -> None:
        """Give a lease back because its episode cannot be played here."""
        reason = reason.encode("utf-8", "backslashreplace").decode()[:MOST_REASON]  # figures go into messages
        with self._book.call():
            self._workers.hear(worker)
            ledger = self._book.ledgers.get(held.stream)
            if ledger is not None and ledger.fail(held.slot, held.attempt, reason):
                self._book.note(held.stream, "fail", held.slot, held.attempt, reason)
                self._workers.fail(worker, held.stream, held.slot, reason)
                self._idle.called(worker)
                self._book.changed.notify_all()

    def give_back(self, worker: str, held: list[LeaseKey]) -> None:
        """Give leases back because the worker leaves."""
        with self._book.call():
            for stream, slot, attempt in held:
                ledger = self._book.ledgers.get(stream)
                if ledger is not None and ledger.give_back(slot, attempt):
                    self._book.note(stream, "give_back", slot, attempt)
            self._idle.called(worker)
            self._book.changed.notify_all()

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message. Raises `BadData` if they were deleted."""
        return self._store.get(policy, version, have)

    def newest(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Return version and digest of the newest weights of the policies of each stream that has some of all."""
        with self._book.call():
            return self._book.newest()

    def loaded(self, worker: str, policy: str, version: int, seconds: float) -> None:
        """Note that a worker has loaded weights, which took `seconds`."""
        with self._book.call():
            self._workers.hear(worker)
            self._idle.loaded(worker, policy, version)

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or continue from before `batch`; return the claim for all further calls of this trainer.

        `setup` has the stream's `policies`, `order`, `staleness` and `max_attempts`, and what else workers need for it;
        all trainers of a stream give the same. Its `actor` is what workers need for this policy only.

        Raises `BadSetting` if the stream has another setup, or what the batch needs was deleted, `BadData` if batches
        before it are not acknowledged here, so that the journal is damaged, and `Superseded` if another trainer has
        opened the stream since this one did.
        """
        try:
            setup = json.loads(json.dumps(setup, allow_nan=False, ensure_ascii=False).encode())
        except (ValueError, TypeError, RecursionError) as error:
            raise BadSetting(f"a setup must be plain data ({error})") from None
        actor = setup.pop(ACTOR, {})
        with self._book.call(durable=True):
            self._book.check_setup(stream, policy, setup, besides=[ACTORS])
            if stream not in self._book.ledgers:
                settings = {name: setup[name] for name in ("order", "staleness", "max_attempts") if name in setup}
                ledger = Ledger(setup["policies"], **settings)
                ledger.of(policy).check_done(batch)
                self._book.begin(stream, {**setup, ACTORS: {}}, ledger)
                self._liveness.begin(stream, setup["policies"])
                self._pace.begin(stream, setup["policies"])
            ledger = self._book.ledger(stream)
            ledger.open(policy, batch, trainer)
            claim = Claim(stream, policy, ledger.of(policy).epoch)
            self._note(claim, "open", policy, batch, trainer)
            actors = self._book.setups[stream][ACTORS]
            if actors.get(policy) != actor:
                self._book.replace_setup(stream, {**setup, ACTORS: {**actors, policy: actor}})
            return claim

    def publish(self, claim: Claim, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update; return their version. Raises as `Ledger.publish` and the store do."""
        digest = self._store.digest(message)
        with self._publishing:
            with self._book.call():
                ledger = self._book.claimed(claim)
                newest = ledger.of(claim.policy).versions.newest()
                if newest is not None and (newest.update, newest.step, newest.digest) != (update, step, digest):
                    newest = None
                version = ledger.of(claim.policy).versions.last + 1 if newest is None else newest.version
            with needing_space():
                self._store.put(claim.policy, version, message)
            if newest is not None:
                return version
            try:
                with self._book.call(durable=True):
                    published = PublishedWeights(version, update, step, digest, claim.epoch)
                    self._book.claimed(claim).publish(claim.policy, published)
                    self._note(claim, "publish", claim.policy, *asdict(published).values())
            finally:
                with self._book.changed:
                    needed = ledger.needed(claim.policy)
                self._store.prune(claim.policy, needed)
            return version

    def admit(self, claim: Claim, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is known with another task or seed."""
        with self._book.call(durable=True):  # a trainer that goes on does not repeat it
            self._book.claimed(claim).admit(slots)
            self._note(claim, "admit", slots)

    def arrivals(self, claim: Claim, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not used, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker has called for longer than the deadline, `FlowDown` if the next episodes need
        weights of another policy whose trainer has not, and `BadData` if there is no commit with the number `after`.
        """
        stream, policy, _ = claim
        end = time.monotonic() + wait
        with self._book.changed:
            while True:
                with self._book.call():
                    ledger = self._book.claimed(claim)
                    self._book.expire(self._clock())
                    found = self._book.arrivals(stream, policy, after)
                    self._liveness.heard_of_trainer(policy=policy)
                    self._idle.trainer(stream, policy, waits=not found)
                    if not found:
                        self._liveness.check_progress(stream, ledger)
                if found or not self._book.waited(end):
                    return found

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Reject a committed episode; it will be played again."""
        reason = reason.encode("utf-8", "backslashreplace").decode()[:MOST_REASON]
        with self._book.call():
            ledger = self._book.claimed(claim)
            if ledger.reject(*attempt, reason):
                self._workers.refuse(ledger.entries[attempt.slot].worker, claim.stream, attempt.slot, reason)
                self._note(claim, "reject", *attempt, reason)

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Note that the policy trains on the episodes `trained` for its batch, and drops those in `dropped`.

        Returns those that are void; if there are any, nothing is noted. Raises as `Ledger.ack`.
        """
        with self._book.call(durable=True):
            ledger = self._book.claimed(claim)
            void = ledger.ack(claim.policy, batch, trained, dropped)
            if not void:
                for worker in {ledger.entries[attempt.slot].worker for attempt in trained}:
                    self._workers.help(worker)
                self._note(claim, "ack", claim.policy, batch, trained, dropped)
                self._pace.use(claim.policy, len(trained) + len(dropped))
            return void

    def keep(self, claim: Claim, batch: int) -> None:
        """Delete what was acknowledged before `batch`. Raises `BadSetting` if an earlier batch is not acknowledged."""
        with self._book.call():
            self._book.claimed(claim).keep(claim.policy, batch)
            self._note(claim, "keep", claim.policy, batch)

    def finish(self, claim: Claim) -> None:
        """Note that the trainer needs no more episodes, unless it opens the stream again."""
        with self._book.call(durable=True):
            self._book.claimed(claim).finish(claim.policy)
            self._note(claim, "finish", claim.policy)
            self._idle.finish(claim.policy)
            self._liveness.finish(claim.policy)

    def beat(self, claim: Claim) -> None:
        """Note that the trainer is alive."""
        with self._book.call():
            self._book.claimed(claim)
            self._liveness.heard_of_trainer(policy=claim.policy)
            self._idle.beat(claim.policy)

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data.

        These are the manager's `settings`, `figures_of` each stream in `streams`, `WorkerRegistry.figures` in `workers`
        with the bytes that no policy has used yet (`unused`) and shares of time (`idle`), who waits `now`, and for each
        policy `Pace.of` in `pace` and `Pace.totals` in `totals`.
        """
        with self._book.call():
            workers = {name: {**one, **self._idle.of_worker(name)} for name, one in self._workers.figures().items()}
            for ledger in self._book.ledgers.values():
                for name in workers.keys() & ledger.slots.unused:
                    workers[name]["unused"] = workers[name].get("unused", 0) + ledger.slots.unused[name]
            policies = [name for ledger in self._book.ledgers.values() for name in ledger.policies]
            return {
                "settings": dict(self.settings),
                "streams": {name: figures_of(one, self._liveness) for name, one in self._book.ledgers.items()},
                "workers": workers,
                "now": self._idle.now(self.settings["episode_seconds"]),
                "pace": {name: self._pace.of(name) for name in policies},
                "totals": {name: self._pace.totals(name) for name in policies},
            }

    def close(self) -> None:
        """Close the journal. Every later call raises `FlowDown`."""
        self._book.close()

    # ---------------------------------------------------------------- inside
    def _note(self, claim: Claim, name: str, *args: Any) -> None:
        """Note a call of a trainer."""
        self._book.note(claim.stream, name, *args)
        self._idle.trainer(claim.stream, claim.policy)
        self._liveness.heard_of_trainer(claim.stream, claim.policy)
        self._book.changed.notify_all()

    def _exchange(
        self, worker: str, commits: list[Commit], held: list[LeaseKey] | None, count: int, wait: float
    ) -> Exchanged:
        """Commit and lease, see `exchange`; with None for `held`, no lease is returned again."""
        check_positive("count", count)
        end = time.monotonic() + wait
        sent = [(commit, digest_of(commit.payload)) for commit in commits]
        verdicts: list[CommitVerdict] = []
        with self._book.changed:
            while True:
                with self._book.call():
                    if sent:
                        verdicts, sent = self._commit(worker, sent), []
                    leases = self._lease(worker, held, count)
                if leases or not self._book.waited(end):
                    return Exchanged(verdicts, leases)

    def _lease(self, worker: str, held: list[LeaseKey] | None, count: int) -> list[Lease]:
        self._workers.hear(worker)
        self._workers.check(worker)
        ledgers = self._book.ledgers.values()
        if ledgers and all(ledger.is_finished for ledger in ledgers):
            raise RunsFinished("no trainer needs more episodes: all runs of this manager are finished")
        self._liveness.check_trainers()
        now = self._clock()
        self._book.expire(now)
        seconds, limit = self._lease_seconds, now + self.settings["episode_seconds"]
        again = [] if held is None else self._book.lost_leases(worker, count, {*held}, seconds, now + seconds)
        failed = self._workers.avoid(worker)
        new = self._book.new_leases(worker, count - len(again), failed, seconds, now + seconds, limit)
        self._idle.asked(worker, new, count - len(again) - len(new))
        return again + new

    def _commit(self, worker: str, sent: list[tuple[Commit, str]]) -> list[CommitVerdict]:
        """Commit episodes, given with their digests."""
        self._workers.hear(worker)
        verdicts = [self._verdict(worker, commit, digest) for commit, digest in sent]
        self._workers.count(worker, verdicts)
        self._idle.called(worker)
        self._book.changed.notify_all()
        return verdicts

    def _verdict(self, worker: str, commit: Commit, digest: str) -> CommitVerdict:
        stream, slot, attempt = commit.held
        ledger = self._book.ledgers.get(stream)
        entry = None if ledger is None else ledger.slots.leased(slot, attempt)
        refused = None if ledger is None or entry is None else self._book.refusal(ledger, entry, commit)
        if ledger is not None and refused is not None:
            verdict, reason = refused
            if verdict is CommitVerdict.LATE:
                self.give_back(worker, [commit.held])
                return verdict
            ledger.fail(slot, attempt, reason, verdict)
            self._book.note(stream, "fail", slot, attempt, reason, verdict)
            self._workers.fail(worker, stream, slot, reason)
            return verdict
        size = len(commit.payload)
        used = [*{(policy, version): None for policy, version, _ in commit.used}]  # a worker may send any number
        verdict = CommitVerdict.LATE if ledger is None else ledger.commit(slot, attempt, digest, size, used)
        if ledger is not None and verdict is not CommitVerdict.REPEATED:
            self._book.note(stream, "commit", slot, attempt, digest, size, *([used] if used else []))
        if ledger is not None and verdict is CommitVerdict.ACCEPTED:
            self._book.put_payload(stream, ledger.slots.last_commit, commit.payload)
            self._pace.enter(stream)
        return verdict


def open_manager(folder: Path, config: FlowConfig) -> Manager:
    """Return a manager that continues from the journal and weights in `folder`, if there are any.

    Raises `BadSetting` if another manager has the folder open, `BadData` if the journal is damaged.
    """
    return Manager(
        lease_seconds=config.lease_seconds,
        episode_seconds=config.episode_seconds,
        deadline=config.deadline,
        journal=ManagerJournal(folder / JOURNAL),
        store=WeightStore(Files(folder / WEIGHTS)),
    )


def traced(manager: Manager, folder: Path, config: FlowConfig) -> Flow:
    """Return the manager, wrapped to write a trace in `folder` if the settings ask for one."""
    return TracedFlow(manager, TraceWriter(folder / NAME)) if config.trace else manager


@contextmanager
def hosted(folder: Path, config: FlowConfig) -> Iterator[Flow]:
    """Yield the manager of a folder, see `open_manager`, and close it after the block."""
    with closing(open_manager(folder, config)) as manager:
        yield traced(manager, folder, config)
