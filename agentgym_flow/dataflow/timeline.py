"""Convert the events of a trace to spans (who did what from when to when), Chrome's trace format, and pictures."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median_low
from typing import Any, NamedTuple

from agentgym_flow._util.files import write_atomically
from agentgym_flow.dataflow.bookkeeping.callers import wait_share
from agentgym_flow.dataflow.trace import Event
from agentgym_flow.report.charts import bars_svg, lanes_svg, layers_svg, timeline_page

PLAY, LOST, TRAIN, WAIT, QUEUE, FETCH = "play", "lost", "train", "wait for episodes", "wait for the device", "fetch"
KINDS = {PLAY: "k0", LOST: "k1", TRAIN: "k2", WAIT: "k3", QUEUE: "k4", FETCH: "k5"}
"""Activities with their colours: play an episode that counts, or one that does not; train; wait for a batch, or for a
device that another policy trains on; receive weights."""

STATES = {"used": "k2", "committed": "k0", "leased": "k4", "queued": "k3"}


class TimelineSpan(NamedTuple):
    """An activity of an actor; times are seconds since the first event."""

    who: str
    what: str
    start: float
    end: float
    args: dict[str, Any]


def spans_of(events: Sequence[Event]) -> list[TimelineSpan]:
    """Return the spans by their start. Unfinished ones end with the last event."""
    found = _Spans(events[0]["at"])
    for event in events:
        found.take(event)
    return found.close(events[-1]["at"])


class _Spans:
    """Collects spans from events in order of time."""

    def __init__(self, zero: float) -> None:
        self._zero = zero
        self._done: list[TimelineSpan] = []
        self._playing: dict[tuple[Any, ...], tuple[int, str, float]] = {}  # stream and slot: attempt, worker, since
        self._trainers: dict[str, tuple[str, float, int]] = {}  # what, since when, and for which batch

    def take(self, event: Event) -> None:
        what, at = event["what"], event["at"] - self._zero
        if what == "lease":
            for *slot, attempt in event["slots"]:
                key = (event["stream"], *slot)
                self._end(key, at, LOST, "expired")  # a new lease means that the last one has ended
                self._playing[key] = (attempt, event["worker"], at)
        elif what == "commit":
            for (*slot, attempt), verdict in zip(event["slots"], event["verdicts"], strict=True):
                self._end((event["stream"], *slot), at, PLAY if verdict == "accepted" else LOST, verdict, attempt)
        elif what == "ended":
            for *slot, attempt in event["slots"]:
                self._end((event["stream"], *slot), at, LOST, event["why"], attempt)
        elif what == "killed":
            for key in [key for key, play in self._playing.items() if play[1] == event["worker"]]:
                self._end(key, at, LOST, "killed")
        elif what == "fetch":
            args = {name: event[name] for name in ("policy", "version", "bytes")}
            self._done.append(TimelineSpan(event.get("worker") or "weights", FETCH, at, at + event["seconds"], args))
        elif what == "done":
            self._trainer_ends(event["policy"], at, what)
        elif what in ("open", "publish", "ack", "train"):
            self._trainer(event, at)

    def _end(self, key: tuple[Any, ...], at: float, what: str, verdict: str, attempt: int | None = None) -> None:
        """End an episode, if it is still under way and is this attempt."""
        if key not in self._playing or attempt not in (None, self._playing[key][0]):
            return
        number, worker, since = self._playing.pop(key)
        names = ("stream", "batch", "group", "sample", "attempt", "end")
        self._done.append(TimelineSpan(worker, what, since, at, dict(zip(names, (*key, number, verdict), strict=True))))

    def _trainer(self, event: Event, at: float) -> None:
        policy, what = event["policy"], event["what"]
        self._trainer_ends(policy, at, what)
        batch = event["update"] if what == "publish" else event["batch"]
        self._trainers[policy] = (TRAIN if what in ("ack", "train") else WAIT, at, batch)

    def _trainer_ends(self, policy: str, at: float, why: str) -> None:
        if policy in self._trainers:
            what, since, batch = self._trainers.pop(policy)
            what = QUEUE if why == "train" else what
            if at > since:
                self._done.append(TimelineSpan(f"trainer of {policy}", what, since, at, {"batch": batch}))

    def close(self, at: float) -> list[TimelineSpan]:
        """End all spans, and return them."""
        for policy in list(self._trainers):
            self._trainer_ends(policy, at - self._zero, "")
        for key in list(self._playing):
            self._end(key, at - self._zero, PLAY, "not ended")
        return sorted(self._done, key=lambda span: (span.start, span.end, span.who))


def lanes(spans: Sequence[TimelineSpan]) -> dict[str, list[list[TimelineSpan]]]:
    """Return for each actor its spans in rows: as few as possible, without overlaps in a row.

    Trainers come first, then weights and relays, then workers, each by name.
    """
    found: dict[str, list[list[TimelineSpan]]] = {}
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        rows = found.setdefault(span.who, [])
        row = next((row for row in rows if row[-1].end <= span.start), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return dict(sorted(found.items(), key=lambda item: _rank(item[0])))


def _rank(who: str) -> tuple[Any, ...]:
    kind = 0 if who.startswith("trainer of ") else 1 if who == "weights" or who.startswith("relay of ") else 2
    # Sort worker 2 before worker 10.
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", who)]


def chrome_trace(spans: Sequence[TimelineSpan]) -> dict[str, Any]:
    """Return the spans as JSON-able data in Chrome's trace event format, which Perfetto reads too.

    Each actor is a process, and each of its rows a thread; times are microseconds.
    """
    events: list[dict[str, Any]] = []
    for process, (who, rows) in enumerate(lanes(spans).items(), 1):
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": who}})
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
        )
        for thread, row in enumerate(rows, 1):
            for span in row:
                begin, end = round(span.start * 1e6), round(span.end * 1e6)
                place = {"pid": process, "tid": thread, "ts": begin, "dur": end - begin}
                events.append({"ph": "X", "name": span.what, "cat": "dataflow", **place, "args": span.args})
    return {"displayTimeUnit": "ms", "traceEvents": events}


def staleness_of(events: Iterable[Event]) -> dict[int, int]:
    """Return a histogram of how many updates older the weights were that played the trained episodes."""
    found: Counter[int] = Counter()
    for event in events:
        if event["what"] == "ack":
            found.update({int(age): count for age, count in event["staleness"].items()})
    return dict(sorted(found.items()))


def states_of(events: Sequence[Event]) -> list[tuple[float, dict[str, int]]]:
    """Return times with the number of slots in each state, summed over streams."""
    now: dict[str, dict[str, int]] = {}
    found = []
    for event in events:
        if event["what"] == "states":
            now[event["stream"]] = event["states"]
            total = {state: sum(states.get(state, 0) for states in now.values()) for state in STATES}
            found.append((event["at"] - events[0]["at"], total))
    return found


def staleness_summary(counts: Mapping[int, int]) -> dict[str, float]:
    """Return `mean`, `median` and `max` of a staleness histogram (staleness -> number); nothing if it is empty."""
    ages = sorted(Counter(counts).elements())
    return {"mean": fmean(ages), "median": median_low(ages), "max": ages[-1]} if ages else {}


def write_pictures(folder: str | os.PathLike[str], events: Sequence[Event], title: str = "Dataflow") -> list[Path]:
    """Write `trace.json`, three pictures and a page with all of them to a folder; return their paths.

    Raises `OSError` if they cannot be written.
    """
    spans = spans_of(events)
    rows = [
        (who, [(span.what, span.start, span.end) for span in row])
        for who, rows_of in lanes(spans).items()
        for row in rows_of
    ]
    staleness = staleness_of(events)
    pictures = {
        "Who did what": lanes_svg(rows, KINDS, "Who did what"),
        "Staleness": bars_svg(
            [(str(age), count) for age, count in staleness.items()],
            "Staleness of trained episodes",
            "updates between the weights that played an episode and those that it trained",
        ),
        "Slots": layers_svg(states_of(events), STATES, "Slots by state"),
    }
    files = dict(zip(("trace.svg", "staleness.svg", "states.svg"), pictures.values(), strict=True))
    files["trace.json"] = json.dumps(chrome_trace(spans), separators=(",", ":"))
    files["trace.html"] = timeline_page(title, _summary(events, spans, staleness), pictures)
    written = []
    for name, text in files.items():
        path = Path(folder) / name
        with write_atomically(path) as partial:
            partial.write_text(text, "utf-8", newline="\n")
        written.append(path)
    return written


def _summary(events: Sequence[Event], spans: Sequence[TimelineSpan], staleness: dict[int, int]) -> dict[str, str]:
    """Return figures for the top of the page."""
    summary = staleness_summary(staleness)
    batches = sum(event["what"] == "ack" for event in events)
    waited, trained = (sum(span.end - span.start for span in spans if span.what == what) for what in (WAIT, TRAIN))
    return {
        "time": f"{events[-1]['at'] - events[0]['at']:,.1f} s",
        "episodes": f"{sum(span.what == PLAY for span in spans):,}",
        "played in vain": f"{sum(span.what == LOST for span in spans):,}",
        "trained": f"{sum(staleness.values()):,} episodes in {batches:,} batches",
        "staleness": f"mean {summary['mean']:.2f}, at most {summary['max']:.0f}" if summary else "nothing is trained",
        "trainers waited": f"{wait_share(waited, trained):.1%} of their time",
    }
