"""The records that trainers, the manager and workers exchange: plain data with a JSON form.

A *stream* is an endless sequence of batches of episodes in one environment. One or more policies act in it, each with a
trainer of its own. The weights of a policy after training on batches 0 to u - 1 are its *update* u, so update 0 is the
initial weights. Weights get a new *version* each time they are published: a trainer that resumes from a checkpoint
publishes an update again, under a larger version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Protocol

from msgspec import Meta

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that SQLite can hold."""

SlotId = tuple[Integer, Integer, Integer]
"""Batch, group and sample of a slot."""

Seconds = Annotated[float, Meta(gt=-1e12, lt=1e12)]

PARTIAL = "partial_rollouts"
"""The key of a setup that says whether episodes go on with newer weights."""

LONGEST = 1 << 24
"""The most bytes of an episode that a worker may commit."""


class Slot(NamedTuple):
    """An episode to play.

    Attributes:
        batch: the batch that it is planned for.
        group: its group in the batch.
        sample: its attempt at the task, see `EpisodeSpec.attempt`.
        task: the index of the task.
        seed: the seed of the reset, and of the policy's random draws.
    """

    batch: Integer
    group: Integer
    sample: Integer
    task: Integer
    seed: Integer

    @property
    def id(self) -> SlotId:
        """The identity of the slot in its stream."""
        return self[:3]


class Lease(NamedTuple):
    """The right to play a slot, for a while.

    Attributes:
        stream: the stream of the slot.
        slot: the slot.
        attempt: 1 for the first lease of the slot, and one more for each further lease. Only the last one may commit.
        weights: for each policy, the version of the weights to play with.
        digests: for each policy, the SHA-256 of these weights, see `weights.digest`.
        stage: the digest of the stream's setup, see `stage_digest`.
        seconds: how long the lease is valid, unless it is renewed.
    """

    stream: str
    slot: Slot
    attempt: int
    weights: dict[str, int]
    digests: dict[str, str]
    stage: str
    seconds: Seconds

    @property
    def held(self) -> LeaseKey:
        """The identity of the lease."""
        return LeaseKey(self.stream, self.slot.id, self.attempt)


class Attempt(NamedTuple):
    """The identity of an episode: a slot may be played several times, with different episodes.

    Attributes:
        slot: the slot.
        number: of the lease under which it was played.
    """

    slot: SlotId
    number: int


class LeaseKey(NamedTuple):
    """The identity of a lease: stream, slot and attempt."""

    stream: str
    slot: SlotId
    attempt: int


class UsedWeights(NamedTuple):
    """Weights that sampled turns of an episode: the policy, the version, and the SHA-256."""

    policy: str
    version: int
    digest: str


class Commit(NamedTuple):
    """An episode that was played under a lease.

    Attributes:
        held: the lease.
        payload: the episode, see `agentgym_flow.dataflow.wire`, of at most `LONGEST` bytes.
        digests: for each policy, the SHA-256 of the weights of the lease.
        used: the weights of all turns, if the stream lets episodes go on with newer weights (`partial_rollouts`); empty
            if those of the lease played all turns.
    """

    held: LeaseKey
    payload: bytes
    digests: dict[str, str]
    used: tuple[UsedWeights, ...] = ()


class CommitVerdict(StrEnum):
    """The manager's verdict on a commit."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """It was accepted before, but the answer was lost."""
    LATE = "late"
    """The lease has ended, so the slot is, or will be, played by another worker."""
    OTHER_WEIGHTS = "other_weights"
    """It was played with other weights than those of the lease, so it will be played again."""
    TOO_LONG = "too_long"
    """It has more than `LONGEST` bytes, so it will be played again."""
    OVER_QUOTA = "over_quota"
    """The worker has committed too much that was not used yet, so another one will play it."""


class Exchanged(NamedTuple):
    """What a worker gets for its episodes: the verdict on each, and new leases."""

    verdicts: list[CommitVerdict]
    leases: list[Lease]


class Arrival(NamedTuple):
    """A committed episode on its way to a trainer.

    Attributes:
        number: of the commit, in the order of commits of the stream.
        slot: the slot.
        attempt: the lease under which it was played.
        steps: for each policy, the optimizer step of the weights that played it; of several ones, the oldest.
        updates: for each policy, the update of these weights.
        payload: the episode; empty if the slot is lost.
        reason: why it is lost.
        used: policy, version and optimizer step of the weights of all turns, if `Commit.used` named them.
    """

    number: int
    slot: Slot
    attempt: int
    steps: dict[str, int]
    updates: dict[str, int]
    payload: bytes
    reason: str = ""
    used: tuple[tuple[str, int, int], ...] = ()

    @property
    def played(self) -> Attempt:
        """The identity of the episode."""
        return Attempt(self.slot.id, self.attempt)


class Claim(NamedTuple):
    """The right to train a policy, until another trainer opens its stream; see `Flow.open`.

    Attributes:
        stream: the stream.
        policy: the policy.
        epoch: 1 for its first trainer, and one more for each further one. Only the last one may call.
    """

    stream: str
    policy: str
    epoch: int


def stage_digest(setup: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a stream's setup, as `Flow.describe` returns it, in hex digits."""
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode("ascii")).hexdigest()


