"""What moves between trainers, the manager and workers: plain data that has a JSON form.

A *stream* is an endless sequence of batches of episodes in one environment. One or more policies act in it, each of
them with a trainer of its own. The weights that a policy has after training on batches 0 to u - 1 are its *update* u,
so update 0 is what it begins with. Each time weights are published they get a new *version*: a trainer that goes on
from a checkpoint publishes an update again, under a larger version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

SlotId = tuple[int, int, int]
"""Batch, group and sample of a slot."""


class Slot(NamedTuple):
    """One episode that is to be played.

    Attributes:
        batch: the batch that it is planned for.
        group: its group in the batch.
        sample: its attempt at the task, see `Start.attempt`.
        task: the index of the task.
        seed: the seed of the reset, and of the policy's random draws.
    """

    batch: int
    group: int
    sample: int
    task: int
    seed: int

    @property
    def id(self) -> SlotId:
        """What names the slot in its stream."""
        return self.batch, self.group, self.sample


class Lease(NamedTuple):
    """The right to play a slot, for a while.

    Attributes:
        stream: the stream of the slot.
        slot: the slot.
        attempt: 1 for the first lease of the slot, one more for each further lease. Only the last one may commit.
        weights: for each policy, the version of the weights to play with.
        digests: for each policy, the SHA-256 of these weights, see `weights.updates.digest`.
        stage: the digest of what the stream is played with, see `stage_digest`.
        seconds: how long the lease is valid, unless it is renewed.
    """

    stream: str
    slot: Slot
    attempt: int
    weights: dict[str, int]
    digests: dict[str, str]
    stage: str
    seconds: float


class Attempt(NamedTuple):
    """An episode as a trainer names it: a slot may be played several times, and the episodes differ.

    Attributes:
        slot: the slot.
        number: of the lease under which it was played.
    """

    slot: SlotId
    number: int


class LeaseKey(NamedTuple):
    """A lease as its holder names it: stream, slot and attempt."""

    stream: str
    slot: SlotId
    attempt: int


class Commit(NamedTuple):
    """An episode that was played under a lease.

    Attributes:
        held: the lease.
        payload: the episode, see `agentgym_flow.dataflow.wire`.
        digests: for each policy, the SHA-256 of the weights that played it: those that the lease names.
    """

    held: LeaseKey
    payload: str
    digests: dict[str, str]


class CommitVerdict(StrEnum):
    """What became of a commit."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """It had been accepted before: the answer was lost."""
    LATE = "late"
    """The lease has ended, so the slot is, or will be, played by another worker."""
    OTHER_WEIGHTS = "other_weights"
    """It was played with other weights than the lease names, so it will be played again."""


class Arrival(NamedTuple):
    """A committed episode on its way to a trainer.

    Attributes:
        number: counts the commits of a stream; what has a larger number was committed later.
        slot: the slot.
        attempt: the lease under which it was played.
        steps: for each policy, the optimizer step of the weights that played it.
        updates: for each policy, the update of these weights.
        payload: the episode; empty if the slot is lost.
        reason: why it is lost.
    """

    number: int
    slot: Slot
    attempt: int
    steps: dict[str, int]
    updates: dict[str, int]
    payload: str
    reason: str = ""

    @property
    def played(self) -> Attempt:
        """What names the episode."""
        return Attempt(self.slot.id, self.attempt)


class Claim(NamedTuple):
    """The right to train a policy, until another trainer opens its stream; see `Flow.open`.

    Attributes:
        stream: the stream.
        policy: the policy.
        epoch: 1 for its first trainer, one more for each further one. Only the last one may call.
    """

    stream: str
    policy: str
    epoch: int


def stage_digest(setup: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what `Flow.describe` returns of a stream, as hex digits."""
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode("ascii")).hexdigest()


class Flow(Protocol):
    """The manager as workers and trainers call it, in the same process, on Ray or over HTTP.

    Every call can be repeated when its answer was lost. Calls that wait do so for at most `wait` seconds. What cannot
    be reached raises `FlowDown`; `UnknownName` and `BadSetting` are raised as in the manager itself. Calls with a claim
    raise `Superseded` if another trainer of the policy has begun since.
    """

    # ---------------------------------------------------------------- workers
    def describe(self) -> dict[str, Any]:
        """Return what a worker needs to set up: for each stream, its settings and files; see `setup`."""

    def lease(self, worker: str, count: int, wait: float = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play.

        Raises `RunsFinished` if no trainer needs more episodes, and `PutAside` if nothing came of the last ones that
        this worker has played.
        """

    def renew(self, worker: str, held: list[LeaseKey]) -> list[LeaseKey]:
        """Renew leases, and return those that have ended; their episodes need not be played on."""

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        """Hand in episodes; return what became of each."""

    def fail(self, worker: str, held: LeaseKey, reason: str) -> None:
        """Give a lease back because its episode cannot be played here; another worker will try."""

    def give_back(self, worker: str, held: list[LeaseKey]) -> None:
        """Give leases back because the worker leaves. That does not count as a failed attempt."""

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message of `dataflow.weights.updates`, relative to version `have` if possible.

        Raises `BadData` if they are not kept any more.
        """

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or go on from a checkpoint taken before `batch`; what was done after it is undone.

        Args:
            stream: the stream.
            policy: the policy to train.
            batch: the batch to go on with.
            setup: what workers need to know, and what all trainers of the stream agree on.
            trainer: names this trainer, and no other one: a process that goes on from a checkpoint has another name.

        Returns what the trainer names in all its calls. Earlier trainers of the policy cannot call any more.

        Raises:
            BadSetting: another stream of this name, or none of this batch, is there.
            Superseded: another trainer has opened the stream since this one did.
        """

    def publish(self, claim: Claim, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update, at an optimizer step of the trainer; return their version.

        The same weights again, for the newest version, have the same version. Raises `BadSetting` for other weights as
        an update that this trainer has published.
        """

    def admit(self, claim: Claim, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is there with another task or seed."""

    def arrivals(self, claim: Claim, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not trained on, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker was heard of for longer than the deadline, and `FlowDown` if it waits for the
        weights of another policy whose trainer was not.
        """

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Refuse a committed episode: it is not what its tokens come to. It will be played again."""

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Say that the policy makes its batch of the episodes `trained`, and does not want those in `dropped`.

        Returns those that are void, because the trainer of another policy has gone back to a checkpoint, or has refused
        them: if there are any, nothing is noted, and their slots will arrive again, played anew.
        """

    def keep(self, claim: Claim, batch: int) -> None:
        """Say that a checkpoint from before `batch` is on disk: what was acknowledged earlier can be forgotten."""

    def finish(self, claim: Claim) -> None:
        """Say that the trainer needs no more episodes; it may open the stream again all the same."""

    def beat(self, claim: Claim) -> None:
        """Say that the trainer is alive."""

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data."""
