"""The ledgers of all streams and their journal: one call at a time, written before it is answered."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from agentgym_flow.dataflow.bookkeeping.callers import Place
from agentgym_flow.dataflow.bookkeeping.entries import LedgerEntry
from agentgym_flow.dataflow.bookkeeping.journal import IN_MEMORY, Event, ManagerJournal
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.progress import behind
from agentgym_flow.dataflow.records import (
    LONGEST,
    PARTIAL,
    Arrival,
    Claim,
    Commit,
    CommitVerdict,
    Lease,
    LeaseKey,
    stage_digest,
)
from agentgym_flow.errors import BadSetting, FlowDown, UnknownName, shown

QUOTA = 4 << 30
"""The most bytes of episodes of one worker that some policy has not used yet; an honest worker has far fewer."""

TICK = 1.0
"""Seconds after which a waiting call checks again even if nothing has changed."""


class Book:
    """The streams of a manager. Use it within `call`, or while holding `changed`.

    Args:
        journal: where calls are recorded; None to keep nothing beyond this process.

    Attributes:
        changed: the lock; it is notified when waiting calls should check again.
        answered: called with the seconds that each call took.
        setups: for each stream, the setup that its trainers gave.
        stages: for each stream, the digest of its setup.
        ledgers: for each stream, its ledger.

    Raises:
        BadData: the journal is damaged.
    """

    def __init__(self, journal: ManagerJournal | None) -> None:
        self.changed = threading.Condition()
        self.answered: Callable[[float], object] = lambda seconds: None
        self.setups: dict[str, dict[str, Any]] = {}
        self.stages: dict[str, str] = {}
        self.ledgers: dict[str, Ledger] = {}
        self._journal = ManagerJournal(IN_MEMORY) if journal is None else journal
        self._tidies = True
        self._durable = False  # whether what was noted must survive a loss of power
        self._settled = True  # whether the journal has the present setups
        self._down = ""  # why calls cannot be answered any more
        self._events: defaultdict[str, list[Event]] = defaultdict(list)  # of this call, by stream
        self._payloads: list[tuple[str, int, bytes]] = []
        for stream, (setup, ledger) in self._journal.load().items():
            self._add(stream, setup, ledger)

    @contextmanager
    def call(self, *, durable: bool = False) -> Iterator[None]:
        """Hold the lock, and write what was noted when the block ends, also after an error.

        Args:
            durable: survive a loss of power too.

        Raises `DiskFull` while there is no space for the journal. The next call first writes what was noted, so no
        caller sees what the journal does not have.

        Raises `FlowDown` if the journal cannot be used for another reason; all later calls fail as well.

        A call first tidies the journal if that is due, and waits for the disk, except between `acquire` and `release`.
        """
        with self.changed:
            if self._down:
                raise FlowDown(self._down)
            began = time.perf_counter()
            try:
                self._write(durable=False)
                if self._tidies and self._journal.is_due:
                    self._journal.tidy(self._streams())
                try:
                    yield
                finally:
                    self._write(durable)
            except sqlite3.Error as error:
                self._down = f"the journal cannot be used ({error}); fix this and start the manager again"
                self.changed.notify_all()
                raise FlowDown(self._down) from error
            finally:
                self.answered(time.perf_counter() - began)

    def acquire(self) -> bool:
        """Hold the lock until `release`, for calls that do not wait; return False if they would.

        They would if another call holds the lock, or the next one is to tidy the journal.
        """
        if not self.changed.acquire(blocking=False):
            return False
        if self._journal.is_due:
            self.changed.release()
            return False
        self._tidies = False
        return True

    def release(self) -> None:
        """Let other calls go on; one of them tidies the journal if that is due now."""
        self._tidies = True
        self.changed.release()

    def waited(self, end: float) -> bool:
        """Wait for a change, for at most a `TICK`; return False if it is past `end` (of `time.monotonic`)."""
        left = end - time.monotonic()
        if left > 0:
            self.changed.wait(min(left, TICK))
        return left > 0

    def close(self) -> None:
        """Close the journal. Every later call raises `FlowDown`."""
        with self.changed:
            self._down = "the manager has ended; start it again with its journal"
            self._journal.close()
            self.changed.notify_all()

    # ---------------------------------------------------------------- within a call
    def begin(self, stream: str, setup: dict[str, Any], ledger: Ledger) -> None:
        """Add a stream."""
        self._journal.compact({**self._streams(), stream: (setup, ledger)})
        self._add(stream, setup, ledger)

    def _add(self, stream: str, setup: dict[str, Any], ledger: Ledger) -> None:
        self.setups[stream], self.stages[stream], self.ledgers[stream] = setup, stage_digest(setup), ledger

    def note(self, stream: str, name: str, *args: Any) -> None:
        """Note a call of a ledger: the method and its arguments, as plain data."""
        self._events[stream].append((name, *args))

    def put_payload(self, stream: str, number: int, payload: bytes) -> None:
        """Store the episode of a commit."""
        self._payloads.append((stream, number, payload))

    def replace_setup(self, stream: str, setup: dict[str, Any]) -> None:
        """Replace the setup of a stream."""
        self._add(stream, setup, self.ledgers[stream])
        self._settled = False

    def ledger(self, stream: str) -> Ledger:
        """Return the ledger of a stream. Raises `UnknownName` if it does not exist."""
        if stream not in self.ledgers:
            raise UnknownName.among(stream, self.ledgers)
        return self.ledgers[stream]

    def claimed(self, claim: Claim) -> Ledger:
        """Return the ledger of a trainer's stream.

        Raises `Superseded` if another trainer has taken over, and `BadData` if the journal does not know the claim.
        """
        if claim.stream not in self.ledgers:
            raise behind(f"{claim.policy} is trained in stream {shown(claim.stream)}, which the manager does not know")
        ledger = self.ledger(claim.stream)
        ledger.of(claim.policy).check_epoch(claim.epoch)
        return ledger

    def arrivals(self, stream: str, policy: str, after: int) -> list[Arrival]:
        """Return the committed episodes that a policy has not used, with numbers above `after`, in that order."""
        ledger, found = self.ledger(stream), []
        figures: dict[int, tuple[dict[str, int], dict[str, int]]] = {}  # many episodes share one object of weights
        is_partial = self.setups[stream].get(PARTIAL, False)
        for entry in ledger.arrived(policy, after):
            weights = id(entry.weights)
            if weights not in figures:
                there = ledger.played_with(entry)
                figures[weights] = {p: it.step for p, it in there.items()}, {p: it.update for p, it in there.items()}
            payload = self._journal.payload(stream, entry.number) if entry.digest else b""
            assert payload is not None, "the journal has all committed episodes"
            of = entry.versions() if is_partial else ()
            used = tuple((name, number, ledger.of(name).versions.by_number[number].step) for name, number in of)
            identity = entry.number, entry.slot, entry.attempt
            found.append(Arrival(*identity, *figures[weights], payload, entry.reason, used))
        return found

    def newest(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Return version and digest of the newest weights of the policies of each stream that has some of all."""
        found: dict[str, dict[str, tuple[int, str]]] = {}
        for stream, ledger in self.ledgers.items():
            there = {policy: progress.versions.newest() for policy, progress in ledger.progress.items()}
            newest = {policy: (one.version, one.digest) for policy, one in there.items() if one is not None}
            found |= {stream: newest} if len(newest) == len(there) else {}
        return found

    def lost_leases(
        self, worker: str, count: int, held: Collection[LeaseKey], seconds: float, deadline: float
    ) -> list[Lease]:
        """Return the leases of a worker that are not in `held`, renewed: it has never got the answer with them.

        Those beyond `count` are not renewed: another worker can play them sooner.
        """
        found: list[Lease] = []
        for stream, ledger in self.ledgers.items():
            entries = ledger.slots.held.get(worker, {}).values()
            lost = [one for one in entries if LeaseKey(stream, one.id, one.attempt) not in held]
            lost = lost[: count - len(found)]
            for entry in lost:
                ledger.slots.renew(entry, deadline)
            found += self._leases(stream, lost, seconds)
        return found

    def new_leases(
        self, worker: str, count: int, failed: Iterable[Place], seconds: float, deadline: float, limit: float
    ) -> list[Lease]:
        """Lease slots, except those that the worker has just failed, and note this; see `Ledger.lease`.

        Streams with the smallest share of leased or committed slots come first.
        """
        leases: list[Lease] = []
        waiting = {stream: ledger for stream, ledger in self.ledgers.items() if not ledger.is_finished}
        while waiting and len(leases) < count:
            stream = min(waiting, key=lambda one: waiting[one].slots.share)
            avoid = sorted(slot for other, slot in failed if other == stream)
            wanted = 1 if len(waiting) > 1 else count - len(leases)
            entries = waiting[stream].lease(worker, wanted, deadline, limit, avoid)
            leases += self._leases(stream, entries, seconds)
            if entries:
                self.note(stream, "lease", worker, len(entries), avoid)
            else:
                del waiting[stream]
        return leases

    def _leases(self, stream: str, entries: Iterable[LedgerEntry], seconds: float) -> list[Lease]:
        """Return the leases of entries, valid for some seconds."""
        stage, digests = self.stages[stream], self.ledgers[stream].digests
        return [Lease(stream, one.slot, one.attempt, one.weights, digests(one), stage, seconds) for one in entries]

    def refusal(self, ledger: Ledger, entry: LedgerEntry, commit: Commit) -> tuple[CommitVerdict, str] | None:
        """Return why the episode of a valid lease is refused; None if it is accepted."""
        size = len(commit.payload)
        if commit.digests != ledger.digests(entry):
            return CommitVerdict.OTHER_WEIGHTS, "it was played with other weights than its lease names"
        if (verdict := self._check_used(commit, entry)) is not None:
            why = "it was played with weights that were not published, or with older ones than its lease names"
            return verdict, why
        if size > LONGEST:
            return CommitVerdict.TOO_LONG, f"its episode has {size:,} bytes, and at most {LONGEST:,} are accepted"
        unused = sum([one.slots.unused[entry.worker] for one in self.ledgers.values()])
        if unused + size > QUOTA:
            return CommitVerdict.OVER_QUOTA, (
                f"worker {entry.worker} has committed {unused:,} bytes of episodes that were not used yet, and at most "
                f"{QUOTA:,} are accepted: start more workers, or plan fewer episodes ahead (staleness)"
            )
        return None

    def _check_used(self, commit: Commit, entry: LedgerEntry) -> CommitVerdict | None:
        """Return why an episode is not accepted because of the weights that it went on with; None if it is.

        It is late if a trainer has gone back behind them, and the worker is not to blame.
        """
        stream, verdict = commit.held.stream, None
        if bool(commit.used) != self.setups[stream].get(PARTIAL, False):
            return CommitVerdict.OTHER_WEIGHTS
        for policy, version, digest in commit.used:
            if version < entry.weights.get(policy, version + 1):
                return CommitVerdict.OTHER_WEIGHTS
            versions = self.ledgers[stream].of(policy).versions
            if version > versions.last:  # it never existed, and giving the episode back would invite it again
                return CommitVerdict.OTHER_WEIGHTS
            published = versions.by_number.get(version)
            if published is None or version in versions.void:
                verdict = CommitVerdict.LATE
            elif published.digest != digest:
                return CommitVerdict.OTHER_WEIGHTS
        return verdict

    def expire(self, now: float) -> None:
        """End the leases of all streams that have become invalid, and note this."""
        for stream, ledger in self.ledgers.items():
            for entry, why in ledger.expire(now):
                self.note(stream, "fail", entry.id, entry.attempt, entry.reason, why)

    def check_setup(self, stream: str, policy: str, setup: dict[str, Any], besides: Iterable[str]) -> None:
        """Raise `BadSetting` unless a trainer's setup, apart from `besides`, is that of the stream's other trainers."""
        policies = setup.get("policies")
        if not isinstance(policies, list) or policy not in policies or len({*policies}) < len(policies):
            raise BadSetting(f"setup['policies'] must list the stream's policies, {policy} too, got {shown(policies)}")
        for other, known in self.setups.items():
            for name in sorted({*setup, *known} - set(besides)) if other == stream else ():
                if setup.get(name) != known.get(name):
                    raise BadSetting(
                        f"stream {stream} has {name}={shown(known.get(name))}, but this trainer has "
                        f"{shown(setup.get(name))}: give all trainers of a stream the same settings"
                    )
            if other != stream and {*policies} & {*known["policies"]}:
                twice = sorted({*policies} & {*known["policies"]})
                raise BadSetting(f"{twice[0]} acts in stream {other}, so it cannot act in {stream} too")

    def _write(self, durable: bool) -> None:
        if self._events:  # no episode comes or goes without one
            self._durable |= durable
            gone = {stream: ledger.slots.gone for stream, ledger in self.ledgers.items() if ledger.slots.gone}
            self._journal.write(self._events, self._payloads, gone, durable=self._durable)
            self._durable = False
            self._events.clear()
            self._payloads.clear()
            for numbers in gone.values():
                numbers.clear()
        if not self._settled:
            self._journal.compact(self._streams())
            self._settled = True

    def _streams(self) -> dict[str, tuple[dict[str, Any], Ledger]]:
        return {stream: (self.setups[stream], ledger) for stream, ledger in self.ledgers.items()}
