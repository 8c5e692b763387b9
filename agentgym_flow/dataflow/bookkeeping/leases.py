"""The leases of a stream: which worker plays which slot with which weights, and which attempts count."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.bookkeeping.entries import Entries, LedgerEntry, SlotState
from agentgym_flow.dataflow.bookkeeping.versions import Weights
from agentgym_flow.dataflow.records import CommitVerdict, SlotId

OVERLONG = "overlong"
"""The count of leases that were renewed until their limit."""


class Leases:
    """The part of a ledger that workers use; `Ledger` has the rest.

    Args:
        weights: the weights that the policies have published.
        max_attempts: see `Ledger`.

    Attributes:
        slots: the slots, by their state.
        entries: the same by their ids.
        counts: numbers of events: `admitted`, `withdrawn`, `trained`, `dropped`, `expired`, `late`, ...
        weights: as given.
        max_attempts: as given.
    """

    def __init__(self, weights: Weights, max_attempts: int) -> None:
        self.weights = weights
        self.max_attempts = check_positive("max_attempts", max_attempts)
        self._keep_slots(Entries())

    def _keep_slots(self, slots: Entries) -> None:
        self.slots, self.entries, self.counts = slots, slots.by_id, slots.counts

    def lease(
        self, worker: str, count: int, deadline: float, limit: float = inf, avoid: Collection[SlotId] = ()
    ) -> list[LedgerEntry]:
        """Lease up to `count` slots, those of the earliest batches first.

        Args:
            worker: the worker that plays them.
            count: the most slots.
            deadline: when the leases end unless they are renewed.
            limit: when they end even if they are renewed.
            avoid: slots that this worker does not get.
        """
        leased: list[LedgerEntry] = []
        passed: list[SlotId] = []
        while len(leased) < count and (entry := self.slots.first_queued()) is not None:
            weights = self.weights.to_play(entry.slot.batch)
            if weights is None:
                break
            if entry.slot.id in avoid:
                passed.append(self.slots.pass_over())
                continue
            self.slots.lease(entry, worker, weights, deadline, limit)
            leased.append(entry)
            self.counts["leased"] += 1
        self.slots.put_back(passed)
        return leased

    def renew(self, slot: SlotId, attempt: int, deadline: float) -> bool:
        """Renew a lease until `deadline`, or until its limit; return False if it has ended."""
        entry = self.slots.leased(slot, attempt)
        if entry is not None:
            self.slots.renew(entry, deadline)
        return entry is not None

    def commit(self, slot: SlotId, attempt: int, digest: str, size: int = 0) -> CommitVerdict:
        """Accept the episode of a lease, given by its digest and its bytes, unless the lease has ended."""
        entry = self.slots.leased(slot, attempt)
        if entry is not None:
            self.slots.commit(entry, digest, size)
            self.counts["committed"] += 1
            return CommitVerdict.ACCEPTED
        entry = self.entries.get(slot)
        if entry is not None and entry.attempt == attempt and entry.digest == digest != "":
            return CommitVerdict.REPEATED
        self.counts["late"] += 1
        return CommitVerdict.LATE

    def fail(self, slot: SlotId, attempt: int, reason: str, why: str = "failed") -> bool:
        """End a lease because its episode failed, counted as `why`; return False if it had ended already."""
        entry = self.slots.leased(slot, attempt)
        if entry is not None:
            self._fail(entry, why, reason)
        return entry is not None

    def give_back(self, slot: SlotId, attempt: int) -> bool:
        """End a lease because its worker leaves; return False if it had ended already."""
        entry = self.slots.leased(slot, attempt)
        if entry is not None:
            self._queue_again(entry, "given_back")
        return entry is not None

    def expire(self, now: float) -> list[tuple[LedgerEntry, str]]:
        """End all leases whose deadline has passed; return their entries, each with the name of its count."""
        ended = []
        for entry in self.slots.overdue(now):
            why, what = "expired", "did not report in time"
            if entry.deadline >= entry.limit:
                why, what = OVERLONG, "has played it for longer than a lease can be renewed"
            self._fail(entry, why, f"worker {entry.worker} {what}")
            ended.append((entry, why))
        return ended

    # ---------------------------------------------------------------- further attempts
    def _requeue_void(self) -> list[SlotId]:
        """Queue slots that were played with void weights, unless a policy has used them; return these slots."""
        void = []
        for slot, entry in self.entries.items():
            there = entry.state in (SlotState.LEASED, SlotState.COMMITTED) and not entry.used
            if there and self.weights.are_void(entry.weights):
                void.append(slot)
                self._queue_again(entry, "rewound")
        return void

    def _fail(self, entry: LedgerEntry, why: str, reason: str) -> None:
        entry.failures += 1
        entry.reason = reason
        if entry.failures < self.max_attempts:
            self._queue_again(entry, why)
        else:
            self.counts[why] += 1
            self.counts["lost"] += 1
            self.slots.commit(entry, "", 0)

    def _queue_again(self, entry: LedgerEntry, why: str) -> None:
        self.counts[why] += 1
        self.slots.queue(entry)
