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

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Any, Self

from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.dataflow.bookkeeping.entries import COMMITTED, LEASED, USED, Entries, LedgerEntry, batch_of
from agentgym_flow.dataflow.bookkeeping.progress import PolicyProgress, PublishedWeights, Versions, behind
from agentgym_flow.dataflow.records import Attempt, CommitVerdict, Slot, SlotId
from agentgym_flow.errors import BadSetting, UnknownName, UnknownOption

FIXED, READY = "fixed", "ready"
ORDERS = (FIXED, READY)
"""How batches are composed.

`fixed`: batch n consists of the groups planned for it, played with the weights after update max(0, n - staleness).
`ready`: a batch consists of the groups that are complete first, played with the newest weights at the time.
"""

OVERLONG = "overlong"
"""The count of leases that were renewed until their limit."""


class Ledger:
    """The slots of one stream.

    Args:
        policies: the policies that act in it.
        order: one of `ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.
        max_attempts: failed attempts after which a slot is lost: it counts as committed, without an episode. Leases
            that a leaving worker gives back do not count as failed.

    Attributes:
        slots: the slots, by their state.
        entries: the same by their ids.
        counts: numbers of events: `admitted`, `withdrawn`, `trained`, `dropped`, `expired`, `late`, ...
        progress: what the trainers of each policy have done.

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
        self.max_attempts = check_positive("max_attempts", max_attempts)
        self.progress = {policy: PolicyProgress(policy) for policy in policies}
        self._shared: dict[str, int] = {}  # the last result of `weights_of`
        self._digests: tuple[dict[str, int], dict[str, str]] = {}, {}  # the last weights and result of `digests`
        self._keep_slots(Entries())

    def _keep_slots(self, slots: Entries) -> None:
        self.slots, self.entries, self.counts = slots, slots.by_id, slots.counts

    def of(self, policy: str) -> PolicyProgress:
        """Return the progress of a policy. Raises `UnknownName` if it does not act in this stream."""
        if policy not in self.progress:
            raise UnknownName.among(policy, self.policies)
        return self.progress[policy]

    # ---------------------------------------------------------------- workers
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
        avoided: list[SlotId] = []
        while len(leased) < count and (first := self.slots.first_queued()) is not None:
            weights = self.weights_of(first.id[0])
            if weights is None:
                break
            taken, passed = self.slots.take(count - len(leased), avoid)
            if taken:
                self.slots.lease(taken, worker, weights, deadline, limit)
                self.counts["leased"] += len(taken)
            leased += taken
            avoided += passed
        self.slots.put_back(avoided)
        return leased

    def renew(self, slot: SlotId, attempt: int, deadline: float) -> bool:
        """Renew a lease until `deadline`, or until its limit; return False if it has ended."""
        entry = self.slots.leased(slot, attempt)
        if entry is not None:
            self.slots.renew(entry, deadline)
        return entry is not None

    def commit(
        self, slot: SlotId, attempt: int, digest: str, size: int = 0, used: Sequence[Sequence[Any]] = ()
    ) -> CommitVerdict:
        """Accept the episode of a lease, given by its digest and its bytes, unless the lease has ended.

        `used` has policy and version of all weights that played it; none: those of the lease.
        """
        entry = self.slots.leased(slot, attempt)
        if entry is not None:
            self.slots.commit(entry, digest, size, [(policy, version) for policy, version in used] if used else ())
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
        oldest = self._oldest()
        for slot_id, slot in new.items():
            if slot.batch >= oldest:
                self.slots.add(slot_id, slot)

    def publish(self, policy: str, published: PublishedWeights) -> None:
        """Make an update of `policy` available for leases, and retire those that no batch needs.

        In fixed order, batches need the updates from that of the earliest batch on; in ready order, the newest
        `staleness + 1`. If an earlier trainer has published this update with other weights, episodes played with these
        are void.

        Raises `BadSetting` if the same trainer has published it with other weights, and `BadData` as `ack`.
        """
        progress = self.of(policy)
        progress.check_done(published.update)
        versions = progress.versions
        if versions.publish(published):
            self._requeue_void()
        newest = versions.newest()
        if self.order == FIXED:
            earliest = min([*self.slots.waiting, *(one.done for one in self.progress.values())])
            versions.retire(earliest - self.staleness)
        elif newest is not None:
            versions.retire(newest.update - self.staleness)

    def ack(
        self, policy: str, batch: int, trained: Iterable[Attempt], dropped: Iterable[Attempt] = ()
    ) -> list[Attempt]:
        """Note that `policy` has used episodes for a batch: it trains on them, or has dropped them.

        Returns those that are void, because a trainer of the stream has gone back, or has rejected them; if there are
        any, nothing is noted.

        Raises `BadSetting` if an episode is unknown, was used for another batch or is too old, and `BadData` if batches
        before this one were not acknowledged.
        """
        progress = self.of(policy)
        progress.check_done(batch)
        marks = dict.fromkeys(trained, batch)
        marks |= dict.fromkeys(dropped, -1 - batch)
        there = {attempt: self._to_use(progress, attempt, mark) for attempt, mark in marks.items()}
        void = [attempt for attempt, entry in there.items() if entry is None]
        if void:
            return void
        for attempt, entry in there.items():
            if entry is not None and policy not in entry.used:
                progress.use(entry, marks[attempt])
                self.slots.use(entry, by_all=len(entry.used) == len(self.policies))
        progress.done = max(progress.done, batch + 1)
        return []

    def keep(self, policy: str, batch: int) -> None:
        """Note that `policy` can resume from before `batch`, and delete slots that nobody needs any more.

        Raises `BadData` if batches before it are not acknowledged.
        """
        progress, before = self.of(policy), self._oldest()
        progress.check_done(batch)
        progress.kept = max(progress.kept, batch)
        oldest = self._oldest()
        if oldest == before:  # another policy may still go back
            return
        for entry in filter(self._is_settled, self.slots.before(oldest)):
            self.slots.remove(entry, "trained" if max(entry.used.values()) >= 0 else "dropped")
        self.slots.forget_before(oldest)
        for name, one in self.progress.items():
            used = [version for policy, version in self.slots.played_with if policy == name]
            one.versions.forget(oldest - self.staleness, used)

    def finish(self, policy: str) -> None:
        """Note that the trainer of a policy needs no more episodes, unless one opens the stream again."""
        self.of(policy).finished = True

    @property
    def is_finished(self) -> bool:
        """Whether no trainer needs more episodes."""
        return all(one.finished for one in self.progress.values())

    def open(self, policy: str, batch: int, trainer: str) -> None:
        """Let only `trainer` continue the policy, from before `batch`; raises as `rewind`.

        Changes nothing if it has done so before. Raises `Superseded` if another trainer has done so since.
        """
        progress = self.of(policy)
        if not progress.is_open(trainer):
            self.rewind(policy, batch)
            progress.trainers.append(trainer)
            progress.finished = False

    def rewind(self, policy: str, batch: int) -> None:
        """Go back to the state before `policy` trained on `batch`.

        Episodes played with later weights are played again, because these weights may differ this time. Slots that were
        planned since are withdrawn.

        Raises `BadSetting` if batches that would be needed were deleted, and `BadData` if batches before it are not
        acknowledged.
        """
        progress = self.of(policy)
        progress.check_kept(batch)
        progress.versions.go_back(batch)
        progress.done = batch
        for slot, entry in list(self.entries.items()):
            if policy in entry.used and batch_of(entry.used[policy]) >= batch:
                progress.undo(entry)
                self.slots.use(entry, by_all=False)
            if slot[0] > batch + self.staleness and not entry.used:  # episodes that another policy has used stay
                self.slots.remove(entry, "withdrawn")
        self._requeue_void()

    def reject(self, slot: SlotId, attempt: int, reason: str) -> bool:
        """Reject a committed episode; return False if it is not there, or a policy has used it."""
        entry = self.entries.get(slot)
        if entry is None or entry.state is not COMMITTED or entry.attempt != attempt:
            return False
        if entry.used or not entry.digest:
            return False
        self._fail(entry, "rejected", reason)
        return True

    def _oldest(self) -> int:
        """Return the earliest batch that a trainer may go back to."""
        return min(one.kept for one in self.progress.values())

    def _is_settled(self, entry: LedgerEntry) -> bool:
        """Return whether no trainer can go back to a slot of a batch before `_oldest`.

        Slots that were used earlier than planned would be planned again, so they are kept until their own batch.
        """
        marks = entry.used.items()
        return entry.state is USED and all(batch_of(mark) < self.progress[name].kept for name, mark in marks)

    def _to_use(self, progress: PolicyProgress, attempt: Attempt, mark: int) -> LedgerEntry | None:
        """Return the entry of an attempt that a policy uses; None if another attempt counts."""
        entry = self.entries.get(attempt.slot)
        if entry is None and attempt.slot not in self.slots.withdrawn:
            raise BadSetting(f"{progress.policy} uses slot {attempt.slot}, which was never planned, or was deleted")
        if entry is None or entry.state not in (COMMITTED, USED) or entry.attempt != attempt.number:
            return None
        progress.check_use(entry, mark, self.staleness)
        return entry

    def _requeue_void(self) -> None:
        """Queue slots that were played with void weights, unless a policy has used them."""
        for entry in self.entries.values():
            there = entry.state in (LEASED, COMMITTED) and not entry.used
            if there and any(number in self.progress[name].versions.void for name, number in entry.versions()):
                self._queue_again(entry, "rewound")

    # ---------------------------------------------------------------- weights
    def _update_for(self, policy: str, batch: int) -> PublishedWeights | None:
        """Return the weights of a policy to play a slot of a batch with; None if they are not published yet."""
        versions = self.progress[policy].versions
        return versions.newest() if self.order == READY else versions.of_update(max(0, batch - self.staleness))

    def weights_of(self, batch: int) -> dict[str, int] | None:
        """Return for each policy the version to play a slot of a batch with; None if some are not published yet."""
        weights = {}
        for policy in self.policies:
            published = self._update_for(policy, batch)
            if published is None:
                return None
            weights[policy] = published.version
        if weights != self._shared:
            self._shared = weights
        return self._shared  # one object for many slots saves memory

    def played_with(self, entry: LedgerEntry) -> dict[str, PublishedWeights]:
        """Return for each policy the oldest weights of the last attempt at a slot, except those that were deleted."""
        found = {name: self.progress[name].versions.by_number.get(version) for name, version in entry.weights.items()}
        return {policy: published for policy, published in found.items() if published is not None}

    def digests(self, entry: LedgerEntry) -> dict[str, str]:
        """Return for each policy the digest of the weights in `played_with`."""
        if self._digests[0] is not entry.weights:  # many slots share the object
            found = {policy: published.digest for policy, published in self.played_with(entry).items()}
            self._digests = entry.weights, found
        return self._digests[1]

    def needed(self, policy: str) -> set[int]:
        """Return the versions of a policy that are in use or may be used, and must be kept."""
        leased = {version for name, version in self.slots.leased_with if name == policy}
        return leased | self.of(policy).versions.current()

    def waits_for(self) -> str | None:
        """Return a policy whose next update is needed before any queued slot can be played; None if there is none."""
        entry = self.slots.first_queued()
        if entry is None:
            return None
        return next((name for name in self.policies if self._update_for(name, entry.id[0]) is None), None)

    def lost_weights(self) -> str | None:
        """Return a text that names the weights which the next queued slot needs and no trainer will publish again."""
        entry, policy = self.slots.first_queued(), self.waits_for()
        newest = None if policy is None else self.progress[policy].versions.newest()
        if entry is None or newest is None or newest.update <= entry.id[0] - self.staleness:
            return None
        return f"slot {entry.id} needs the weights of {policy} from before update {newest.update}, which are gone"

    # ---------------------------------------------------------------- episodes, and plain data
    def arrived(self, policy: str, after: int) -> list[LedgerEntry]:
        """Return the committed slots that `policy` has not used, with numbers above `after`, in that order.

        Raises `BadData` if there is no commit with the number `after`.
        """
        self.of(policy)
        if after > self.slots.last_commit:
            raise behind(
                f"{policy} has received commit {after}, and the manager knows {self.slots.last_commit} of them"
            )
        return [entry for entry in self.slots.arrived(after) if policy not in entry.used]

    def snapshot(self, batches: Collection[int] | None = None) -> dict[str, Any]:
        """Return plain data for `restore`, with the slots of these batches only; None for all."""
        progress = self.progress
        return {
            "policies": list(self.policies),
            "order": self.order,
            "staleness": self.staleness,
            "max_attempts": self.max_attempts,
            "slots": self.slots.snapshot(batches),
            "versions": {policy: one.versions.snapshot() for policy, one in progress.items()},
            "progress": {
                "done": {policy: one.done for policy, one in progress.items()},
                "kept": {policy: one.kept for policy, one in progress.items()},
                "ages": {policy: sorted(one.ages.items()) for policy, one in progress.items()},
                "finished": sorted(policy for policy, one in progress.items() if one.finished),
                "opened": {policy: list(one.trainers) for policy, one in progress.items()},
            },
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the ledger with this snapshot."""
        names = ("order", "staleness", "max_attempts")
        ledger = cls(state["policies"], **{name: state[name] for name in names})
        ledger._keep_slots(Entries.restore(state["slots"]))
        there = state["progress"]
        for policy, one in ledger.progress.items():
            one.versions = Versions.restore(state["versions"][policy])
            one.done, one.kept = there["done"][policy], there["kept"][policy]
            one.ages = Counter(dict(there["ages"][policy]))
            one.finished = policy in there["finished"]
            one.trainers = list(there["opened"][policy])
        return ledger
