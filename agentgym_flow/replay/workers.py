"""A pool of sandboxed processes that check the lines of a log. A process that a line has ended is replaced.

The processes are forked, so they have all imports and registrations of this process. They send plain JSON back. If a
line uses up its CPU time, a timer of the kernel ends the process, even in C code, and other lines go to a new process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from agentgym_flow.errors import BadLog
from agentgym_flow.replay.lines import Line, LinePlan, LineResult, given_up
from agentgym_flow.replay.worker import Worker

_BATCH_LINES = 32
_BATCH_BYTES = 1 << 18
_MOST_BYTES = 1 << 25  # bytes of lines that are read ahead
_AHEAD = 4  # batches per process that are in work or not yet yielded
_MOST_DEATHS = 2  # for a batch whose processes ended between two lines


@dataclass
class _Batch:
    number: int
    lines: list[Line]
    done: list[LineResult] = field(default_factory=list)
    deaths: int = 0

    def note(self, found: list[LineResult]) -> None:
        numbers = {checked.number for checked in found}
        self.done += found
        self.lines = [line for line in self.lines if line[0] not in numbers]


class CheckerPool:
    """Checks lines in separate processes, and yields the results in the order of the lines.

    Args:
        plan: the settings for checking lines.
        jobs: the largest number of processes.
        scratch: the only folder in which the processes may write.

    Attributes:
        walls: the layers of the sandbox, after the first message of a process.
    """

    def __init__(self, plan: LinePlan, jobs: int, scratch: Path) -> None:
        self._plan, self._jobs, self._scratch = plan, jobs, scratch
        self._idle: list[Worker] = []
        self._busy: dict[Worker, _Batch] = {}
        self._todo: deque[_Batch] = deque()
        self._finished: dict[int, _Batch] = {}
        self.walls: tuple[str, ...] = ()

    def check(self, lines: Iterator[tuple[int, bytes | BadLog]]) -> Iterator[LineResult]:
        """Yield the result for each line. The processes end with the iteration."""
        batches = _batches(lines)
        told = taken = 0
        more = True
        try:
            while more or told < taken:
                while more and taken - told < _AHEAD * self._jobs and len(self._todo) < self._jobs and self._has_room():
                    batch = next(batches, None)
                    more = batch is not None
                    if batch is not None:
                        taken += 1
                        self._todo.append(batch) if batch.lines else self._finished.update({batch.number: batch})
                while self._todo and len(self._busy) < self._jobs:
                    self._give(self._todo.popleft())
                if told not in self._finished and self._busy:
                    self._take()
                while told in self._finished:
                    yield from sorted(self._finished.pop(told).done, key=lambda checked: checked.number)
                    told += 1
        finally:
            for worker in (*self._idle, *self._busy):
                worker.end()

    def _has_room(self) -> bool:
        held = (len(raw) for batch in (*self._todo, *self._busy.values()) for _, raw in batch.lines)
        return sum(held) < _MOST_BYTES

    def _give(self, batch: _Batch) -> None:
        worker = self._idle.pop() if self._idle else Worker(self._plan, self._scratch)
        self._busy[worker] = batch
        worker.give(batch.lines)

    def _take(self) -> None:
        """Wait until a process sends a message or its deadline passes, and update its batch."""
        patience = max(0.0, min(worker.give_up_at for worker in self._busy) - time.monotonic())
        ready = wait([worker.connection for worker in self._busy], timeout=patience)
        for worker, batch in list(self._busy.items()):
            if worker.connection in ready:
                found, state = worker.take()
                batch.note(found)
                self.walls = worker.walls or self.walls
            elif time.monotonic() > worker.give_up_at:
                state = "stuck"
            else:
                continue
            if state == "busy":
                continue
            del self._busy[worker]
            if state == "idle":
                self._idle.append(worker)
            elif state == "retired":
                worker.end()
            else:
                self._blame(batch, worker)
            if batch.lines:
                self._todo.appendleft(batch)
            else:
                self._finished[batch.number] = batch

    def _blame(self, batch: _Batch, worker: Worker) -> None:
        """Give up the line at which a process has ended. Lines without a result are checked again."""
        why, number = worker.end(), worker.line
        batch.deaths += not number
        if not number and batch.deaths > _MOST_DEATHS:
            number = batch.lines[0][0]
        if number:
            batch.note([given_up(number, self._plan, why)])


def _batches(lines: Iterator[tuple[int, bytes | BadLog]]) -> Iterator[_Batch]:
    """Yield lines in batches. An unreadable line is a batch of its own, which is already done."""
    number, held, size = 0, list[Line](), 0
    for line, raw in lines:
        if held and (isinstance(raw, BadLog) or len(held) == _BATCH_LINES or size + len(raw) > _BATCH_BYTES):
            yield _Batch(number, held)
            number, held, size = number + 1, [], 0
        if isinstance(raw, BadLog):
            yield _Batch(number, [], [LineResult.unread(line, raw)])
            number += 1
        else:
            held.append((line, raw))
            size += len(raw)
    if held:
        yield _Batch(number, held)
