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

from collections.abc import Iterable, Sequence
from typing import Any, Self

from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.dataflow.bookkeeping.entries import Entries, LedgerEntry, SlotState
from agentgym_flow.dataflow.bookkeeping.leases import Leases
from agentgym_flow.dataflow.bookkeeping.progress import StreamProgress
from agentgym_flow.dataflow.bookkeeping.versions import FIXED, ORDERS, READY, PublishedWeights, Versions, Weights
from agentgym_flow.dataflow.records import Attempt, Slot, SlotId
from agentgym_flow.errors import BadSetting, UnknownName, UnknownOption

__all__ = ["FIXED", "ORDERS", "READY", "Ledger", "LedgerEntry", "PublishedWeights", "SlotState"]


class Ledger(Leases):
    """The slots of one stream.

    Args:
        policies: those that act in it.
        order: one of `ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.
        max_attempts: a slot is lost after this many failed attempts: it counts as committed, with no episode. An
            attempt that a worker gives back because it leaves has not failed.
        first: the batch that the stream begins with.

    Attributes:
        progress: how far the trainers are; for the others see `Leases`.

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
        if check_integer("batch", first, 0) and order == FIXED and staleness:
            raise BadSetting(
                f"batch {first} needs the weights of {staleness} updates earlier, and this manager does not have them: "
                "start it with the journal of the run, or begin with batch 0"
            )
        super().__init__(Weights(policies, order, staleness), max_attempts)
        self.progress = StreamProgress(policies, first, self.weights)

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
        for slot_id, slot in new.items():
            if slot.batch >= self.progress.oldest:
                self.slots.add(slot_id, slot)

    def publish(self, policy: str, published: PublishedWeights) -> list[SlotId]:
        """Let an update of `policy` be played with from now on, and no more those that no batch needs.

        Returns the slots whose episodes are void, because an earlier trainer has published this update otherwise.

        Raises `BadSetting` if the same trainer has published it otherwise.
        """
        self._of(policy).publish(published)
        void = self._play_again_what_is_void()
        waiting = (slot[0] for slot, entry in self.entries.items() if entry.state is not SlotState.USED)
        self.weights.retire(policy, min([*waiting, *self.progress.done.values()]))
        return void

    def ack(
        self, policy: str, batch: int, trained: Iterable[Attempt], dropped: Iterable[Attempt] = ()
    ) -> list[Attempt]:
        """Note that `policy` has used episodes for a batch: trains on them, or dropped them.

        Returns those that are void, because a trainer of the stream has gone back, or has refused them; if there are
        any, nothing is noted.

        Raises `BadSetting` if one was never there, was used otherwise or is too old, or if batches are left out.
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
                if len(entry.used) == len(self.policies):
                    self.slots.use(entry)
        self.progress.done[policy] = max(self.progress.done[policy], batch + 1)
        return []

    def keep(self, policy: str, batch: int) -> list[SlotId]:
        """Note that `policy` can go on from before `batch`; return the slots that are forgotten now.

        Raises `BadSetting` if batches before it are not acknowledged.
        """
        progress = self.progress
        progress.check_done(policy, batch)
        progress.kept[policy] = max(progress.kept[policy], batch)
        oldest = progress.oldest
        forgotten = [entry for entry in self.entries.values() if progress.is_settled(entry)]
        for entry in forgotten:
            self.slots.remove(entry, "trained" if any(mark >= 0 for mark in entry.used.values()) else "dropped")
        self.slots.forget_before(oldest)
        for name, versions in self.weights.of.items():
            versions.forget(oldest - self.staleness, [entry.weights.get(name, 0) for entry in self.entries.values()])
        return [entry.slot.id for entry in forgotten]

    def finish(self, policy: str) -> None:
        """Note that the trainer of a policy needs no more episodes, until one opens it again."""
        self._of(policy)
        self.progress.finished.add(policy)

    @property
    def is_finished(self) -> bool:
        """Whether no trainer needs more episodes."""
        return len(self.progress.finished) == len(self.policies)

    def open(self, policy: str, batch: int, trainer: str) -> list[SlotId]:
        """Let `trainer` go on from before `batch`, and no other trainer of the policy; returns and raises as `rewind`.

        Changes nothing if it has done so before. Raises `Superseded` if another one has done so since.
        """
        self._of(policy)
        if self.progress.was_opened(policy, trainer):
            return []
        void = self.rewind(policy, batch)
        self.progress.open(policy, trainer)
        return void

    def rewind(self, policy: str, batch: int) -> list[SlotId]:
        """Go back to where `policy` had trained on batches before `batch`; return the slots whose episodes are void.

        What was played with later weights is played again: these weights may never come to be. Slots that were planned
        from what happened later are withdrawn.

        Raises `BadSetting` if batches that would be needed were forgotten, or batches before it are not acknowledged.
        """
        self.progress.check_kept(policy, batch)
        self.weights.of[policy].go_back(batch)
        self.progress.done[policy] = batch
        withdrawn = []
        for slot, entry in list(self.entries.items()):
            if self.progress.used_since(policy, entry, batch):
                self.progress.undo(policy, entry)
                self.slots.unuse(entry)
            if slot[0] > batch + self.staleness and not entry.used:  # what another policy has learnt from stays
                withdrawn.append(slot)
                self.slots.remove(entry, "withdrawn")
        return withdrawn + self._play_again_what_is_void()

    def reject(self, slot: SlotId, attempt: int, reason: str) -> bool:
        """Refuse a committed episode; return whether it was there, and no policy had used it."""
        entry = self.entries.get(slot)
        if entry is None or entry.state is not SlotState.COMMITTED or entry.attempt != attempt:
            return False
        if entry.used or not entry.digest:
            return False
        self._fail(entry, "rejected", reason)
        return True

    # ---------------------------------------------------------------- what is there
    def arrived(self, policy: str, after: int) -> list[LedgerEntry]:
        """Return the committed slots that `policy` has not used, with a number above `after`, in that order."""
        self._of(policy)
        return [entry for entry in self.slots.arrived(after) if policy not in entry.used]

    def played_with(self, entry: LedgerEntry) -> dict[str, PublishedWeights]:
        """Return for each policy the weights of the last lease of a slot; without those that are forgotten."""
        found = {policy: self.weights.of[policy].of_version(version) for policy, version in entry.weights.items()}
        return {policy: published for policy, published in found.items() if published is not None}

    def newest(self, policy: str) -> PublishedWeights | None:
        """Return the last update of a policy; None before the first."""
        return self._of(policy).newest()

    def needed(self, policy: str) -> set[int]:
        """Return the versions of a policy that slots are played with, or may be: these must be kept."""
        leased = {entry.weights[policy] for entry in self.entries.values() if entry.state is SlotState.LEASED}
        return leased | self._of(policy).current()

    def waits_for(self) -> str | None:
        """Return a policy without whose next update no queued slot can be played; None if there is none."""
        entry = self.slots.first_queued()
        return None if entry is None else self.weights.missing(entry.slot.batch)

    def needs_what_is_gone(self) -> str | None:
        """Return what the next queued slot needs and nobody will publish again; None if there is no such thing."""
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
        """Return the entry that a policy uses; None if the attempt is not the one that counts."""
        entry = self.entries.get(attempt.slot)
        if entry is None and not self.slots.was_withdrawn(attempt.slot):
            raise BadSetting(f"{policy} uses slot {attempt.slot}, which was never planned, or is forgotten")
        if entry is None or entry.state not in (SlotState.COMMITTED, SlotState.USED) or entry.attempt != attempt.number:
            return None
        self.progress.check_use(policy, entry, mark)
        return entry

    # ---------------------------------------------------------------- as plain data
    def snapshot(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""
        return {
            "policies": list(self.policies),
            "order": self.order,
            "staleness": self.staleness,
            "max_attempts": self.max_attempts,
            "slots": self.slots.snapshot(),
            "versions": {policy: versions.snapshot() for policy, versions in self.weights.of.items()},
            "progress": self.progress.snapshot(),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the ledger of a snapshot."""
        names = ("order", "staleness", "max_attempts")
        ledger = cls(state["policies"], **{name: state[name] for name in names})
        ledger._keep_slots(Entries.restore(state["slots"]))
        ledger.weights.of = {policy: Versions.restore(one) for policy, one in state["versions"].items()}
        ledger.progress.restore(state["progress"])
        return ledger
