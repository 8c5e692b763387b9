"""What the trainers of a policy have done: the weights that they published, and the episodes that they used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self

from agentgym_flow.core import check_integer
from agentgym_flow.dataflow.bookkeeping.entries import LedgerEntry
from agentgym_flow.errors import BadData, BadSetting, Superseded


def behind(what: str) -> BadData:
    """Return the error for a manager that lacks `what` a trainer knows from an answer of it, or from a checkpoint."""
    return BadData(
        f"{what}: the manager's journal is damaged (the end of its write-ahead log is lost, or the file ending in -wal "
        "was deleted), or is that of another run. Put back the journal together with that file, resume from a "
        "checkpoint that the journal knows, or begin the run again in a new folder"
    )


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """One version of a policy's weights.

    Attributes:
        version: its number, larger than those published before it.
        update: how many batches these weights were trained on.
        step: the optimizer step of the trainer.
        digest: of the weights.
        epoch: of the trainer, see `Claim`.
    """

    version: int
    update: int
    step: int
    digest: str = ""
    epoch: int = 0


class Versions:
    """The versions of a policy's weights.

    Attributes:
        last: the largest version so far.
        void: versions that a trainer has gone back behind, or replaced by other weights; they are not played with.
        by_number: the weights of each version that was not deleted.
    """

    def __init__(self) -> None:
        self.last = 0
        self.void: set[int] = set()
        self._latest = -1  # the largest update so far
        self.by_number: dict[int, PublishedWeights] = {}
        self._by_update: dict[int, int] = {}  # the version to play with

    def publish(self, published: PublishedWeights) -> bool:
        """Add a version, to play its update with from now on; return whether other versions have become void.

        Raises `BadSetting` if the same trainer has published the update with other weights. Other weights that another
        trainer has published as this update become void, because this trainer does not continue from them.
        """
        known = self.by_number.values() if published.update <= self._latest else ()
        others = [one for one in known if one.update == published.update and one.digest != published.digest]
        if any(one.epoch == published.epoch for one in others):
            raise BadSetting(
                f"update {published.update} was published before, with other weights: a trainer publishes it once"
            )
        self.void |= {one.version for one in others}
        self.last = max(self.last, published.version)
        self.by_number[published.version] = published
        self._by_update[published.update] = published.version
        self._latest = max(self._latest, published.update)
        return bool(others)

    def go_back(self, update: int) -> None:
        """Make updates later than `update` void."""
        self.void |= {one.version for one in self.by_number.values() if one.update > update}
        self._by_update = {old: version for old, version in self._by_update.items() if old <= update}

    def of_update(self, update: int) -> PublishedWeights | None:
        """Return the weights to play an update with; None if it is not published."""
        version = self._by_update.get(update)
        return None if version is None else self.by_number[version]

    def newest(self) -> PublishedWeights | None:
        """Return the latest update; None before the first."""
        return self.of_update(max(self._by_update, default=-1))

    def current(self) -> set[int]:
        """Return the versions that may be played with."""
        return {*self._by_update.values()}

    def retire(self, update: int) -> None:
        """Do not play with updates before `update` any more. A trainer that goes back further publishes them again."""
        self._by_update = {old: version for old, version in self._by_update.items() if old >= update}

    def forget(self, update: int, used: Iterable[int]) -> None:
        """Delete updates before `update`, except for the versions in `used` and the newest update."""
        self.retire(min(update, max(self._by_update, default=0)))
        kept = self.current() | {*used}
        self.by_number = {version: one for version, one in self.by_number.items() if version in kept}
        self.void &= kept

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        rows = [[*asdict(one).values()] for one in self.by_number.values()]
        return {"last": self.last, "void": sorted(self.void), "all": rows, "current": sorted(self._by_update.values())}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the versions with this snapshot."""
        versions = cls()
        versions.last, versions.void = state["last"], set(state["void"])
        versions.by_number = {row[0]: PublishedWeights(*row) for row in state["all"]}
        versions._latest = max((one.update for one in versions.by_number.values()), default=-1)
        versions._by_update = {versions.by_number[one].update: one for one in state["current"]}
        return versions


