"""The twin of a recorded run: a scenario for `simulate` whose times are those of the run's trace.

The twin answers what the run would have taken with another number of workers, order or staleness. Slots of the recorded
run take as long as they took there, and further ones as long as drawn ones of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from agentgym_flow.dataflow.records import SlotId
from agentgym_flow.dataflow.simulator.scenario import Region, Scenario
from agentgym_flow.dataflow.trace import LOST, PLAY, Event, TimelineSpan, lanes, spans_of
from agentgym_flow.errors import BadData

_SUPPLY = ("open", "publish", "admit", "ended")
"""Events after which workers may get leases that they did not get before."""

_AT_LEAST = 1e-6  # seconds of an episode or an update


def calibrated(events: Sequence[Event]) -> Scenario:
    """Return the scenario of a recorded run, in fixed order with the default staleness.

    Its one region, `recorded`, has the number of workers that the run had on average, each with as many places as a
    worker has used at most.

    Args:
        events: as `agentgym_flow.dataflow.trace.read_trace` returns them.

    Raises `BadData` if the trace has several streams, or not one whole update.
    """
    streams = {event["stream"] for event in events if event["what"] == "lease"}
    if len(streams) > 1:
        raise BadData(f"the trace has {len(streams)} streams, and a twin is made of one: record each run by itself")
    spans = spans_of(events)
    played = [span for span in spans if span.what == PLAY and span.args["end"] == "accepted"]
    training = _training(events)
    if not played or not training or not all(training.values()):
        raise BadData("the trace has no whole update: record at least two updates with `trace: true`")
    known, loads = _durations(events, played)
    attempts = [span for span in spans if span.what in (PLAY, LOST) and span.args["end"] != "not ended"]
    failed = sum(span.args["end"] not in ("accepted", "repeated", "expired", "given back") for span in attempts)
    medians = [median(seconds) for seconds in training.values()]
    factors = [[one / mid for one in seconds] for mid, seconds in zip(medians, training.values(), strict=True)]
    return Scenario(
        updates=1 + max(event["batch"] for event in events if event["what"] == "ack"),
        groups=1 + max(group for _, group, _ in known),
        size=1 + max(sample for _, _, sample in known),
        median=median(known.values()),
        train_seconds=tuple(medians),
        train_factors=tuple(fmean(of_batch) for of_batch in zip(*factors, strict=False)),
        regions=(_region(attempts),),
        durations=tuple(known.values()),
        known=known,
        gap=_gap(events),
        load_seconds=fmean(loads) if loads else 0.0,
        failures=failed / len(attempts),
        ends=True,
    )


def duration(events: Sequence[Event]) -> float:
    """Return the seconds from the first lease to the end of training, as `calibrated` and `simulate` count them."""
    began = next(event["at"] for event in events if event["what"] == "lease")
    return float(max(event["at"] for event in events if event["what"] in ("ack", "publish", "done")) - began)


def told(scenario: Scenario) -> str:
    """Return a sentence about a calibrated scenario."""
    (region,) = scenario.regions
    updates = ", ".join(f"{seconds:.2f}" for seconds in scenario.train_seconds)
    return (
        f"{len(scenario.known):,} episodes of {scenario.median:.2f} s (median; mean {fmean(scenario.durations):.2f}), "
        f"batches of {scenario.groups} x {scenario.size}, {updates} s for an update, {region.workers} workers with "
        f"{region.slots} places, {scenario.gap:.3f} s between episodes, {scenario.load_seconds:.2f} s to load weights, "
        f"{scenario.failures:.1%} of attempts failed"
    )


def _durations(events: Sequence[Event], played: Sequence[TimelineSpan]) -> tuple[dict[SlotId, float], list[float]]:
    """Return the seconds of each accepted episode, without those in which its worker loaded weights, and these.

    Loading lasts from a worker's first lease with weights until it has them.
    """
    zero = events[0]["at"]
    there = {(e["worker"], e["policy"], e["version"]): e["at"] - zero for e in events if e["what"] == "load"}
    weights: dict[tuple[int, ...], Mapping[str, int]] = {}
    for event in events:
        if event["what"] == "lease":
            weights |= zip(map(tuple, event["slots"]), event.get("weights", [{}] * len(event["slots"])), strict=True)
    found: dict[SlotId, float] = {}
    first: dict[tuple[str, str, int], float] = {}  # leases that waited
    for span in played:
        slot = span.args["batch"], span.args["group"], span.args["sample"]
        needed = weights[*slot, span.args["attempt"]].items()
        loaded = max((there.get((span.who, *one), 0.0) for one in needed), default=0.0)
        for one in needed:
            if span.start < there.get((span.who, *one), 0.0):
                first[span.who, *one] = min(span.start, first.get((span.who, *one), span.start))
        found[slot] = max(_AT_LEAST, span.end - max(span.start, min(loaded, span.end)))
    return found, [there[one] - start for one, start in first.items()]


def _training(events: Sequence[Event]) -> dict[str, list[float]]:
    """Return for each policy the seconds from a batch's last episode, or its request, to the next request."""
    found: dict[str, list[float]] = {}
    since: dict[str, float] = {}  # the request
    begun: dict[str, float] = {}
    commits: list[tuple[float, int]] = []
    for event in events:
        what, at = event["what"], event["at"]
        if what == "commit":
            commits += [(at, slot[0]) for slot in event["slots"]]
        elif what == "ack" and event["trained"]:
            complete = event.get("complete")
            if complete is None:  # recorded by an earlier version: this is right in fixed order
                complete = next((when for when, batch in reversed(commits) if batch <= event["batch"]), at)
            begun[event["policy"]] = max(complete, since.get(event["policy"], complete))
        elif what in ("publish", "done"):
            policy = event["policy"]
            seconds = found.setdefault(policy, [])
            if policy in begun:
                seconds.append(max(_AT_LEAST, at - begun.pop(policy)))
            since[policy] = at
    return found


def _region(attempts: Sequence[TimelineSpan]) -> Region:
    by_worker = lanes(attempts)
    there = [
        max(s.end for row in rows for s in row) - min(s.start for row in rows for s in row)
        for rows in by_worker.values()
    ]
    total = max(span.end for span in attempts) - min(span.start for span in attempts)
    return Region("recorded", max(1, round(sum(there) / total)), max(map(len, by_worker.values())))


def _gap(events: Sequence[Event]) -> float:
    """Return the mean seconds between an episode of a worker and the next lease, if there was something to lease."""
    supply = [event["at"] for event in events if event["what"] in _SUPPLY]
    free: defaultdict[str, deque[float]] = defaultdict(deque)
    gaps = []
    for event in events:
        if event["what"] == "commit":
            free[event["worker"]] += [event["at"]] * len(event["slots"])
        elif event["what"] == "lease":
            places = free[event["worker"]]
            for _ in range(min(len(places), len(event["slots"]))):
                ended = places.popleft()
                if bisect_right(supply, ended) == bisect_right(supply, event["at"]):
                    gaps.append(event["at"] - ended)
    return fmean(gaps) if gaps else 0.0
