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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import named_in_errors
from agentgym_flow.dataflow.bookkeeping.journal import needing_space
from agentgym_flow.dataflow.network.remote import RemoteFlow
from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Commit, CommitVerdict, Flow, Lease, LeaseKey, Slot
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
            self._file.write(b"\n" if _is_torn(self.path) else b"")

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


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"


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
        note = getattr(self, f"_note_{name}", None)
        with needing_space():
            if note is not None:
                note(answer, began, **arguments)
            if name in ("lease", "commit", "ack"):
                self._look()
        return answer

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= self._every:
            self._looked = now
            for name, stream in self._flow.status()["streams"].items():
                self._writer.write("states", stream=name, states=stream["states"])

    # ---------------------------------------------------------------- workers
    def _note_lease(self, leases: list[Lease], began: float, worker: str, **_: Any) -> None:
        for stream in dict.fromkeys(lease.stream for lease in leases):
            slots = [[*one.slot.id, one.attempt] for one in leases if one.stream == stream]
            self._writer.write("lease", worker=worker, stream=stream, slots=slots)

    def _note_renew(self, ended: list[LeaseKey], began: float, **_: Any) -> None:
        for one in ended:
            self._ended(one, "expired")

    def _note_commit(self, verdicts: list[CommitVerdict], began: float, worker: str, commits: list[Commit]) -> None:
        both = list(zip([commit.held for commit in commits], verdicts, strict=True))
        for stream in dict.fromkeys(held.stream for held, _ in both):
            slots = [[*held.slot, held.attempt] for held, _ in both if held.stream == stream]
            said = [verdict.value for held, verdict in both if held.stream == stream]
            self._writer.write("commit", worker=worker, stream=stream, slots=slots, verdicts=said)

    def _note_fail(self, answer: None, began: float, worker: str, held: LeaseKey, reason: str) -> None:
        self._ended(held, "failed")

    def _note_give_back(self, answer: None, began: float, worker: str, held: list[LeaseKey]) -> None:
        for one in held:
            self._ended(one, "given back")

    def _note_fetch(self, message: bytes, began: float, policy: str, version: int, have: int | None) -> None:
        size, seconds = len(message), round(self._writer.now() - began, 4)
        self._writer.write("fetch", began, policy=policy, version=version, bytes=size, seconds=seconds)

    # ---------------------------------------------------------------- trainers
    def _note_open(self, answer: Any, began: float, stream: str, policy: str, batch: int, **_: Any) -> None:
        self._writer.write("open", stream=stream, policy=policy, batch=batch)

    def _note_publish(self, version: int, began: float, claim: Claim, update: int, step: int, message: bytes) -> None:
        fields: dict[str, Any] = {"policy": claim.policy, "update": update, "version": version, "step": step}
        self._writer.write("publish", **fields, bytes=len(message))

    def _note_admit(self, answer: None, began: float, claim: Claim, slots: list[Slot]) -> None:
        self._writer.write("admit", stream=claim.stream, slots=len(slots))

    def _note_arrivals(self, arrivals: list[Arrival], began: float, claim: Claim, **_: Any) -> None:
        for arrival in arrivals:
            if claim.policy in arrival.updates:
                self._updates[claim.policy, arrival.played] = arrival.updates[claim.policy]

    def _note_reject(self, answer: None, began: float, claim: Claim, attempt: Attempt, reason: str) -> None:
        self._ended(LeaseKey(claim.stream, attempt.slot, attempt.number), "refused")

    def _note_ack(
        self,
        void: list[Attempt],
        began: float,
        claim: Claim,
        batch: int,
        trained: list[Attempt],
        dropped: list[Attempt],
    ) -> None:
        if void:
            return
        updates = [self._updates.pop((claim.policy, attempt), None) for attempt in trained]
        for attempt in dropped:
            self._updates.pop((claim.policy, attempt), None)
        ages = Counter(batch - update for update in updates if update is not None)
        fields: dict[str, Any] = {"trained": len(trained), "dropped": len(dropped)}
        fields["staleness"] = {str(age): ages[age] for age in sorted(ages)}
        self._writer.write("ack", stream=claim.stream, policy=claim.policy, batch=batch, **fields)

    def _note_keep(self, answer: None, began: float, claim: Claim, batch: int) -> None:
        self._writer.write("keep", stream=claim.stream, policy=claim.policy, batch=batch)

    def _ended(self, held: LeaseKey, why: str) -> None:
        self._writer.write("ended", stream=held.stream, why=why, slots=[[*held.slot, held.attempt]])
