"""The state of every slot of a stream: a state machine without clock, threads or files.

Every slot is in one state, and the numbers of slots in all states always add up to those admitted:

    queued -> leased -> committed -> used -> trained or dropped (and deleted)

A lease that expires, a worker that gives up and an episode that is rejected send the slot back to `queued`. Leases are
numbered, and only the last one may commit, so an episode that two workers have played counts once. `used` is
provisional: a trainer that resumes from a checkpoint gets the slots again that it had used since. Workers and trainers
may repeat their work, but its effect on the weights of the surviving run is exactly once.

A call that raises has changed nothing, and repeating a call changes nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Self

from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.dataflow.bookkeeping.entries import Entries, LedgerEntry, SlotState
from agentgym_flow.dataflow.bookkeeping.leases import Leases
from agentgym_flow.dataflow.bookkeeping.progress import StreamProgress, behind
from agentgym_flow.dataflow.bookkeeping.versions import FIXED, ORDERS, READY, PublishedWeights, Versions, Weights
from agentgym_flow.dataflow.records import Attempt, Slot, SlotId
from agentgym_flow.errors import BadSetting, UnknownName, UnknownOption

__all__ = ["FIXED", "ORDERS", "READY", "Ledger", "LedgerEntry", "PublishedWeights", "SlotState"]


class Ledger(Leases):
    """The slots of one stream.

    Args:
        policies: the policies that act in it.
        order: one of `ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.
        max_attempts: failed attempts after which a slot is lost: it counts as committed, without an episode. Leases
            that a leaving worker gives back do not count as failed.

    Attributes:
        progress: the progress of the trainers; for the others see `Leases`.

    Raises:
        BadSetting: there is no policy, or a number is out of range.
        UnknownOption: there is no such order.
    """

    def __init__(
        self, policies: Sequence[str], *, order: str = FIXED, staleness: int = 4, max_attempts: int = 20
    ) -> None:
        if order not in ORDERS:
            raise UnknownOption.among(order, ORDERS)
        check_positive("the number of policies", len(policies))
        self.policies = tuple(policies)
        self.order = order
        self.staleness = check_integer("staleness", staleness, 0)
        super().__init__(Weights(policies, order, staleness), max_attempts)
        self.progress = StreamProgress(policies, self.weights)

    # ---------------------------------------------------------------- trainers
    def admit(self, slots: Iterable[Slot]) -> None:
        """Admit slots. Those that are known or were deleted are not changed.

        Raises `BadSetting` if one is known with another task or seed: the trainers have different settings.
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
        for slot_id, slot in new.items():
            if slot.batch >= self.progress.oldest:
                self.slots.add(slot_id, slot)

    def publish(self, policy: str, published: PublishedWeights) -> list[SlotId]:
        """Make an update of `policy` available for leases, and retire those that no batch needs.

        Returns the slots whose episodes are void, because an earlier trainer has published this update with other
        weights.

        Raises `BadSetting` if the same trainer has published it with other weights, and `BadData` as `ack`.
        """
        self._of(policy)
        self.progress.check_done(policy, published.update)
        void = self._requeue_void() if self.weights.of[policy].publish(published) else []
        self.weights.retire(policy, min([*self.slots.waiting, *self.progress.done.values()]))
        return void

    def ack(
        self, policy: str, batch: int, trained: Iterable[Attempt], dropped: Iterable[Attempt] = ()
    ) -> list[Attempt]:
        """Note that `policy` has used episodes for a batch: it trains on them, or has dropped them.

        Returns those that are void, because a trainer of the stream has gone back, or has rejected them; if there are
        any, nothing is noted.

        Raises `BadSetting` if an episode is unknown, was used for another batch or is too old, and `BadData` if batches
        before this one were not acknowledged.
        """
        self.progress.check_done(policy, batch)
        marks = dict.fromkeys(trained, batch)
        marks |= dict.fromkeys(dropped, -1 - batch)
        there = {attempt: self._to_use(policy, attempt, mark) for attempt, mark in marks.items()}
        void = [attempt for attempt, entry in there.items() if entry is None]
        if void:
            return void
        for attempt, entry in there.items():
            if entry is not None and policy not in entry.used:
                self.progress.use(policy, entry, marks[attempt])
                self.slots.use(entry, by_all=len(entry.used) == len(self.policies))
        self.progress.done[policy] = max(self.progress.done[policy], batch + 1)
        return []

    def keep(self, policy: str, batch: int) -> list[SlotId]:
        """Note that `policy` can resume from before `batch`; return the slots that are deleted now.

        Raises `BadData` if batches before it are not acknowledged.
        """
        progress = self.progress
        progress.check_done(policy, batch)
        before, progress.kept[policy] = progress.oldest, max(progress.kept[policy], batch)
        oldest = progress.oldest
        if oldest == before:  # another policy may still go back
            return []
        forgotten = [entry for entry in self.slots.before(oldest) if progress.is_settled(entry)]
        for entry in forgotten:
            self.slots.remove(entry, "trained" if any(mark >= 0 for mark in entry.used.values()) else "dropped")
        self.slots.forget_before(oldest)
        for name, versions in self.weights.of.items():
            used = [version for policy, version in self.slots.played_with if policy == name]
            versions.forget(oldest - self.staleness, used)
        return [entry.slot.id for entry in forgotten]

    def finish(self, policy: str) -> None:
        """Note that the trainer of a policy needs no more episodes, unless one opens the stream again."""
        self._of(policy)
        self.progress.finished.add(policy)

    @property
    def is_finished(self) -> bool:
        """Whether no trainer needs more episodes."""
        return len(self.progress.finished) == len(self.policies)

    def open(self, policy: str, batch: int, trainer: str) -> list[SlotId]:
        """Let only `trainer` continue the policy, from before `batch`; returns and raises as `rewind`.

        Changes nothing if it has done so before. Raises `Superseded` if another trainer has done so since.
        """
        self._of(policy)
        if self.progress.was_opened(policy, trainer):
            return []
        void = self.rewind(policy, batch)
        self.progress.open(policy, trainer)
        return void

    def rewind(self, policy: str, batch: int) -> list[SlotId]:
        """Go back to the state before `policy` trained on `batch`; return the slots whose episodes are void.

        Episodes played with later weights are played again, because these weights may differ this time. Slots that were
        planned since are withdrawn.

        Raises `BadSetting` if batches that would be needed were deleted, and `BadData` if batches before it are not
        acknowledged.
        """
        self.progress.check_kept(policy, batch)
        self.weights.of[policy].go_back(batch)
        self.progress.done[policy] = batch
        withdrawn = []
        for slot, entry in list(self.entries.items()):
            if self.progress.used_since(policy, entry, batch):
                self.progress.undo(policy, entry)
                self.slots.use(entry, by_all=False)
            if slot[0] > batch + self.staleness and not entry.used:  # episodes that another policy has used stay
                withdrawn.append(slot)
                self.slots.remove(entry, "withdrawn")
        return withdrawn + self._requeue_void()

    def reject(self, slot: SlotId, attempt: int, reason: str) -> bool:
        """Reject a committed episode; return False if it is not there, or a policy has used it."""
        entry = self.entries.get(slot)
        if entry is None or entry.state is not SlotState.COMMITTED or entry.attempt != attempt:
            return False
        if entry.used or not entry.digest:
            return False
        self._fail(entry, "rejected", reason)
        return True

    # ---------------------------------------------------------------- queries
    def arrived(self, policy: str, after: int) -> list[LedgerEntry]:
        """Return the committed slots that `policy` has not used, with numbers above `after`, in that order.

        Raises `BadData` if there is no commit with the number `after`.
        """
        self._of(policy)
        if after > self.slots.last_commit:
            raise behind(
                f"{policy} has received commit {after}, and the manager knows {self.slots.last_commit} of them"
            )
        return [entry for entry in self.slots.arrived(after) if policy not in entry.used]

    def played_with(self, entry: LedgerEntry) -> dict[str, PublishedWeights]:
        """Return for each policy the weights of the last lease of a slot, except those that were deleted."""
        found = {policy: self.weights.of[policy].of_version(version) for policy, version in entry.weights.items()}
        return {policy: published for policy, published in found.items() if published is not None}

    def newest(self, policy: str) -> PublishedWeights | None:
        """Return the latest update of a policy; None before the first."""
        return self._of(policy).newest()

    def needed(self, policy: str) -> set[int]:
        """Return the versions of a policy that are in use or may be used, and must be kept."""
        leased = {version for name, version in self.slots.leased_with if name == policy}
        return leased | self._of(policy).current()

    def waits_for(self) -> str | None:
        """Return a policy whose next update is needed before any queued slot can be played; None if there is none."""
        entry = self.slots.first_queued()
        return None if entry is None else self.weights.missing(entry.slot.batch)

    def lost_weights(self) -> str | None:
        """Return a text that names the weights which the next queued slot needs and no trainer will publish again."""
        entry = self.slots.first_queued()
        policy = None if entry is None else self.weights.missing(entry.slot.batch)
        newest = None if policy is None else self.newest(policy)
        if entry is None or newest is None or newest.update <= entry.slot.batch - self.staleness:
            return None
        return f"slot {entry.slot.id} needs the weights of {policy} from before update {newest.update}, which are gone"

    # ---------------------------------------------------------------- inside
    def _of(self, policy: str) -> Versions:
        if policy not in self.weights.of:
            raise UnknownName.among(policy, self.policies)
        return self.weights.of[policy]

    def _to_use(self, policy: str, attempt: Attempt, mark: int) -> LedgerEntry | None:
        """Return the entry of an attempt that a policy uses; None if another attempt counts."""
        entry = self.entries.get(attempt.slot)
        if entry is None and not self.slots.was_withdrawn(attempt.slot):
            raise BadSetting(f"{policy} uses slot {attempt.slot}, which was never planned, or was deleted")
        if entry is None or entry.state not in (SlotState.COMMITTED, SlotState.USED) or entry.attempt != attempt.number:
            return None
        self.progress.check_use(policy, entry, mark)
        return entry

    # ---------------------------------------------------------------- as plain data
    def snapshot(self, batches: Collection[int] | None = None) -> dict[str, Any]:
        """Return plain data for `restore`, with the slots of these batches only; None for all."""
        return {
            "policies": list(self.policies),
            "order": self.order,
            "staleness": self.staleness,
            "max_attempts": self.max_attempts,
            "slots": self.slots.snapshot(batches),
            "versions": {policy: versions.snapshot() for policy, versions in self.weights.of.items()},
            "progress": self.progress.snapshot(),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the ledger with this snapshot."""
        names = ("order", "staleness", "max_attempts")
        ledger = cls(state["policies"], **{name: state[name] for name in names})
        ledger._keep_slots(Entries.restore(state["slots"]))
        ledger.weights.of = {policy: Versions.restore(one) for policy, one in state["versions"].items()}
        ledger.progress.restore(state["progress"])
        return ledger
