"""How much of their time trainers wait for episodes, and how many come and go meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

BATCHES = 8
"""Figures are over so many of a policy's last batches."""


class _Mark(NamedTuple):
    """A moment, and what had happened until then."""

    time: float
    waited: float
    used: int
    entered: int


class Pace:
    """Counts, for each policy, over its last `BATCHES` batches until now.

    Args:
        clock: the seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waited: defaultdict[str, float] = defaultdict(float)  # seconds, by policy
        self._used: Counter[str] = Counter()  # by policy
        self._entered: Counter[str] = Counter()  # by stream
        self._stream: dict[str, str] = {}
        self._marks: dict[str, deque[_Mark]] = {}

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Count for the policies of a stream from now on."""
        for policy in policies:
            self._stream[policy] = stream
            self._marks[policy] = deque([self._now(policy)], BATCHES + 1)

    def enter(self, stream: str) -> None:
        """Note that an episode was committed."""
        self._entered[stream] += 1

    def wait(self, policy: str, seconds: float) -> None:
        """Note that a trainer has waited for episodes."""
        self._waited[policy] += seconds

    def use(self, policy: str, count: int) -> None:
        """Note that a trainer has used so many episodes for a batch, trained on them or left them out."""
        self._used[policy] += count
        self._marks[policy].append(self._now(policy))

    def of(self, policy: str) -> dict[str, float]:
        """Return over how many `seconds` a trainer has `waited` for how many of them and `used` how many episodes.

        Meanwhile so many `entered`: were committed in its stream.
        """
        then, now = self._marks[policy][0], self._now(policy)
        return {
            "seconds": now.time - then.time,
            "waited": now.waited - then.waited,
            "used": now.used - then.used,
            "entered": now.entered - then.entered,
        }

    def _now(self, policy: str) -> _Mark:
        entered = self._entered[self._stream[policy]]
        return _Mark(self._clock(), self._waited[policy], self._used[policy], entered)
