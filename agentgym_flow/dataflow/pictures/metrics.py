"""Figures of a dataflow, from counts and times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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


def advice(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return how many workers would be right for a dataflow, with the numbers that this is computed from.

    Args:
        figures: as `agentgym_flow.dataflow.bookkeeping.manager.Manager.status` returns them.

    Returns `target_workers`, the largest of those for each policy; `workers`, how many were heard of within a lease
    and are not put aside; and, of the policy that needs the most, `wait` (a share of the time), `consumed` and
    `entered` (episodes) over `seconds`. Empty if there is no policy. Without workers the target is 1.
    """
    there = [one for one in figures["workers"].values() if "put_aside" not in one]
    workers = sum(one["silent"] <= figures["settings"]["lease_seconds"] for one in there)
    found: dict[str, float] = {}
    for pace in figures["pace"].values():
        wait = wait_share(pace["waited"], pace["seconds"] - pace["waited"])
        target = target_workers(workers, wait, pace["used"], pace["entered"]) if workers else 1
        if target > found.get("target_workers", 0):
            counts = {"consumed": pace["used"], "entered": pace["entered"], "seconds": pace["seconds"]}
            found = {"target_workers": target, "workers": workers, "wait": wait, **counts}
    return found


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
