"""The statistics that the server reports at `/health`: numbers of requests and response times."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

LAST = 2048
"""Response times are computed over this number of recent answers."""


class Metrics:
    """Counts requests by status, and stores the times of recent answers."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._seconds: deque[float] = deque(maxlen=LAST)

    def count(self, status: int, seconds: float) -> None:
        """Record a request to `/retrieve`. Times are recorded only for status 200."""
        self._statuses[status] += 1
        if status == 200:
            self._seconds.append(seconds)

    def summary(self) -> dict[str, Any]:
        """Return `requests`, `statuses` and, in milliseconds, `p50_ms` and `p99_ms` (None before the first answer)."""
        times = sorted(self._seconds)
        return {
            "requests": self._statuses.total(),
            "statuses": {str(status): count for status, count in sorted(self._statuses.items())},
            "p50_ms": percentile(times, 0.50),
            "p99_ms": percentile(times, 0.99),
        }


def percentile(times: list[float], share: float) -> float | None:
    """Return a percentile of the sorted `times` (in seconds) in milliseconds; None if there are none."""
    return round(1000 * times[max(0, math.ceil(share * len(times)) - 1)], 3) if times else None
