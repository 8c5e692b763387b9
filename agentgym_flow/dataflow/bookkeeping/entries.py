"""The slots of a stream, indexed by state, so that the next one is found without a search."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf
from typing import Any, Self

from agentgym_flow.dataflow.records import Attempt, Slot, SlotId


class SlotState(StrEnum):
    """The state of a slot."""

    QUEUED = "queued"
    LEASED = "leased"
    COMMITTED = "committed"
    USED = "used"


@dataclass(slots=True)
class LedgerEntry:
    """A slot and its history.

    Attributes:
        slot: the slot.
        state: its state.
        attempt: how often it was leased.
        worker: the worker of the last lease.
        weights: for each policy, the version of the weights in the last lease.
        digest: of the committed episode; empty if the slot is lost.
        number: of the commit.
        used: for each policy that has used it, the batch; negative (-1 - batch) if the policy dropped it.
        reason: why the last failed attempt failed.
        failures: how many attempts failed; leases that a leaving worker gave back do not count.
        deadline: when the lease ends, unless it is renewed.
        limit: when the lease ends even if it is renewed.
    """

    slot: Slot
    state: SlotState = SlotState.QUEUED
    attempt: int = 0
    worker: str = ""
    weights: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    number: int = 0
    used: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    failures: int = 0
    deadline: float = inf
    limit: float = inf

    @property
    def played(self) -> Attempt:
        """The last attempt."""
        return Attempt(self.slot.id, self.attempt)

    def row(self) -> list[Any]:
        """Return plain data for `of_row`, without deadlines, which refer to the clock of this process."""
        return [[*self.slot], *(getattr(self, one.name) for one in fields(self)[1:-2])]

    @classmethod
    def of_row(cls, row: list[Any]) -> Self:
        """Return the entry with this row."""
        slot, state, *rest = row
        return cls(Slot(*slot), SlotState(state), *rest)


class Entries:
    """All slots of a stream, except those that were deleted.

    Attributes:
        by_id: the entries.
        counts: how many slots were `admitted`, and how many were deleted as `trained`, `dropped` and `withdrawn`.
    """

    def __init__(self) -> None:
        self.by_id: dict[SlotId, LedgerEntry] = {}
        self.counts: Counter[str] = Counter()
        self._inside: Counter[SlotState] = Counter()
        # These three may hold slots that have changed their state since, so readers must check the entry.
        self._queue: list[SlotId] = []  # a heap
        self._leases: list[tuple[float, SlotId, int]] = []  # a heap: deadline, slot and attempt
        self._commits: list[tuple[int, SlotId]] = []  # sorted: number and slot
        self._last_commit = 0
        self._withdrawn: dict[SlotId, int] = {}  # the last attempt, which must not commit if the slot is planned again

    # ---------------------------------------------------------------- moves
    def add(self, slot_id: SlotId, slot: Slot) -> None:
        """Queue a new slot."""
        entry = self.by_id[slot_id] = LedgerEntry(slot, attempt=self._withdrawn.pop(slot_id, 0))
        self.counts["admitted"] += 1
        self._inside[entry.state] += 1
        heapq.heappush(self._queue, slot_id)

    def queue(self, entry: LedgerEntry) -> None:
        """Queue a slot again, and drop its episode."""
        entry.number, entry.digest = 0, ""
        self._move(entry, SlotState.QUEUED)
        heapq.heappush(self._queue, entry.slot.id)

    def lease(self, entry: LedgerEntry, deadline: float, limit: float) -> None:
        """Begin the next attempt; it ends at `deadline`, or at `limit` if it is renewed."""
        self._move(entry, SlotState.LEASED)
        entry.attempt += 1
        entry.deadline, entry.limit = deadline, limit
        heapq.heappush(self._leases, (deadline, entry.slot.id, entry.attempt))

    def commit(self, entry: LedgerEntry, digest: str) -> None:
        """Note an episode by its digest; an empty one means that the slot is lost."""
        self._move(entry, SlotState.COMMITTED)
        self._last_commit += 1
        entry.digest, entry.number = digest, self._last_commit
        self._commits.append((entry.number, entry.slot.id))

    def use(self, entry: LedgerEntry) -> None:
        """Note that all policies have used a slot."""
        self._move(entry, SlotState.USED)

    def unuse(self, entry: LedgerEntry) -> None:
        """Note that a policy has undone its use of a slot; it keeps its place among those that have arrived."""
        self._move(entry, SlotState.COMMITTED)

    def remove(self, entry: LedgerEntry, why: str) -> None:
        """Delete a slot, counted as `why`."""
        del self.by_id[entry.slot.id]
        self._inside[entry.state] -= 1
        self.counts[why] += 1
        if why == "withdrawn" and entry.attempt:
            self._withdrawn[entry.slot.id] = entry.attempt

    def forget_before(self, batch: int) -> None:
        """Drop records of withdrawn slots from before `batch`, and other outdated records."""
        self._withdrawn = {slot: attempt for slot, attempt in self._withdrawn.items() if slot[0] >= batch}
        self._commits = [(number, slot) for number, slot in self._commits if self._committed(number, slot)]

    def _move(self, entry: LedgerEntry, state: SlotState) -> None:
        self._inside[entry.state] -= 1
        self._inside[state] += 1
        entry.state = state

    # ---------------------------------------------------------------- queries
    def first_queued(self) -> LedgerEntry | None:
        """Return the queued slot with the lowest id; None if there is none."""
        while self._queue:
            entry = self.by_id.get(self._queue[0])
            if entry is not None and entry.state is SlotState.QUEUED:
                return entry
            heapq.heappop(self._queue)
        return None

    def pass_over(self) -> SlotId:
        """Take the slot that `first_queued` returned out of the queue, until `put_back`."""
        return heapq.heappop(self._queue)

    def put_back(self, slots: Iterable[SlotId]) -> None:
        """Return slots that were passed over to the queue."""
        for slot in slots:
            heapq.heappush(self._queue, slot)

    def leased(self, slot: SlotId, attempt: int) -> LedgerEntry | None:
        """Return the entry of a lease; None if the lease has ended."""
        entry = self.by_id.get(slot)
        return entry if entry is not None and entry.state is SlotState.LEASED and entry.attempt == attempt else None

    def overdue(self, now: float) -> list[LedgerEntry]:
        """Return the leases whose deadline has passed. Each is returned only once, so the caller must end them."""
        found = []
        while self._leases and self._leases[0][0] < now:
            _, slot, attempt = heapq.heappop(self._leases)
            entry = self.leased(slot, attempt)
            if entry is not None and entry.deadline < now:
                found.append(entry)
            elif entry is not None:  # it was renewed
                heapq.heappush(self._leases, (entry.deadline, slot, attempt))
        return found

    def renew(self, entry: LedgerEntry, deadline: float) -> None:
        """Move the end of a lease to `deadline`, which may be earlier than before, but not beyond its limit."""
        deadline = min(deadline, entry.limit)
        if deadline < entry.deadline:
            heapq.heappush(self._leases, (deadline, entry.slot.id, entry.attempt))
        entry.deadline = deadline

    def renew_all(self, deadline: float, limit: float) -> None:
        """Move the end of all leases to `deadline`, and their limit to `limit`."""
        leased = [entry for entry in self.by_id.values() if entry.state is SlotState.LEASED]
        for entry in leased:
            entry.deadline, entry.limit = deadline, limit
        self._leases = sorted((deadline, entry.slot.id, entry.attempt) for entry in leased)

    def arrived(self, after: int) -> Iterator[LedgerEntry]:
        """Yield the committed slots that not all policies have used, with numbers above `after`, in that order."""
        begin = bisect_right(self._commits, after, key=lambda one: one[0])
        for number, slot in self._commits[begin:]:
            entry = self._committed(number, slot)
            if entry is not None and entry.state is SlotState.COMMITTED:
                yield entry

    def was_withdrawn(self, slot: SlotId) -> bool:
        """Return whether a slot was leased, withdrawn and not planned again."""
        return slot in self._withdrawn

    def states(self) -> dict[str, int]:
        """Return how many slots are in each state, and how many were deleted; the sum is those admitted."""
        gone = {name: self.counts[name] for name in ("trained", "dropped", "withdrawn")}
        return {**{state.value: self._inside[state] for state in SlotState}, **gone}

    @property
    def share(self) -> float:
        """The share of the unused slots that is leased or committed."""
        there = self._inside[SlotState.LEASED] + self._inside[SlotState.COMMITTED]
        return there / max(1, there + self._inside[SlotState.QUEUED])

    def _committed(self, number: int, slot: SlotId) -> LedgerEntry | None:
        entry = self.by_id.get(slot)
        return entry if entry is not None and entry.number == number else None

    # ---------------------------------------------------------------- as plain data
    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        return {
            "entries": [entry.row() for _, entry in sorted(self.by_id.items())],
            "counts": dict(self.counts),
            "last_commit": self._last_commit,
            "withdrawn": [[*slot, attempt] for slot, attempt in sorted(self._withdrawn.items())],
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the entries of a snapshot; their leases have no deadline."""
        entries = cls()
        found = [LedgerEntry.of_row(row) for row in state["entries"]]
        entries.by_id = {entry.slot.id: entry for entry in found}
        entries.counts = Counter(state["counts"])
        entries._inside = Counter(entry.state for entry in found)
        entries._queue = sorted(entry.slot.id for entry in found if entry.state is SlotState.QUEUED)
        entries._commits = sorted((entry.number, entry.slot.id) for entry in found if entry.number)
        entries._last_commit = state["last_commit"]
        entries._withdrawn = {(row[0], row[1], row[2]): row[3] for row in state["withdrawn"]}
        entries.renew_all(inf, inf)
        return entries
