"""The manager's calls for workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.bookkeeping.book import Book
from agentgym_flow.dataflow.bookkeeping.entries import LedgerEntry
from agentgym_flow.dataflow.bookkeeping.journal import digest_of
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.liveness import Liveness
from agentgym_flow.dataflow.bookkeeping.pace import Pace
from agentgym_flow.dataflow.bookkeeping.workers import WorkerRegistry
from agentgym_flow.dataflow.records import LONGEST, Commit, CommitVerdict, Lease, LeaseKey
from agentgym_flow.dataflow.weights.store import WeightStore
from agentgym_flow.errors import RunsFinished

ACTOR, ACTORS = "actor", "actors"
"""The keys of a setup with what workers need for one policy: as a trainer gives it, and as workers get it by policy."""


QUOTA = 4 << 30
"""The most bytes of episodes of one worker that some policy has not used yet; an honest worker has far fewer."""

MOST_REASON = 1000
"""The most characters of the reason for a failed attempt that are kept."""


class WorkerCalls:
    """The calls of workers; `Manager` has those of trainers.

    Args:
        book: the streams.
        store: where published weights are kept.
        settings: `lease_seconds`, `episode_seconds` and `deadline`, see `Manager`.
        clock: see `Manager`.
    """

    def __init__(self, book: Book, store: WeightStore, settings: dict[str, float], clock: Callable[[], float]) -> None:
        self.settings = settings
        self._book, self._store, self._clock = book, store, clock
        self._lease_seconds = settings["lease_seconds"]
        self._workers, self._pace = WorkerRegistry(self._lease_seconds, clock), Pace(clock)
        self._liveness = Liveness(settings["deadline"], clock, self._workers)

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
        check_positive("count", count)
        end = time.monotonic() + wait
        with self._book.changed:
            while True:
                with self._book.call():
                    self._workers.hear(worker)
                    self._workers.check(worker)
                    self._check_unfinished()
                    self._liveness.check_trainers()
                    self._expire()
                    leases = self._lease(worker, count)
                if leases or not self._book.waited(end):
                    return leases

    def renew(self, worker: str, held: list[LeaseKey]) -> list[LeaseKey]:
        """Renew leases, and return those that have ended.

        If all have ended, the call does not show that the worker is alive: one that hangs keeps renewing its leases
        from a thread.
        """
        with self._book.call():
            deadline = self._clock() + self._lease_seconds
            ledgers = [self._book.ledgers.get(one.stream) for one in held]
            both = zip(held, ledgers, strict=True)
            self._expire()
            ended = [one for one, ledger in both if not (ledger and ledger.renew(one.slot, one.attempt, deadline))]
            if len(ended) < len(held):
                self._workers.hear(worker)
            return ended

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        """Commit episodes; return the verdict on each.

        Episodes of more than `LONGEST` bytes, or beyond the worker's `QUOTA`, are refused and count as failed attempts.
        """
        contents = [commit.payload.encode("utf-8", "surrogatepass") for commit in commits]
        digests = [digest_of(content) for content in contents]
        with self._book.call():
            self._workers.hear(worker)
            verdicts = [self._commit(worker, *one) for one in zip(commits, contents, digests, strict=True)]
            for verdict in verdicts:
                self._workers.count(worker, verdict)
            if CommitVerdict.ACCEPTED in verdicts:
                self._workers.succeed(worker)
            self._book.changed.notify_all()
            return verdicts

    def fail(self, worker: str, held: LeaseKey, reason: str) -> None:
        """Give a lease back because its episode cannot be played here."""
        reason = reason[:MOST_REASON]
        with self._book.call():
            self._workers.hear(worker)
            ledger = self._book.ledgers.get(held.stream)
            if ledger is not None and ledger.fail(held.slot, held.attempt, reason):
                self._book.note(held.stream, "fail", held.slot, held.attempt, reason)
                self._workers.fail(worker, held.stream, held.slot, reason)
                self._book.changed.notify_all()

    def give_back(self, worker: str, held: list[LeaseKey]) -> None:
        """Give leases back because the worker leaves."""
        with self._book.call():
            for stream, slot, attempt in held:
                ledger = self._book.ledgers.get(stream)
                if ledger is not None and ledger.give_back(slot, attempt):
                    self._book.note(stream, "give_back", slot, attempt)
            self._book.changed.notify_all()

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message. Raises `BadData` if they were deleted."""
        return self._store.get(policy, version, have)

    # ---------------------------------------------------------------- inside
    def _check_unfinished(self) -> None:
        ledgers = self._book.ledgers.values()
        if ledgers and all(ledger.is_finished for ledger in ledgers):
            raise RunsFinished("no trainer needs more episodes: all runs of this manager are finished")

    def _expire(self) -> None:
        now = self._clock()
        for stream, ledger in self._book.ledgers.items():
            for entry, why in ledger.expire(now):
                self._book.note(stream, "fail", entry.slot.id, entry.attempt, entry.reason, why)

    def _lease(self, worker: str, count: int) -> list[Lease]:
        now = self._clock()
        deadline, limit = now + self._lease_seconds, now + self.settings["episode_seconds"]
        leases: list[Lease] = []
        waiting = {stream: ledger for stream, ledger in self._book.ledgers.items() if not ledger.is_finished}
        failed = self._workers.avoid(worker)
        while waiting and len(leases) < count:
            stream = min(waiting, key=lambda one: waiting[one].slots.share)
            avoid = sorted(slot for other, slot in failed if other == stream)
            wanted = 1 if len(waiting) > 1 else count - len(leases)
            entries = waiting[stream].lease(worker, wanted, deadline, limit, avoid)
            leases += [self._lease_of(stream, entry) for entry in entries]
            if entries:
                self._book.note(stream, "lease", worker, len(entries), avoid)
            else:
                del waiting[stream]
        return leases

    def _commit(self, worker: str, commit: Commit, content: bytes, digest: str) -> CommitVerdict:
        stream, slot, attempt = commit.held
        ledger = self._book.ledgers.get(stream)
        entry = None if ledger is None else ledger.slots.leased(slot, attempt)
        refused = None if ledger is None or entry is None else self._refusal(ledger, entry, commit, len(content))
        if ledger is not None and refused is not None:
            verdict, reason = refused
            ledger.fail(slot, attempt, reason, verdict)
            self._book.note(stream, "fail", slot, attempt, reason, verdict)
            self._workers.fail(worker, stream, slot, reason)
            return verdict
        verdict = CommitVerdict.LATE if ledger is None else ledger.commit(slot, attempt, digest, len(content))
        if ledger is not None and verdict is not CommitVerdict.REPEATED:
            self._book.note(stream, "commit", slot, attempt, digest, len(content))
        if verdict is CommitVerdict.ACCEPTED:
            self._book.put_payload(stream, slot, content)
            self._pace.enter(stream)
        return verdict

    def _refusal(
        self, ledger: Ledger, entry: LedgerEntry, commit: Commit, size: int
    ) -> tuple[CommitVerdict, str] | None:
        """Return why the episode of a valid lease is refused; None if it is accepted."""
        if commit.digests != _digests(ledger, entry):
            return CommitVerdict.OTHER_WEIGHTS, "it was played with other weights than its lease names"
        if size > LONGEST:
            return CommitVerdict.TOO_LONG, f"its episode has {size:,} bytes, and at most {LONGEST:,} are accepted"
        unused = sum(one.slots.unused[entry.worker] for one in self._book.ledgers.values())
        if unused + size > QUOTA:
            return CommitVerdict.OVER_QUOTA, (
                f"worker {entry.worker} has committed {unused:,} bytes of episodes that were not used yet, and at most "
                f"{QUOTA:,} are accepted: start more workers, or plan fewer episodes ahead (staleness)"
            )
        return None

    def _lease_of(self, stream: str, entry: LedgerEntry) -> Lease:
        digests = _digests(self._book.ledger(stream), entry)
        weights, stage = dict(entry.weights), self._book.stages[stream]
        return Lease(stream, entry.slot, entry.attempt, weights, digests, stage, self._lease_seconds)


def _digests(ledger: Ledger, entry: LedgerEntry) -> dict[str, str]:
    """Return for each policy the digest of the weights that a slot is leased with."""
    return {policy: published.digest for policy, published in ledger.played_with(entry).items()}
