"""The trace of a run: an append-only file of JSON lines, one per event.

Every line has `at` (a time in seconds) and `what`; `slots` are lists [batch, group, sample, attempt]:

    open     stream, policy, batch                      a trainer begins, or resumes from a checkpoint
    publish  policy, update, version, step, bytes       a trainer has new weights, and waits for batch `update`
    admit    stream, slots                              a trainer has planned further slots (their number)
    lease    worker, stream, slots, weights             a worker gets leases, each with versions of weights by policy
    fetch    [worker,] policy, version, bytes, seconds    weights begin to be sent, which takes `seconds`
    load     worker, policy, version, seconds           a worker has loaded weights, which took `seconds`
    commit   worker, stream, slots, verdicts, [versions]    a worker has committed episodes; in partial rollouts with
                                                        policy and version of all weights of each
    ended    stream, why, slots                         leases ended, or episodes were rejected
    ack      stream, policy, batch, trained, dropped, staleness, complete   a trainer has its batch, and trains on it;
                                                        its last episode has arrived at `complete`
    keep     stream, policy, batch                      a checkpoint from before `batch` is on disk
    states   stream, states                             the number of slots in each state
    idle     policy, totals                             seconds by program and cause, see `IdleTimes.totals`
    train    policy, batch                              only simulated: the device was busy, training begins now
    done     policy                                     a trainer has finished its updates
    killed   worker                                     only simulated: a worker dies

`TracedFlow` writes traces for any manager, and `simulate` in virtual time. `spans_of` reads who did what from when to
when; `chrome_trace` and `write_pictures` show it.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median_low
from typing import Any, NamedTuple

from agentgym_flow._util.files import named_in_errors, write_atomically
from agentgym_flow.dataflow.bookkeeping.callers import wait_share
from agentgym_flow.dataflow.bookkeeping.idle import added, idle, words
from agentgym_flow.dataflow.bookkeeping.journal import needing_space
from agentgym_flow.dataflow.network.client import RemoteFlow
from agentgym_flow.dataflow.records import Attempt, Claim, Flow, LeaseKey
from agentgym_flow.errors import BadData
from agentgym_flow.report.charts import bars_svg, lanes_svg, layers_svg, timeline_page

NAME = "trace.jsonl"
"""The name of the file in the folder of a run."""

Event = dict[str, Any]


class TraceWriter:
    """Appends events to a trace. Thread-safe; several processes may append to one file.

    Each event is one write of one line, so a process that is killed leaves at most the last line incomplete.

    Args:
        path: the file; existing contents stay.
        clock: returns the time of an event, in seconds.

    Raises `OSError` if the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = Path(path), clock
        self._lock = threading.Lock()
        with named_in_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
            with self.path.open("rb") as file:
                torn = file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
            self._file.write(b"\n" if torn else b"")

    def now(self) -> float:
        """Return the present time."""
        return self._clock()

    def write(self, what: str, at: float | None = None, **fields: Any) -> None:
        """Append an event; its time is now by default."""
        event = {"at": round(self._clock() if at is None else at, 4), "what": what, **fields}
        line = json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"
        with self._lock, named_in_errors(self.path):
            self._file.write(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_trace(path: str | os.PathLike[str]) -> list[Event]:
    """Return the events of a trace in order of time, without incomplete lines.

    Raises `OSError` if the file does not exist, and `BadData` if it has no event.
    """
    events = []
    with named_in_errors(Path(path)), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("at"), int | float) and "what" in event:
                events.append(event)
    if not events:
        raise BadData(f"{path} has no event of a dataflow")
    return sorted(events, key=lambda event: event["at"])


