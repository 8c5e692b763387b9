"""What the server tells of itself at `/health`: how many requests, how long they took."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

LAST = 2048
"""Times are of so many last answers."""


class Metrics:
    """Counts requests by their status, and keeps the times of the last answered ones."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._seconds: deque[float] = deque(maxlen=LAST)

    def count(self, status: int, seconds: float) -> None:
        """Note a request to `/retrieve`, its status and how long it took; only the times of answers are kept."""
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
    """Return in milliseconds the smallest of the sorted `times` (seconds) that `share` of them do not exceed."""
    return round(1000 * times[max(0, math.ceil(share * len(times)) - 1)], 3) if times else None
