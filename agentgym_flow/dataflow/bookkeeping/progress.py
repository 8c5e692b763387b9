"""The progress of a stream's trainers: what they have used and kept, and which trainer of a policy is current."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agentgym_flow.core import check_integer
from agentgym_flow.dataflow.bookkeeping.entries import LedgerEntry, SlotState
from agentgym_flow.dataflow.bookkeeping.versions import Weights
from agentgym_flow.errors import BadData, BadSetting, Superseded, UnknownName


def behind(what: str) -> BadData:
    """Return the error for a manager that lacks `what` a trainer knows from an answer of it, or from a checkpoint."""
    return BadData(
        f"{what}: the manager's journal is damaged (the end of its write-ahead log is lost, or the file ending in -wal "
        "was deleted), or is that of another run. Put back the journal together with that file, resume from a "
        "checkpoint that the journal knows, or begin the run again in a new folder"
    )


class StreamProgress:
    """The trainers of a stream, one for each policy.

    Args:
        policies: the policies.
        weights: what they have published.

    Attributes:
        done: for each policy, how many batches it has acknowledged.
        kept: for each policy, the batch before which its last checkpoint was taken.
        ages: for each policy, a histogram of the age, in updates, of the weights that played its episodes.
        finished: the policies whose trainers need no more episodes.
    """

    def __init__(self, policies: Sequence[str], weights: Weights) -> None:
        self.done = dict.fromkeys(policies, 0)
        self.kept = dict.fromkeys(policies, 0)
        self.ages: dict[str, Counter[int]] = {policy: Counter() for policy in policies}
        self.finished: set[str] = set()
        self._opened: dict[str, list[str]] = {policy: [] for policy in policies}  # the trainers, the current one last
        self._weights = weights

    # ---------------------------------------------------------------- the trainer of a policy
    def epoch(self, policy: str) -> int:
        """Return how many trainers a policy has had, including the current one."""
        return len(self._opened[policy])

    def was_opened(self, policy: str, trainer: str) -> bool:
        """Return whether a trainer is the current one. Raises `Superseded` if it is an earlier one."""
        before = self._opened[policy]
        if trainer in before[:-1]:
            raise self._superseded(policy)
        return trainer in before

    def open(self, policy: str, trainer: str) -> None:
        """Make `trainer` the current one of a policy."""
        self._opened[policy].append(trainer)
        self.finished.discard(policy)

    def check_epoch(self, policy: str, epoch: int) -> None:
        """Raise `Superseded` for the epoch of an earlier trainer of a policy, and `BadData` for one not known here."""
        if policy not in self._opened:
            raise UnknownName.among(policy, self._opened)
        if epoch > self.epoch(policy):
            raise behind(f"{policy} has had {epoch} trainers, of which the manager knows {self.epoch(policy)}")
        if epoch != self.epoch(policy):
            raise self._superseded(policy)

    def _superseded(self, policy: str) -> Superseded:
        return Superseded(
            f"a newer trainer of {policy} has started (the manager is at epoch {self.epoch(policy)}): stop this one"
        )

    # ---------------------------------------------------------------- batches
    @property
    def oldest(self) -> int:
        """The earliest batch that a trainer may go back to."""
        return min(self.kept.values())

    def check_done(self, policy: str, batch: int) -> None:
        """Raise `BadData` unless all batches before `batch` are acknowledged."""
        if policy not in self.done:
            raise UnknownName.among(policy, self.done)
        if check_integer("batch", batch, 0) > self.done[policy]:
            raise behind(f"{policy} has trained on {batch} batches, of which the manager knows {self.done[policy]}")

    def check_kept(self, policy: str, batch: int) -> None:
        """Raise `BadSetting` unless a trainer can continue from before `batch`, or `BadData` as `check_done`."""
        self.check_done(policy, batch)
        if batch < self.kept[policy]:
            raise BadSetting(
                f"{policy} cannot continue from before batch {batch}: episodes before batch {self.kept[policy]} were "
                "deleted when a later checkpoint was written; resume from that one, or give a new run a new journal"
            )

    # ---------------------------------------------------------------- used episodes
    def check_use(self, policy: str, entry: LedgerEntry, mark: int) -> None:
        """Raise `BadSetting` if a policy must not use an episode as `mark` says (see `LedgerEntry.used`)."""
        slot = entry.slot.id
        if entry.used.get(policy, mark) != mark:
            raise BadSetting(f"{policy} has already used slot {slot}")
        if mark >= 0 and not entry.digest:
            raise BadSetting(f"{policy} trains on slot {slot}, which is lost: drop it")
        if mark >= 0 and not self._weights.are_fresh(policy, entry.weights[policy], mark):
            raise BadSetting(f"slot {slot} was played with weights that are too old for batch {mark}: drop it")

    def use(self, policy: str, entry: LedgerEntry, mark: int) -> None:
        """Note that a policy has used an episode."""
        entry.used[policy] = mark
        self._count(policy, entry, 1)

    def undo(self, policy: str, entry: LedgerEntry) -> None:
        """Undo the use of an episode by a policy."""
        self._count(policy, entry, -1)
        del entry.used[policy]

    def used_since(self, policy: str, entry: LedgerEntry, batch: int) -> bool:
        """Return whether a policy has used an episode for `batch` or later."""
        return policy in entry.used and _batch(entry.used[policy]) >= batch

    def is_settled(self, entry: LedgerEntry) -> bool:
        """Return whether no trainer can go back to a slot.

        Slots that were used earlier than planned would be planned again, so they are kept until their own batch.
        """
        if entry.state is not SlotState.USED or entry.slot.batch >= self.oldest:
            return False
        return all(_batch(mark) < self.kept[policy] for policy, mark in entry.used.items())

    def _count(self, policy: str, entry: LedgerEntry, change: int) -> None:
        if entry.used[policy] >= 0:
            age = self._weights.age(policy, entry.weights[policy], entry.used[policy])
            self.ages[policy][age] += change

    # ---------------------------------------------------------------- as plain data
    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        return {
            "done": dict(self.done),
            "kept": dict(self.kept),
            "ages": {policy: sorted(ages.items()) for policy, ages in self.ages.items()},
            "finished": sorted(self.finished),
            "opened": {policy: list(trainers) for policy, trainers in self._opened.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load a snapshot."""
        self.done, self.kept = dict(state["done"]), dict(state["kept"])
        self.ages = {policy: Counter(dict(ages)) for policy, ages in state["ages"].items()}
        self.finished = set(state["finished"])
        self._opened = {policy: list(trainers) for policy, trainers in state["opened"].items()}


def _batch(mark: int) -> int:
    """Return the batch of a mark in `LedgerEntry.used`."""
    return mark if mark >= 0 else -1 - mark