class TracedFlow(RemoteFlow):
    """A manager that writes a trace of its calls.

    Args:
        flow: the manager, or a client of it.
        writer: writes the events.
        every: the least seconds between two events with the states of all slots.
    """

    def __init__(self, flow: Flow, writer: TraceWriter, every: float = 1.0) -> None:
        super().__init__("the manager", deadline=0.0)  # its clients repeat calls
        self._flow, self._writer, self._every = flow, writer, every
        self.lock = getattr(flow, "lock", None)  # of a manager in this process
        # For each policy and episode not used yet, the update that played it, and when it has arrived.
        self._updates: dict[tuple[str, Attempt], tuple[int, float]] = {}
        self._looked = -every

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "exchange" and arguments["commits"]:  # the trace has them even if an error follows
            verdicts = self.commit(arguments["worker"], arguments["commits"])
            return self.exchange(**{**arguments, "commits": []})._replace(verdicts=verdicts)
        began = self._writer.now()
        answer = getattr(self._flow, name)(**arguments)
        with needing_space():
            if "claim" in arguments or name == "open":
                self._note_of_trainer(name, answer, **arguments)
            else:
                self._note_of_worker(name, answer, began, **arguments)
            if name in ("lease", "exchange", "commit", "ack"):
                self._look()
        return answer

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= self._every:
            self._looked, figures = now, self._flow.status()
            for name, stream in figures["streams"].items():
                self._writer.write("states", stream=name, states=stream["states"])
            for policy, totals in figures["totals"].items():
                times = {name: round(value, 3) for name, value in totals.items() if "/" in name and value}
                self._writer.write("idle", policy=policy, totals=times)

    def _note_of_worker(self, name: str, answer: Any, began: float, **given: Any) -> None:
        if name in ("lease", "exchange"):
            leases = answer if name == "lease" else answer.leases
            for stream, slots in _by_stream([lease.held for lease in leases]).items():
                weights = [lease.weights for lease in leases if lease.stream == stream]
                self._writer.write("lease", worker=given["worker"], stream=stream, slots=slots, weights=weights)
        elif name == "commit":
            held = [commit.held for commit in given["commits"]]
            for stream, slots in _by_stream(held).items():
                verdicts = [verdict.value for one, verdict in zip(held, answer, strict=True) if one.stream == stream]
                used = [[one[:2] for one in commit.used] for commit in given["commits"] if commit.held.stream == stream]
                more: dict[str, Any] = {"versions": used} if any(used) else {}
                more |= {"worker": given["worker"], "stream": stream, "slots": slots, "verdicts": verdicts}
                self._writer.write("commit", **more)
        elif name == "renew":
            self._ended("expired", *answer)
        elif name == "fail":
            self._ended("failed", given["held"])
        elif name == "give_back":
            self._ended("given back", *given["held"])
        elif name == "loaded":
            self._writer.write("load", **{**given, "seconds": round(given["seconds"], 4)})
        elif name == "fetch":
            seconds = round(self._writer.now() - began, 4)
            of = {"policy": given["policy"], "version": given["version"]}
            self._writer.write("fetch", began, **of, bytes=len(answer), seconds=seconds)

    def _note_of_trainer(self, name: str, answer: Any, claim: Claim | None = None, **given: Any) -> None:
        if claim is None:  # of `open`
            self._writer.write(name, **{key: given[key] for key in ("stream", "policy", "batch")})
            return
        stream, policy, _ = claim
        if name == "publish":
            of = {"policy": policy, "update": given["update"], "version": answer, "step": given["step"]}
            self._writer.write(name, **of, bytes=len(given["message"]))
        elif name == "admit":
            self._writer.write(name, stream=stream, slots=len(given["slots"]))
        elif name == "arrivals":
            now = round(self._writer.now(), 4)
            updates = {one.played: one.updates[policy] for one in answer if policy in one.updates}
            self._updates |= {(policy, played): (update, now) for played, update in updates.items()}
        elif name == "reject":
            self._ended("refused", LeaseKey(stream, *given["attempt"]))
        elif name == "finish":
            self._writer.write("done", policy=policy)
        elif name == "keep":
            self._writer.write(name, stream=stream, policy=policy, batch=given["batch"])
        elif name == "ack" and not answer:
            batch, trained, dropped = given["batch"], given["trained"], given["dropped"]
            found = [self._updates.pop((policy, attempt), None) for attempt in trained]
            for attempt in dropped:
                self._updates.pop((policy, attempt), None)
            ages = Counter(batch - one[0] for one in found if one is not None)
            complete = max((one[1] for one in found if one is not None), default=None)
            counts = {"trained": len(trained), "dropped": len(dropped)}
            staleness = {str(age): ages[age] for age in sorted(ages)}
            of = {"policy": policy, "batch": batch, **counts, "staleness": staleness, "complete": complete}
            self._writer.write(name, stream=stream, **of)

    def _ended(self, why: str, *held: LeaseKey) -> None:
        for one in held:
            self._writer.write("ended", stream=one.stream, why=why, slots=[[*one.slot, one.attempt]])


