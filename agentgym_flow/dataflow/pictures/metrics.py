"""Figures of a dataflow, from counts and times."""

from __future__ import annotations

import math
from collections.abc import Mapping

from agentgym_flow.core import check_positive

TOO_SLOW, TOO_FAST = 0.10, 0.05
"""Between these shares of waiting, the number of workers is right."""

_MARGIN = 1.1


def wait_share(waited: float, trained: float) -> float:
    """Return the share of a trainer's time in which it waited for episodes; 0 before it has done anything."""
    return waited / (waited + trained) if waited + trained > 0 else 0.0


def target_workers(workers: int, wait: float, consumed: float, entered: float) -> int:
    """Return how many workers would be right, by AstraFlow's rule with a dead band.

    If trainers wait too long, so many more that they would not wait. If they hardly wait, a tenth more than played what
    was used. Otherwise as many as there are.

    Args:
        workers: how many there are.
        wait: share of the time in which trainers wait, see `wait_share`.
        consumed: episodes that trainers have used in a while.
        entered: episodes that were committed in the same while.

    Raises `BadSetting` if there is no worker.
    """
    check_positive("workers", workers)
    if wait > TOO_SLOW:
        return math.ceil(workers / max(1 - wait, 1 / workers))  # a trainer that only waits: at most workers squared
    if wait < TOO_FAST and entered > 0:
        return max(1, min(workers, math.ceil(_MARGIN * workers * consumed / entered)))
    return workers


def staleness_summary(counts: Mapping[int, int]) -> dict[str, float]:
    """Return `mean`, `median` and `max` of a staleness histogram (staleness -> number); empty if nothing is in it."""
    total = sum(counts.values())
    if not total:
        return {}
    median, seen = 0, 0
    for age in sorted(counts):
        seen += counts[age]
        if 2 * seen >= total:
            median = age
            break
    mean = sum(age * count for age, count in counts.items()) / total
    return {"mean": mean, "median": median, "max": max(age for age, count in counts.items() if count)}
