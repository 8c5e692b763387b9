"""How long trainers wait for episodes, and how many episodes are committed and used meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable

BATCHES = 8
"""The number of a policy's last batches that the figures cover."""


class Pace:
    """Figures of each policy over its last `BATCHES` batches until now.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waited: defaultdict[str, float] = defaultdict(float)  # seconds, by policy
        self._used: Counter[str] = Counter()  # by policy
        self._entered: Counter[str] = Counter()  # by stream
        self._stream: dict[str, str] = {}
        self._totals: dict[str, deque[dict[str, float]]] = {}  # at the last batches

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Count for the policies of a stream from now on."""
        for policy in policies:
            self._stream[policy] = stream
            self._totals[policy] = deque([self._now(policy)], BATCHES + 1)

    def enter(self, stream: str) -> None:
        """Note that an episode was committed."""
        self._entered[stream] += 1

    def wait(self, policy: str, seconds: float) -> None:
        """Note that a trainer has waited for episodes."""
        self._waited[policy] += seconds

    def use(self, policy: str, count: int) -> None:
        """Note that a trainer has used `count` episodes for a batch: trained on them or dropped them."""
        self._used[policy] += count
        self._totals[policy].append(self._now(policy))

    def of(self, policy: str) -> dict[str, float]:
        """Return the `seconds` covered, those that the trainer has `waited`, and numbers of episodes.

        These are the episodes that the trainer has `used`, and those that `entered`: were committed in its stream.
        """
        then, now = self._totals[policy][0], self._now(policy)
        return {name: now[name] - then[name] for name in now}

    def _now(self, policy: str) -> dict[str, float]:
        return {
            "seconds": self._clock(),
            "waited": self._waited[policy],
            "used": self._used[policy],
            "entered": self._entered[self._stream[policy]],
        }
