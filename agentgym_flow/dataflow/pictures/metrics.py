"""Metrics of a dataflow, from counts and times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from statistics import fmean, median_low
from typing import Any

from agentgym_flow.core import check_positive

TOO_SLOW, TOO_FAST = 0.10, 0.05
"""The number of workers is right if trainers wait for a share of their time between these."""

_MARGIN = 1.1


def wait_share(waited: float, trained: float) -> float:
    """Return the share of a trainer's time in which it waited for episodes; 0 at the beginning."""
    return waited / (waited + trained) if waited + trained > 0 else 0.0


def target_workers(workers: int, wait: float, consumed: float, entered: float) -> int:
    """Return the right number of workers, by AstraFlow's rule with a dead band.

    If trainers wait too long, it is the number with which they would not wait. If they hardly wait, it is a tenth more
    than the number that plays what is used. Otherwise it is the present number.

    Args:
        workers: the present number.
        wait: the share of their time in which trainers wait, see `wait_share`.
        consumed: episodes that trainers have used in a period.
        entered: episodes that were committed in the same period.

    Raises `BadSetting` if there is no worker.
    """
    check_positive("workers", workers)
    if wait > TOO_SLOW:
        return math.ceil(workers / max(1 - wait, 1 / workers))  # at most workers squared, if trainers only wait
    if wait < TOO_FAST and entered > 0:
        return max(1, min(workers, math.ceil(_MARGIN * workers * consumed / entered)))
    return workers


def advice(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the right number of workers for a dataflow, with the numbers that it is computed from.

    Args:
        figures: as `agentgym_flow.dataflow.bookkeeping.manager.Manager.status` returns them.

    Returns `target_workers`, the largest of those for each policy; `workers`, how many have called within the time of a
    lease and are not excluded; and, for the policy that needs the most, `wait` (a share of the time), `consumed` and
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
    """Return `mean`, `median` and `max` of a staleness histogram (staleness -> number); nothing if it is empty."""
    ages = sorted(Counter(counts).elements())
    return {"mean": fmean(ages), "median": median_low(ages), "max": ages[-1]} if ages else {}