def _by_stream(held: Sequence[LeaseKey]) -> dict[str, list[list[int]]]:
    """Return the slots of leases by stream, as in events."""
    slots: dict[str, list[list[int]]] = {}
    for one in held:
        slots.setdefault(one.stream, []).append([*one.slot, one.attempt])
    return slots


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
            used = event.get("versions", [[]] * len(event["slots"]))
            for (*slot, attempt), verdict, versions in zip(event["slots"], event["verdicts"], used, strict=True):
                what = PLAY if verdict == "accepted" else LOST
                self._end((event["stream"], *slot), at, what, verdict, attempt, versions)
        elif what == "ended":
            for *slot, attempt in event["slots"]:
                self._end((event["stream"], *slot), at, LOST, event["why"], attempt)
        elif what == "killed":
            for key in [key for key, play in self._playing.items() if play[1] == event["worker"]]:
                self._end(key, at, LOST, "killed")
        elif what == "fetch":
            args = {name: event[name] for name in ("policy", "version", "bytes")}
            self._done.append(TimelineSpan(event.get("worker") or "weights", FETCH, at, at + event["seconds"], args))
        elif what == "load":
            args = {name: event[name] for name in ("policy", "version")}
            self._done.append(TimelineSpan(event["worker"], FETCH, max(0.0, at - event["seconds"]), at, args))
        elif what == "done":
            self._trainer_ends(event["policy"], at, what)
        elif what in ("open", "publish", "ack", "train"):
            self._trainer(event, at)

    def _end(
        self,
        key: tuple[Any, ...],
        at: float,
        what: str,
        verdict: str,
        attempt: int | None = None,
        versions: Sequence[Sequence[Any]] = (),
    ) -> None:
        """End an episode, if it is still under way and is this attempt."""
        if key not in self._playing or attempt not in (None, self._playing[key][0]):
            return
        number, worker, since = self._playing.pop(key)
        names = ("stream", "batch", "group", "sample", "attempt", "end")
        args = dict(zip(names, (*key, number, verdict), strict=True))
        args |= {"versions": ", ".join(f"{policy} {version}" for policy, version in versions)} if versions else {}
        self._done.append(TimelineSpan(worker, what, since, at, args))

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
    totals = added((event["policy"], event["totals"]) for event in events if event["what"] == "idle")
    waited, trained = (sum(span.end - span.start for span in spans if span.what == what) for what in (WAIT, TRAIN))
    return {
        "time": f"{events[-1]['at'] - events[0]['at']:,.1f} s",
        "episodes": f"{sum(span.what == PLAY for span in spans):,}",
        "played in vain": f"{sum(span.what == LOST for span in spans):,}",
        "trained": f"{sum(staleness.values()):,} episodes in {batches:,} batches",
        "staleness": f"mean {summary['mean']:.2f}, at most {summary['max']:.0f}" if summary else "nothing is trained",
        "trainers waited": f"{wait_share(waited, trained):.1%} of their time",
        **{name: words(found) for name, found in idle(totals).items()},
    }