class PolicyProgress:
    """What the trainers of one policy have done in a stream.

    Attributes:
        policy: the policy.
        versions: the weights that they published.
        done: how many batches they have acknowledged.
        kept: the batch before which the last checkpoint was taken.
        ages: a histogram of the age, in updates, of the weights that played the episodes.
        finished: whether the trainer needs no more episodes.
        trainers: all of them, the current one last.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.versions = Versions()
        self.done = self.kept = 0
        self.ages: Counter[int] = Counter()
        self.finished = False
        self.trainers: list[str] = []

    # ---------------------------------------------------------------- the current trainer
    @property
    def epoch(self) -> int:
        """How many trainers the policy has had, including the current one."""
        return len(self.trainers)

    def is_open(self, trainer: str) -> bool:
        """Return whether a trainer is the current one. Raises `Superseded` if it is an earlier one."""
        if trainer in self.trainers[:-1]:
            raise self._superseded()
        return trainer in self.trainers

    def check_epoch(self, epoch: int) -> None:
        """Raise `Superseded` for the epoch of an earlier trainer, and `BadData` for one not known here."""
        if epoch > self.epoch:
            raise behind(f"{self.policy} has had {epoch} trainers, of which the manager knows {self.epoch}")
        if epoch != self.epoch:
            raise self._superseded()

    def _superseded(self) -> Superseded:
        return Superseded(
            f"a newer trainer of {self.policy} has started (the manager is at epoch {self.epoch}): stop this one"
        )

    # ---------------------------------------------------------------- batches and episodes
    def check_done(self, batch: int) -> None:
        """Raise `BadData` unless all batches before `batch` are acknowledged."""
        if check_integer("batch", batch, 0) > self.done:
            raise behind(f"{self.policy} has trained on {batch} batches, of which the manager knows {self.done}")

    def check_kept(self, batch: int) -> None:
        """Raise `BadSetting` unless a trainer can continue from before `batch`, or `BadData` as `check_done`."""
        self.check_done(batch)
        if batch < self.kept:
            raise BadSetting(
                f"{self.policy} cannot continue from before batch {batch}: episodes before batch {self.kept} were "
                "deleted when a later checkpoint was written; resume from that one, or give a new run a new journal"
            )

    def check_use(self, entry: LedgerEntry, mark: int, staleness: int) -> None:
        """Raise `BadSetting` if the policy must not use an episode as `mark` says (see `LedgerEntry.used`)."""
        slot = entry.id
        if entry.used.get(self.policy, mark) != mark:
            raise BadSetting(f"{self.policy} has already used slot {slot}")
        if mark >= 0 and not entry.digest:
            raise BadSetting(f"{self.policy} trains on slot {slot}, which is lost: drop it")
        if mark >= 0 and self._age(entry, mark) > staleness:
            raise BadSetting(f"slot {slot} was played with weights that are too old for batch {mark}: drop it")

    def use(self, entry: LedgerEntry, mark: int) -> None:
        """Note that the policy has used an episode."""
        entry.used[self.policy] = mark
        if mark >= 0:
            self.ages[self._age(entry, mark)] += 1

    def undo(self, entry: LedgerEntry) -> None:
        """Undo the use of an episode."""
        mark = entry.used.pop(self.policy)
        if mark >= 0:
            self.ages[self._age(entry, mark)] -= 1

    def _age(self, entry: LedgerEntry, batch: int) -> int:
        """Return by how many updates the weights that played an episode are older than those that a batch trains."""
        published = self.versions.by_number.get(entry.weights[self.policy])
        assert published is not None, "versions are kept as long as slots refer to them"
        return batch - published.update
