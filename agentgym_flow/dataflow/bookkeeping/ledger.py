"""Who plays which episode of a stream, and what became of it: a state machine without clock, threads or files.

Every slot is in one state, and all of them add up to those admitted, always:

    queued -> leased -> committed -> used -> trained or dropped (and forgotten)

A lease that ends, a worker that gives up and an episode that is refused send the slot back to `queued`. Each lease has
a number, and only the last one may commit, so an episode that two workers have played counts once. `used` is
provisional: a trainer that goes on from a checkpoint gets the slots again that it had used since. What workers and
trainers do is at-least-once, and the effect on the weights of the surviving run exactly once.

A call that raises has changed nothing, and one that is repeated changes nothing more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.dataflow.bookkeeping.entries import Entries, Entry, State
from agentgym_flow.dataflow.bookkeeping.versions import FIXED, ORDERS, READY, Published, Versions, Weights
from agentgym_flow.dataflow.records import Slot, SlotId, Verdict
from agentgym_flow.errors import BadSetting, UnknownName, UnknownOption

__all__ = ["FIXED", "ORDERS", "READY", "Entry", "Ledger", "Published", "State"]


class Ledger:
    """The slots of one stream.

    Args:
        policies: those that act in it.
        order: one of `ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.
        max_attempts: a slot that was leased so often without success is lost: it counts as committed, with no
            episode.
        first: the batch that the stream begins with.

    Attributes:
        entries: all slots that are not forgotten.
        counts: how often what happened: `admitted`, `withdrawn`, `trained`, `dropped`, `expired`, `late`, ...
        ages: for each policy, how many of the episodes in its batches were played with weights of which age in updates.
        weights: what the policies have published.
        done: for each policy, how many batches it has acknowledged, those before `first` included.
        kept: for each policy, the batch before which its last checkpoint was taken.

    Raises:
        BadSetting: there is no policy, or a number is out of its range.
        UnknownOption: there is no such order.
    """

    def __init__(
        self, policies: Sequence[str], *, order: str = FIXED, staleness: int = 4, max_attempts: int = 20, first: int = 0
    ) -> None:
        if order not in ORDERS:
            raise UnknownOption.among(order, ORDERS)
        check_positive("the number of policies", len(policies))
        self.policies = tuple(policies)
        self.order = order
        self.staleness = check_integer("staleness", staleness, 0)
        self.max_attempts = check_positive("max_attempts", max_attempts)
        if check_integer("batch", first, 0) and order == FIXED and staleness:
            raise BadSetting(
                f"batch {first} needs the weights of {staleness} updates earlier, and this manager does not have them: "
                "start it with the journal of the run, or begin with batch 0"
            )
        self.ages: dict[str, Counter[int]] = {policy: Counter() for policy in policies}
        self.weights = Weights(policies, order, staleness)
        self.done = dict.fromkeys(policies, first)
        self.kept = dict.fromkeys(policies, first)
        self._slots = Entries()
        self.entries, self.counts = self._slots.by_id, self._slots.counts

    # ---------------------------------------------------------------- trainers
    def admit(self, slots: Iterable[Slot]) -> None:
        """Take slots in. Those that are known or were forgotten are not changed.

        Raises `BadSetting` if one is there with another task or seed: two trainers do not plan alike.
        """
        new: dict[SlotId, Slot] = {}
        for slot in slots:
            slot_id = slot.id
            entry = self.entries.get(slot_id)
            known = new.setdefault(slot_id, slot) if entry is None else entry.slot
            if known != slot:
                raise BadSetting(
                    f"slot {slot.id} is planned with task {known.task} and seed {known.seed}, and again with "
                    f"task {slot.task} and seed {slot.seed}: give all trainers of the stream the same settings"
                )
        oldest = min(self.kept.values())
        for slot_id, slot in new.items():
            if slot.batch >= oldest:
                self._slots.add(slot_id, slot)

    def publish(self, policy: str, published: Published) -> None:
        """Let an update of `policy` be played with from now on, and no more those that no batch needs."""
        self._of(policy).publish(published)
        waiting = (slot[0] for slot, entry in self.entries.items() if entry.state is not State.USED)
        self.weights.retire(policy, min([*waiting, *self.done.values()]))

    def ack(self, policy: str, batch: int, trained: Iterable[SlotId], dropped: Iterable[SlotId] = ()) -> list[SlotId]:
        """Note that `policy` has used slots for a batch: trains on them, or dropped them.

        Returns those whose episodes are void because a trainer of the stream has gone back; if there are any, nothing
        is noted.

        Raises `BadSetting` if one was never there, was used otherwise or is too old, or if batches are left out.
        """
        self._check_done(policy, batch)
        marks = dict.fromkeys(trained, batch)
        marks |= dict.fromkeys(dropped, -1 - batch)
        there = {slot: self._to_use(policy, slot, mark) for slot, mark in marks.items()}
        void = [slot for slot, entry in there.items() if entry is None]
        if void:
            return void
        for slot, entry in there.items():
            if entry is not None and policy not in entry.used:
                entry.used[policy] = marks[slot]
                self._count_age(policy, entry, 1)
                if len(entry.used) == len(self.policies):
                    self._slots.use(entry)
        self.done[policy] = max(self.done[policy], batch + 1)
        return []

    def keep(self, policy: str, batch: int) -> list[SlotId]:
        """Note that `policy` can go on from before `batch`; return the slots that are forgotten now.

        Raises `BadSetting` if batches before it are not acknowledged.
        """
        self._check_done(policy, batch)
        self.kept[policy] = max(self.kept[policy], batch)
        oldest = min(self.kept.values())
        forgotten = [entry for entry in self.entries.values() if self._is_settled(entry, oldest)]
        for entry in forgotten:
            self._slots.remove(entry, "trained" if any(mark >= 0 for mark in entry.used.values()) else "dropped")
        self._slots.forget_before(oldest)
        for name, versions in self.weights.of.items():
            versions.forget(oldest - self.staleness, [entry.weights.get(name, 0) for entry in self.entries.values()])
        return [entry.slot.id for entry in forgotten]

    def rewind(self, policy: str, batch: int) -> list[SlotId]:
        """Go back to where `policy` had trained on batches before `batch`; return the slots whose episodes are void.

        What was played with later weights is played again: these weights may never come to be. Slots that were planned
        from what happened later are withdrawn.

        Raises `BadSetting` if batches that would be needed were forgotten, or batches before it are not acknowledged.
        """
        self._check_done(policy, batch)
        if batch < self.kept[policy]:
            raise BadSetting(
                f"{policy} cannot go on from before batch {batch}: episodes before batch {self.kept[policy]} were "
                "forgotten when a later checkpoint was written; go on from that one, or give a new run a new journal"
            )
        self.weights.of[policy].go_back(batch)
        self.done[policy] = batch
        void = []
        for slot, entry in list(self.entries.items()):
            if policy in entry.used and _batch(entry.used[policy]) >= batch:
                self._count_age(policy, entry, -1)
                del entry.used[policy]
                self._slots.unuse(entry)
            if entry.used:
                continue  # another policy has learnt from it
            if slot[0] > batch + self.staleness:
                void.append(slot)
                self._slots.remove(entry, "withdrawn")
            elif entry.state in (State.LEASED, State.COMMITTED) and self.weights.are_void(entry.weights):
                void.append(slot)
                self._queue_again(entry, "rewound")
        return void

    def reject(self, slot: SlotId, attempt: int, reason: str) -> bool:
        """Refuse a committed episode; return whether it was there, and no policy had used it."""
        entry = self.entries.get(slot)
        if entry is None or entry.state is not State.COMMITTED or entry.attempt != attempt:
            return False
        if entry.used or not entry.digest:
            return False
        self._queue_again(entry, "rejected", reason)
        return True

    # ---------------------------------------------------------------- workers
    def lease(self, worker: str, count: int, deadline: float) -> list[Entry]:
        """Lease up to `count` slots until `deadline`, those of the earliest batches first."""
        leased: list[Entry] = []
        while len(leased) < count:
            entry = self._slots.first_queued()
            weights = None if entry is None else self.weights.to_play(entry.slot.batch)
            if entry is None or weights is None:
                break
            self._slots.lease(entry, deadline)
            entry.weights, entry.worker = weights, worker
            leased.append(entry)
            self.counts["leased"] += 1
        return leased

    def renew(self, slot: SlotId, attempt: int, deadline: float) -> bool:
        """Let a lease end at `deadline`; return False if it has ended."""
        entry = self._slots.leased(slot, attempt)
        if entry is not None:
            self._slots.renew(entry, deadline)
        return entry is not None

    def renew_all(self, deadline: float) -> None:
        """Let all leases end at `deadline`."""
        self._slots.renew_all(deadline)

    def commit(self, slot: SlotId, attempt: int, digest: str) -> Verdict:
        """Take in the episode of a lease, given by its digest."""
        entry = self._slots.leased(slot, attempt)
        if entry is not None:
            self._slots.commit(entry, digest)
            self.counts["committed"] += 1
            return Verdict.ACCEPTED
        entry = self.entries.get(slot)
        if entry is not None and entry.attempt == attempt and entry.digest == digest != "":
            return Verdict.REPEATED
        self.counts["late"] += 1
        return Verdict.LATE

    def fail(self, slot: SlotId, attempt: int, reason: str, why: str = "given_back") -> bool:
        """Give a lease back, counted as `why`; return whether it was there."""
        entry = self._slots.leased(slot, attempt)
        if entry is not None:
            self._queue_again(entry, why, reason)
        return entry is not None

    def expire(self, now: float) -> list[Entry]:
        """End all leases whose deadline has passed; return their entries."""
        ended = self._slots.overdue(now)
        for entry in ended:
            self._queue_again(entry, "expired", f"worker {entry.worker} was not heard of in time")
        return ended

    # ---------------------------------------------------------------- what is there
    def arrived(self, policy: str, after: int) -> list[Entry]:
        """Return the committed slots that `policy` has not used, with a number above `after`, in that order."""
        self._of(policy)
        return [entry for entry in self._slots.arrived(after) if policy not in entry.used]

    def version(self, policy: str, version: int) -> Published | None:
        """Return what was published under a version; None if that is forgotten."""
        return self._of(policy).of_version(version)

    def newest(self, policy: str) -> Published | None:
        """Return the last update of a policy; None before the first."""
        return self._of(policy).newest()

    def needed(self, policy: str) -> set[int]:
        """Return the versions of a policy that slots are played with, or may be: these must be kept."""
        leased = {entry.weights[policy] for entry in self.entries.values() if entry.state is State.LEASED}
        return leased | self._of(policy).current()

    def waits_for(self) -> str | None:
        """Return a policy without whose next update no queued slot can be played; None if there is none."""
        entry = self._slots.first_queued()
        return None if entry is None else self.weights.missing(entry.slot.batch)

    def needs_what_is_gone(self) -> str | None:
        """Return what the next queued slot needs and nobody will publish again; None if there is no such thing."""
        entry = self._slots.first_queued()
        policy = None if entry is None else self.weights.missing(entry.slot.batch)
        newest = None if policy is None else self.newest(policy)
        if entry is None or newest is None or newest.update <= entry.slot.batch - self.staleness:
            return None
        return f"slot {entry.slot.id} needs the weights of {policy} from before update {newest.update}, which are gone"

    def states(self) -> dict[str, int]:
        """Return how many slots are in each state, and how many are gone; that adds up to those admitted."""
        return self._slots.states()

    @property
    def share(self) -> float:
        """The part of what is to be played that is leased or committed."""
        return self._slots.share

    # ---------------------------------------------------------------- inside
    def _of(self, policy: str) -> Versions:
        if policy not in self.weights.of:
            raise UnknownName.among(policy, self.policies)
        return self.weights.of[policy]

    def _check_done(self, policy: str, batch: int) -> None:
        self._of(policy)
        if not 0 <= batch <= self.done[policy]:
            raise BadSetting(
                f"{policy} is at batch {batch}, and its last acknowledged batch here is {self.done[policy] - 1}: go on "
                "from a checkpoint that is not later, or with the journal of the run"
            )

    def _to_use(self, policy: str, slot: SlotId, mark: int) -> Entry | None:
        """Return the entry that a policy uses; None if its episode is void."""
        entry = self.entries.get(slot)
        if entry is None and not self._slots.was_withdrawn(slot):
            raise BadSetting(f"{policy} uses slot {slot}, which was never planned, or is forgotten")
        if entry is None or entry.state not in (State.COMMITTED, State.USED):
            return None
        if entry.used.get(policy, mark) != mark:
            raise BadSetting(f"{policy} has used slot {slot} before, and would use it twice")
        if mark >= 0 and not entry.digest:
            raise BadSetting(f"{policy} trains on slot {slot}, which is lost: drop it")
        if mark >= 0 and self.weights.age(policy, entry.weights[policy], mark) > self.staleness:
            raise BadSetting(f"slot {slot} was played with weights older than {self.staleness} updates: drop it")
        return entry

    def _count_age(self, policy: str, entry: Entry, change: int) -> None:
        if entry.used[policy] >= 0:
            self.ages[policy][self.weights.age(policy, entry.weights[policy], entry.used[policy])] += change

    def _is_settled(self, entry: Entry, oldest: int) -> bool:
        """Return whether no trainer can come back to a slot.

        One that was planned for later than it was used would be planned again, so it is kept until then.
        """
        used = entry.used.items()
        return (
            entry.state is State.USED and entry.slot.batch < oldest and all(_batch(m) < self.kept[p] for p, m in used)
        )

    def _queue_again(self, entry: Entry, why: str, reason: str = "") -> None:
        self.counts[why] += 1
        entry.reason = reason or entry.reason
        if entry.attempt >= self.max_attempts and why != "rewound":
            self._slots.commit(entry, "")
            self.counts["lost"] += 1
        else:
            self._slots.queue(entry)

    # ---------------------------------------------------------------- as plain data
    def snapshot(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""
        return {
            "policies": list(self.policies),
            "order": self.order,
            "staleness": self.staleness,
            "max_attempts": self.max_attempts,
            "slots": self._slots.snapshot(),
            "versions": {policy: versions.snapshot() for policy, versions in self.weights.of.items()},
            "ages": {policy: sorted(ages.items()) for policy, ages in self.ages.items()},
            "done": dict(self.done),
            "kept": dict(self.kept),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the ledger of a snapshot."""
        names = ("order", "staleness", "max_attempts")
        ledger = cls(state["policies"], **{name: state[name] for name in names})
        ledger._slots = Entries.restore(state["slots"])
        ledger.entries, ledger.counts = ledger._slots.by_id, ledger._slots.counts
        ledger.weights.of = {policy: Versions.restore(one) for policy, one in state["versions"].items()}
        ledger.ages = {policy: Counter(dict(ages)) for policy, ages in state["ages"].items()}
        ledger.done, ledger.kept = dict(state["done"]), dict(state["kept"])
        return ledger


def _batch(mark: int) -> int:
    """Return the batch of a mark in `Entry.used`."""
    return mark if mark >= 0 else -1 - mark
