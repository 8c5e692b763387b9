"""A manager in another process, as a `Flow`: what is the same over HTTP and on Ray.

Every call can be repeated, so what gets no answer is asked again, with growing pauses, until the deadline. A manager
that is started again on its journal is all that a caller sees: one call that took longer.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Commit, CommitVerdict, Lease, LeaseKey, Slot
from agentgym_flow.errors import FlowDown

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts: about twice as many each time, and never quite the same for two callers."""


class Again(Exception):
    """An attempt brought no answer that counts; the text says what came."""


class RemoteFlow(ABC):
    """Implements `agentgym_flow.dataflow.records.Flow` by attempts at a call, which a subclass makes.

    Args:
        place: names the manager in errors.
        deadline: for so many seconds a call is tried again.

    Attributes:
        deadline: as given; may be changed, which calls under way follow.
    """

    def __init__(self, place: str, *, deadline: float = 600.0) -> None:
        self.place, self.deadline = place, deadline
        self._closed = threading.Event()
        self._random = random.Random()  # independent of all other random draws

    def close(self) -> None:
        """Let calls that are between two attempts raise `FlowDown`."""
        self._closed.set()

    @abstractmethod
    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a call. Raises `Again` if it is to be tried again."""

    def _call(self, name: str, **arguments: Any) -> Any:
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                return self._attempt(name, arguments)
            except Again as error:
                left = began + self.deadline - time.monotonic()
                if left <= 0 or self._closed.wait(min(left, pause * (0.5 + self._random.random()))):
                    raise FlowDown(self._down(str(error))) from None
                pause = min(2 * pause, LONGEST_PAUSE)

    def _down(self, what: str) -> str:
        if self._closed.is_set():
            return f"the connection to {self.place} was closed"
        return (
            f"{self.place} gave no answer for {self.deadline:g} seconds ({what}): start it again on its journal, or "
            "look whether this machine can reach it"
        )

    # ---------------------------------------------------------------- the calls
    def describe(self) -> dict[str, Any]:
        """Return the setup of each stream."""
        answer: dict[str, Any] = self._call("describe")
        return answer

    def lease(self, worker: str, count: int, wait: float = 0.0) -> list[Lease]:
        """Return up to `count` leases; none if there is nothing to play."""
        answer: list[Lease] = self._call("lease", worker=worker, count=count, wait=wait)
        return answer

    def renew(self, worker: str, held: list[LeaseKey]) -> list[LeaseKey]:
        """Renew leases, and return those that have ended."""
        answer: list[LeaseKey] = self._call("renew", worker=worker, held=held)
        return answer

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        """Hand in episodes; return what became of each."""
        answer: list[CommitVerdict] = self._call("commit", worker=worker, commits=commits)
        return answer

    def fail(self, worker: str, held: LeaseKey, reason: str) -> None:
        """Give a lease back."""
        self._call("fail", worker=worker, held=held, reason=reason)

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        """Return weights as a message. Raises `BadData` if they are not kept any more."""
        answer: bytes = self._call("fetch", policy=policy, version=version, have=have)
        return answer

    def give_back(self, worker: str, held: list[LeaseKey]) -> None:
        """Give leases back because the worker leaves."""
        self._call("give_back", worker=worker, held=held)

    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or go on from before `batch`; return what names this trainer in all its calls."""
        answer: Claim = self._call("open", stream=stream, policy=policy, batch=batch, setup=setup, trainer=trainer)
        return answer

    def publish(self, claim: Claim, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update; return their version."""
        answer: int = self._call("publish", claim=claim, update=update, step=step, message=message)
        return answer

    def admit(self, claim: Claim, slots: list[Slot]) -> None:
        """Plan slots."""
        self._call("admit", claim=claim, slots=slots)

    def arrivals(self, claim: Claim, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not trained on, committed after the one with the number `after`."""
        answer: list[Arrival] = self._call("arrivals", claim=claim, after=after, wait=wait)
        return answer

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Refuse a committed episode; it will be played again."""
        self._call("reject", claim=claim, attempt=attempt, reason=reason)

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Say that the policy makes its batch of the episodes `trained`; return those that are void."""
        answer: list[Attempt] = self._call("ack", claim=claim, batch=batch, trained=trained, dropped=dropped)
        return answer

    def keep(self, claim: Claim, batch: int) -> None:
        """Say that a checkpoint from before `batch` is on disk."""
        self._call("keep", claim=claim, batch=batch)

    def finish(self, claim: Claim) -> None:
        """Say that the trainer needs no more episodes."""
        self._call("finish", claim=claim)

    def beat(self, claim: Claim) -> None:
        """Say that the trainer is alive."""
        self._call("beat", claim=claim)

    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data."""
        answer: dict[str, Any] = self._call("status")
        return answer
