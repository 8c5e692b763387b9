"""Who plays which episode of a stream, and what became of it: a state machine without clock, threads or files.

Every slot is in one state, and all of them add up to those admitted, always:

    queued -> leased -> committed -> used -> trained or dropped (and forgotten)

A lease that ends, a worker that gives up and an episode that is refused send the slot back to `queued`. Each lease has
a number, and only the last one may commit, so an episode that two workers have played counts once. `used` is
provisional: a trainer that goes on from a checkpoint gets the slots again that it had used since. What workers and
trainers do is at-least-once, and the effect on the weights of the surviving run exactly once.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.records import Slot, SlotId, Verdict
from agentgym_flow.errors import BadSetting, UnknownName, UnknownOption

FIXED, READY = "fixed", "ready"
ORDERS = (FIXED, READY)
"""How batches are put together.

`fixed`: batch n is what was planned as batch n, played with the weights after update max(0, n - staleness).
`ready`: a batch is what is complete first, played with the newest weights there were.
"""


class State(StrEnum):
    """Where a slot is."""

    QUEUED = "queued"
    LEASED = "leased"
    COMMITTED = "committed"
    USED = "used"


@dataclass(slots=True)
class Entry:
    """A slot and what became of it so far.

    Attributes:
        slot: the slot.
        state: where it is.
        attempt: how often it was leased.
        deadline: when the present lease ends.
        worker: who holds or held it.
        weights: for each policy, the version that the present lease plays with.
        digest: of the committed episode; empty if it is lost.
        number: of the commit.
        used: for each policy that has used it, the batch; negative (-1 - batch) where it was dropped.
        reason: why it was given back last.
    """

    slot: Slot
    state: State = State.QUEUED
    attempt: int = 0
    deadline: float = 0.0
    worker: str = ""
    weights: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    number: int = 0
    used: dict[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """One version of a policy's weights.

    Attributes:
        version: its number, larger than those of all that were published before it.
        update: how many batches these weights were trained on.
        step: the optimizer step of the trainer.
    """

    version: int
    update: int
    step: int


class Ledger:
    """The slots of one stream.

    Args:
        policies: those that act in it.
        order: one of `ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.
        max_attempts: a slot that was leased so often without success is lost: it counts as committed, with no
            episode.

    Attributes:
        entries: all slots that are not forgotten.
        counts: how often what happened: `admitted`, `withdrawn`, `trained`, `dropped`, `expired`, `late`, ...

    Raises:
        BadSetting: there is no policy, or a number is out of its range.
        UnknownOption: there is no such order.
    """

    def __init__(
        self, policies: Sequence[str], *, order: str = FIXED, staleness: int = 4, max_attempts: int = 20
    ) -> None:
        if order not in ORDERS:
            raise UnknownOption.among(order, ORDERS)
        if isinstance(staleness, bool) or not isinstance(staleness, int) or staleness < 0:
            raise BadSetting(f"staleness must be a non-negative integer, got {staleness!r}")
        check_positive("the number of policies", len(policies))
        self.policies = tuple(policies)
        self.order = order
        self.staleness = staleness
        self.max_attempts = check_positive("max_attempts", max_attempts)
        self.entries: dict[SlotId, Entry] = {}
        self.counts: Counter[str] = Counter()
        self._queue: list[SlotId] = []  # a heap; also holds slots that are not queued any more
        self._published: dict[str, dict[int, Published]] = {policy: {} for policy in policies}  # by update
        self._kept = dict.fromkeys(policies, 0)  # checkpoints from before these batches are on disk
        self._commits = 0

    # ---------------------------------------------------------------- trainers
    def admit(self, slots: Iterable[Slot]) -> None:
        """Take slots in; those that are there already stay as they are.

        Raises `BadSetting` if one is there with another task or seed: two trainers do not plan alike.
        """
        for slot in slots:
            known = self.entries.get(slot.id)
            if known is None:
                self.entries[slot.id] = Entry(slot)
                heapq.heappush(self._queue, slot.id)
                self.counts["admitted"] += 1
            elif known.slot != slot:
                raise BadSetting(
                    f"slot {slot.id} is planned with task {known.slot.task} and seed {known.slot.seed}, and again with "
                    f"task {slot.task} and seed {slot.seed}: give all trainers of the stream the same settings"
                )

    def publish(self, policy: str, published: Published) -> None:
        """Let an update of `policy` be played with from now on."""
        self._of(policy)[published.update] = published

    def ack(self, policy: str, batch: int, trained: Iterable[SlotId], dropped: Iterable[SlotId] = ()) -> None:
        """Note that `policy` has used slots: made its batch of them, or dropped them.

        Raises `BadSetting` if one is not there to be used, or was used for another batch.
        """
        self._of(policy)
        for ids, mark in ((trained, batch), (dropped, -1 - batch)):
            for slot in ids:
                entry = self.entries.get(slot)
                if entry is None or entry.state not in (State.COMMITTED, State.USED):
                    raise BadSetting(f"slot {slot} is not committed, so {policy} cannot use it")
                if entry.used.setdefault(policy, mark) != mark:
                    raise BadSetting(f"{policy} has used slot {slot} before, and would train on it twice")
                if len(entry.used) == len(self.policies):
                    entry.state = State.USED

    def keep(self, policy: str, batch: int) -> list[SlotId]:
        """Note that `policy` can go on from before `batch`; return the slots that are forgotten now."""
        self._of(policy)
        self._kept[policy] = max(self._kept[policy], batch)
        forgotten = []
        for slot, entry in self.entries.items():
            if entry.state is State.USED and all(_batch(entry.used[p]) < self._kept[p] for p in self.policies):
                forgotten.append(slot)
        for slot in forgotten:
            used = self.entries.pop(slot).used
            self.counts["trained" if any(mark >= 0 for mark in used.values()) else "dropped"] += 1
        return forgotten

    def rewind(self, policy: str, batch: int) -> list[SlotId]:
        """Go back to where `policy` had trained on batches before `batch`; return the slots whose episodes are void.

        What was played with later weights is played again: these weights may never come to be. Slots that were planned
        from what happened later are withdrawn.

        Raises `BadSetting` if batches that would be needed were forgotten.
        """
        published = self._of(policy)
        if batch < self._kept[policy]:
            raise BadSetting(
                f"{policy} cannot go on from before batch {batch}: episodes before batch {self._kept[policy]} were "
                "forgotten when a later checkpoint was written; go on from that one"
            )
        later = {one.version for one in published.values() if one.update > batch}
        for update in [update for update in published if update > batch]:
            del published[update]
        void = []
        for slot, entry in list(self.entries.items()):
            if policy in entry.used and _batch(entry.used[policy]) >= batch:
                del entry.used[policy]
                entry.state = State.COMMITTED
            if entry.used:
                continue  # another policy has learnt from it
            if slot[0] > batch + self.staleness:
                void.append(slot)
                del self.entries[slot]
                self.counts["withdrawn"] += 1
            elif entry.weights.get(policy) in later and entry.state in (State.LEASED, State.COMMITTED):
                void.append(slot)
                self._queue_again(entry, "rewound")
        return void

    def reject(self, slot: SlotId, attempt: int, reason: str) -> bool:
        """Refuse a committed episode; return whether it was still there."""
        entry = self.entries.get(slot)
        if entry is None or entry.state is not State.COMMITTED or entry.attempt != attempt or entry.used:
            return False
        self._queue_again(entry, "rejected", reason)
        return True

    # ---------------------------------------------------------------- workers
    def lease(self, worker: str, count: int, deadline: float) -> list[Entry]:
        """Lease up to `count` slots until `deadline`, those of the earliest batches first."""
        leased: list[Entry] = []
        while self._queue and len(leased) < count:
            entry = self.entries.get(self._queue[0])
            if entry is None or entry.state is not State.QUEUED:
                heapq.heappop(self._queue)
                continue
            weights = self._weights_for(entry.slot)
            if weights is None:
                break
            heapq.heappop(self._queue)
            entry.state, entry.weights, entry.worker = State.LEASED, weights, worker
            entry.attempt += 1
            entry.deadline = deadline
            self.counts["leased"] += 1
            leased.append(entry)
        return leased

    def renew(self, slot: SlotId, attempt: int, deadline: float) -> bool:
        """Let a lease end at `deadline`; return False if it has ended."""
        entry = self._leased(slot, attempt)
        if entry is not None:
            entry.deadline = deadline
        return entry is not None

    def commit(self, slot: SlotId, attempt: int, digest: str) -> Verdict:
        """Take in the episode of a lease, given by its digest."""
        entry = self._leased(slot, attempt)
        if entry is not None:
            self._commits += 1
            entry.state, entry.digest, entry.number = State.COMMITTED, digest, self._commits
            self.counts["committed"] += 1
            return Verdict.ACCEPTED
        entry = self.entries.get(slot)
        if entry is not None and entry.attempt == attempt and entry.digest == digest != "":
            return Verdict.REPEATED
        self.counts["late"] += 1
        return Verdict.LATE

    def fail(self, slot: SlotId, attempt: int, reason: str) -> None:
        """Give a lease back."""
        entry = self._leased(slot, attempt)
        if entry is not None:
            self._queue_again(entry, "given_back", reason)

    def expire(self, now: float) -> list[Entry]:
        """End all leases whose deadline has passed; return their entries."""
        ended = [entry for entry in self.entries.values() if entry.state is State.LEASED and entry.deadline < now]
        for entry in ended:
            self._queue_again(entry, "expired", f"worker {entry.worker} was not heard of in time")
        return ended

    # ---------------------------------------------------------------- what is there
    def arrived(self, policy: str, after: int) -> list[Entry]:
        """Return the committed slots that `policy` has not used, with a number above `after`, in that order."""
        there = [
            entry
            for entry in self.entries.values()
            if entry.number > after and entry.state is State.COMMITTED and policy not in entry.used
        ]
        return sorted(there, key=lambda entry: entry.number)

    def version(self, policy: str, version: int) -> Published | None:
        """Return what was published under a version; None if that is forgotten."""
        return next((one for one in self._of(policy).values() if one.version == version), None)

    def newest(self, policy: str) -> Published | None:
        """Return the last update of a policy; None before the first."""
        published = self._of(policy)
        return published[max(published)] if published else None

    def states(self) -> dict[str, int]:
        """Return how many slots are in each state; with those forgotten they add up to those admitted."""
        found = Counter(entry.state for entry in self.entries.values())
        rest = {name: self.counts[name] for name in ("trained", "dropped")}
        return {**{state.value: found[state] for state in State}, **rest}

    def _of(self, policy: str) -> dict[int, Published]:
        if policy not in self._published:
            raise UnknownName.among(policy, self.policies)
        return self._published[policy]

    def _weights_for(self, slot: Slot) -> dict[str, int] | None:
        """Return for each policy the version to play a slot with; None if one is not published yet."""
        weights = {}
        for policy, published in self._published.items():
            needed = max(0, slot.batch - self.staleness) if self.order == FIXED else max(published, default=-1)
            if needed not in published:
                return None
            weights[policy] = published[needed].version
        return weights

    def _leased(self, slot: SlotId, attempt: int) -> Entry | None:
        entry = self.entries.get(slot)
        return entry if entry is not None and entry.state is State.LEASED and entry.attempt == attempt else None

    def _queue_again(self, entry: Entry, why: str, reason: str = "") -> None:
        self.counts[why] += 1
        entry.number, entry.digest, entry.reason = 0, "", reason or entry.reason
        if entry.attempt >= self.max_attempts and why != "rewound":
            self._commits += 1
            entry.state, entry.number = State.COMMITTED, self._commits
            self.counts["lost"] += 1
        else:
            entry.state = State.QUEUED
            heapq.heappush(self._queue, entry.slot.id)

    # ---------------------------------------------------------------- as plain data
    def snapshot(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""
        return {
            "policies": list(self.policies),
            "order": self.order,
            "staleness": self.staleness,
            "max_attempts": self.max_attempts,
            "entries": [asdict(entry) for entry in self.entries.values()],
            "counts": dict(self.counts),
            "published": {p: [asdict(one) for one in found.values()] for p, found in self._published.items()},
            "kept": self._kept,
            "commits": self._commits,
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the ledger of a snapshot."""
        ledger = cls(
            state["policies"],
            order=state["order"],
            staleness=state["staleness"],
            max_attempts=state["max_attempts"],
        )
        for row in state["entries"]:
            entry = Entry(**{**row, "slot": Slot(*row["slot"]), "state": State(row["state"])})
            ledger.entries[entry.slot.id] = entry
            if entry.state is State.QUEUED:
                ledger._queue.append(entry.slot.id)
        heapq.heapify(ledger._queue)
        ledger.counts = Counter(state["counts"])
        for policy, found in state["published"].items():
            ledger._published[policy] = {one["update"]: Published(**one) for one in found}
        ledger._kept, ledger._commits = dict(state["kept"]), state["commits"]
        return ledger


def _batch(mark: int) -> int:
    """Return the batch of a mark in `Entry.used`."""
    return mark if mark >= 0 else -1 - mark