class Flow(Protocol):
    """The calls of a manager, in the same process, on Ray or over HTTP.

    Every call can be repeated if its answer was lost. Calls that wait do so for at most `wait` seconds. If the manager
    cannot be reached, calls raise `FlowDown`; `UnknownName` and `BadSetting` come from the manager itself. Calls with a
    claim raise `Superseded` if another trainer of the policy has taken over.
    """

    # ---------------------------------------------------------------- workers
    def describe(self) -> dict[str, Any]:
        """Return the setup of each stream: the settings and files that a worker needs; see `stage.stage_of`."""

    def lease(self, worker: str, count: int, wait: Seconds = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play.

        Raises `RunsFinished` if no trainer needs more episodes, and `PutAside` if this worker's last episodes all
        failed.
        """

    def renew(self, worker: str, held: list[LeaseKey]) -> list[LeaseKey]:
        """Renew leases, and return those that have ended; their episodes need not be played on."""

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        """Commit episodes; return the verdict on each."""

    def exchange(
        self, worker: str, commits: list[Commit], held: list[LeaseKey], count: int, wait: Seconds = 0.0
    ) -> Exchanged:
        """Commit episodes as `commit`, then return up to `count` leases as `lease`; one call instead of two.

        `held` has all other leases that the worker knows of. Those that the manager has given to it, and that are
        neither there nor committed now, are returned first: an earlier answer was lost. No two workers may have the
        same name. Raises as `lease`, also after it has committed the episodes.
        """

    def fail(self, worker: str, held: LeaseKey, reason: str) -> None:
        """Give a lease back because its episode cannot be played here; another worker will try."""

    def give_back(self, worker: str, held: list[LeaseKey]) -> None:
        """Give leases back because the worker leaves. That does not count as a failed attempt."""

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message of `dataflow.weights`, relative to version `have` if possible.

        Raises `BadData` if they were deleted.
        """

    def newest(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Return version and digest of the newest weights of the policies of each stream that has some of all.

        Partial rollouts go on with them.
        """

    def loaded(self, worker: str, policy: str, version: int, seconds: Seconds) -> None:
        """Tell the manager that a worker has loaded weights, which took `seconds`; its leases with them waited so far.

        Only figures depend on it.
        """

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or continue from a checkpoint taken before `batch`; what was done after it is undone.

        Args:
            stream: the stream.
            policy: the policy to train.
            batch: the batch to continue with.
            setup: what workers need, and what all trainers of the stream agree on.
            trainer: a unique name of this trainer; a process that resumes from a checkpoint has another name.

        Returns the claim for all further calls. Earlier trainers of the policy cannot call any more.

        Raises:
            BadSetting: the stream has another setup, or what the batch needs was deleted.
            BadData: batches before this one are not known to the manager, so its journal is damaged.
            Superseded: another trainer has opened the stream since this one did.
        """

    def publish(self, claim: Claim, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update, at an optimizer step of the trainer; return their version.

        Publishing the newest version again returns the same version. Raises `BadSetting` if this trainer has published
        the update with other weights.
        """

    def admit(self, claim: Claim, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is known with another task or seed."""

    def arrivals(self, claim: Claim, after: int, wait: Seconds = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not used, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker has called for longer than the deadline, and `FlowDown` if the next episodes
        need weights of another policy whose trainer has not.
        """

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Reject a committed episode that does not match its tokens. It will be played again."""

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Tell the manager that the policy trains on the episodes `trained` for its batch, and drops `dropped`.

        Returns those that are void, because the trainer of another policy has gone back to a checkpoint, or has
        rejected them. If there are any, nothing is noted, and their slots are played again.
        """

    def keep(self, claim: Claim, batch: int) -> None:
        """Tell the manager that a checkpoint from before `batch` is on disk, so it can delete what came earlier."""

    def finish(self, claim: Claim) -> None:
        """Tell the manager that the trainer needs no more episodes; it may still open the stream again."""

    def beat(self, claim: Claim) -> None:
        """Tell the manager that the trainer is alive."""

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data."""
