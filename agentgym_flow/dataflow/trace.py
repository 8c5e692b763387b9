"""The trace of a run: an append-only file of JSON lines, one per event.

Every line has `at` (a time in seconds) and `what`; `slots` are lists [batch, group, sample, attempt]:

    open     stream, policy, batch                      a trainer begins, or resumes from a checkpoint
    publish  policy, update, version, step, bytes       a trainer has new weights, and waits for batch `update`
    admit    stream, slots                              a trainer has planned further slots (their number)
    lease    worker, stream, slots                      a worker begins to play
    fetch    [worker,] policy, version, bytes, seconds    a worker begins to receive weights, which takes `seconds`
    commit   worker, stream, slots, verdicts            a worker has committed episodes
    ended    stream, why, slots                         leases ended, or episodes were rejected
    ack      stream, policy, batch, trained, dropped, staleness     a trainer has its batch, and trains on it
    keep     stream, policy, batch                      a checkpoint from before `batch` is on disk
    states   stream, states                             the number of slots in each state
    train    policy, batch                              only simulated: the device was busy, training begins now
    done     policy                                     only simulated: a trainer has finished its updates
    killed   worker                                     only simulated: a worker dies

`TracedFlow` writes traces for any manager, and `simulate` in virtual time. The module `timeline` draws them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import named_in_errors
from agentgym_flow.dataflow.bookkeeping.journal import needing_space
from agentgym_flow.dataflow.network.client import RemoteFlow
from agentgym_flow.dataflow.records import Attempt, Claim, Flow, LeaseKey
from agentgym_flow.errors import BadData

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
        self._updates: dict[tuple[str, Attempt], int] = {}  # the update that played an episode not used yet, by policy
        self._looked = -every

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        began = self._writer.now()
        answer = getattr(self._flow, name)(**arguments)
        with needing_space():
            if "claim" in arguments or name == "open":
                self._note_of_trainer(name, answer, **arguments)
            else:
                self._note_of_worker(name, answer, began, **arguments)
            if name in ("lease", "commit", "ack"):
                self._look()
        return answer

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= self._every:
            self._looked = now
            for name, stream in self._flow.status()["streams"].items():
                self._writer.write("states", stream=name, states=stream["states"])

    def _note_of_worker(self, name: str, answer: Any, began: float, **given: Any) -> None:
        if name == "lease":
            held = [lease.held for lease in answer]
            for stream, slots in _by_stream(held).items():
                self._writer.write("lease", worker=given["worker"], stream=stream, slots=slots)
        elif name == "commit":
            held = [commit.held for commit in given["commits"]]
            for stream, slots in _by_stream(held).items():
                verdicts = [verdict.value for one, verdict in zip(held, answer, strict=True) if one.stream == stream]
                self._writer.write("commit", worker=given["worker"], stream=stream, slots=slots, verdicts=verdicts)
        elif name == "renew":
            self._ended("expired", *answer)
        elif name == "fail":
            self._ended("failed", given["held"])
        elif name == "give_back":
            self._ended("given back", *given["held"])
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
            self._updates |= {(policy, one.played): one.updates[policy] for one in answer if policy in one.updates}
        elif name == "reject":
            self._ended("refused", LeaseKey(stream, *given["attempt"]))
        elif name == "keep":
            self._writer.write(name, stream=stream, policy=policy, batch=given["batch"])
        elif name == "ack" and not answer:
            batch, trained, dropped = given["batch"], given["trained"], given["dropped"]
            updates = [self._updates.pop((policy, attempt), None) for attempt in trained]
            for attempt in dropped:
                self._updates.pop((policy, attempt), None)
            ages = Counter(batch - update for update in updates if update is not None)
            counts = {"trained": len(trained), "dropped": len(dropped)}
            staleness = {str(age): ages[age] for age in sorted(ages)}
            self._writer.write(name, stream=stream, policy=policy, batch=batch, **counts, staleness=staleness)

    def _ended(self, why: str, *held: LeaseKey) -> None:
        for one in held:
            self._writer.write("ended", stream=one.stream, why=why, slots=[[*one.slot, one.attempt]])


def _by_stream(held: Sequence[LeaseKey]) -> dict[str, list[list[int]]]:
    """Return the slots of leases by stream, as in events."""
    slots: dict[str, list[list[int]]] = {}
    for one in held:
        slots.setdefault(one.stream, []).append([*one.slot, one.attempt])
    return slots
