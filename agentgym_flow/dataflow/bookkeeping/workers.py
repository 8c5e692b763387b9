"""Statistics of each worker's episodes, and which workers get no more slots because their episodes fail.

A slot is lost after several failed attempts, and a machine that cannot play any episode fails quickly. So a worker does
not get a slot that it has just failed while others can play it, and a worker that fails `MOST_FAILED` slots without a
success gets no more slots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from math import inf
from typing import Any

from agentgym_flow.dataflow.records import SlotId
from agentgym_flow.errors import BadSetting, PutAside, shown

MOST_FAILED = 20
"""Different slots that a worker fails in a row until it is excluded: more than it usually plays at a time, so that one
outage of something that all its episodes use is not enough."""

MOST_NAME = 200
"""The most characters of a worker's name."""

Place = tuple[str, SlotId]
"""A slot with its stream."""


class WorkerRegistry:
    """The workers of a manager since its process began.

    Args:
        patience: seconds for which a worker does not get a slot again that it has failed.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        self._patience, self._clock = patience, clock
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._heard: dict[str, float] = {}
        self._failed: defaultdict[str, dict[Place, float]] = defaultdict(
            dict
        )  # time of failure, since the last success
        self._refused: defaultdict[str, set[Place]] = defaultdict(set)  # since an episode was last trained on
        self._aside: dict[str, str] = {}  # the reason

    # ---------------------------------------------------------------- events
    def hear(self, worker: str) -> None:
        """Note that a worker has called. Raises `BadSetting` if its name is too long to be kept."""
        if len(worker) > MOST_NAME:
            raise BadSetting(f"the name of a worker has at most {MOST_NAME} characters, got {shown(worker)}")
        self._heard[worker] = self._clock()

    def count(self, worker: str, verdict: str) -> None:
        """Note the verdict on an episode that a worker has committed."""
        self._counts[worker][verdict] += 1

    def succeed(self, worker: str) -> None:
        """Note that a worker has played an episode."""
        self._failed.pop(worker, None)

    def help(self, worker: str) -> None:
        """Note that an episode of a worker is trained on."""
        self._refused.pop(worker, None)

    def fail(self, worker: str, stream: str, slot: SlotId, reason: str) -> None:
        """Note that a worker failed to play a slot."""
        self._counts[worker]["failed"] += 1
        self._failed[worker][stream, slot] = self._clock()
        self._put_aside(worker, len(self._failed[worker]), "failed", reason)

    def refuse(self, worker: str, stream: str, slot: SlotId, reason: str) -> None:
        """Note that an episode of a worker was rejected."""
        self._counts[worker]["rejected"] += 1
        self._failed[worker][stream, slot] = self._clock()
        self._refused[worker].add((stream, slot))
        self._put_aside(worker, len(self._refused[worker]), "were refused", reason)

    def _put_aside(self, worker: str, count: int, how: str, reason: str) -> None:
        if count >= MOST_FAILED:
            self._aside[worker] = f"its last {count} episodes {how}, the last one because: {reason}"

    # ---------------------------------------------------------------- queries
    def check(self, worker: str) -> None:
        """Raise `PutAside` if a worker gets no more slots."""
        if worker in self._aside:
            raise PutAside(f"worker {worker} was excluded: {self._aside[worker]:.500}; fix this and start it again")

    def avoid(self, worker: str) -> set[Place]:
        """Return the slots that a worker does not get now, because it has failed them and other workers can try."""
        since = self._clock() - self._patience
        if worker not in self._failed or not self._others(worker, since):
            return set()
        return {place for place, when in self._failed[worker].items() if when > since}

    def _others(self, worker: str, since: float) -> bool:
        there = (one for one, heard in self._heard.items() if heard >= since)
        return any(one != worker and one not in self._aside for one in there)

    def last_heard(self) -> float:
        """Return the time of the last call of a worker that is not excluded; minus infinity if there was none."""
        return max((heard for name, heard in self._heard.items() if name not in self._aside), default=-inf)

    def last_words(self) -> str:
        """Return how many workers were excluded, and the reason for the last one; empty if none was."""
        if not self._aside:
            return ""
        return f"{len(self._aside)} excluded; the last one because {[*self._aside.values()][-1]}"

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return for each worker the seconds since its last call (`silent`), and counts of its episodes by outcome."""
        now = self._clock()
        return {
            name: {"silent": now - heard, **self._counts[name], **self._reason(name)}
            for name, heard in self._heard.items()
        }

    def _reason(self, worker: str) -> dict[str, str]:
        return {"put_aside": self._aside[worker]} if worker in self._aside else {}
