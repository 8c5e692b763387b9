"""Check the lines of a log in sandboxed processes. A process that a line has ended is replaced.

The processes are forked, so they have all imports and registrations of this process. They send results as plain JSON.
If a line uses up its CPU time, a timer of the kernel ends the process, even in C code, and other lines go to a new
process.
"""

from __future__ import annotations

import gc
import json
import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from agentgym_flow.errors import BadLog, SandboxUnavailable
from agentgym_flow.replay.lines import Line, LineChecker, LinePlan, LineResult
from agentgym_flow.sandbox.box import confine
from agentgym_flow.sandbox.verdict import LEVELS, Machine

if sys.platform != "win32":  # on Windows this module can only be imported
    import resource

_WALLS, _FOUND, _DONE, _RETIRED = b"W", b"L", b"D", b"R"
_TELL_AFTER_S = 0.05
_PATIENCE = 30  # a process hangs if it sends nothing for this multiple of a line's CPU time, plus a minute
_MOST_GROWTH_MB = 150  # a process whose memory has grown more is replaced, ...
_LEAST_LINES = 256  # ... after it has checked this number of lines
_MOST_FILE_MB = 512
_MB = 1 << 20
_BATCH_LINES = 32
_BATCH_BYTES = 1 << 18
_MOST_BYTES = 1 << 25  # bytes of lines that are read ahead
_AHEAD = 4  # batches per process that are in work or not yet yielded
_MOST_DEATHS = 2  # for a batch whose processes ended between two lines
_RESIDENT, _DATA = 1, 5  # columns of /proc/self/statm


class Worker:
    """A process that checks lines.

    Args:
        plan: the settings for checking lines.
        scratch: the only folder in which the process may write.

    Attributes:
        connection: the connection; it is readable if the process has sent a message or ended.
        machine: its sandbox, after its first message; until then, no wall stands.
        give_up_at: the deadline for its next message, on the clock `time.monotonic`.
    """

    def __init__(self, plan: LinePlan, scratch: Path) -> None:
        self._limits, self._requires = plan.limits, plan.require_sandbox
        self._line = mmap.mmap(-1, 8)  # shared memory: the number of the present line, 0 for none
        self.connection, theirs = multiprocessing.Pipe()
        self.machine = Machine("none", ())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking without the other threads is intended
            self._pid = os.fork()
        if self._pid == 0:
            try:
                _run(theirs, plan, scratch, self._line)
            finally:
                os._exit(1)
        theirs.close()
        self._wait_again()

    @property
    def line(self) -> int:
        """The number of the present line; 0 for none."""
        return int.from_bytes(self._line[:8], "little")

    def give(self, lines: list[Line]) -> None:
        """Send `lines` to the process."""
        self._wait_again()
        with suppress(OSError):  # the process has just ended, which `take` will notice
            self.connection.send(lines)

    def take(self) -> tuple[list[LineResult], str]:
        """Return new results, and the state of the process: `"busy"`, `"idle"`, `"retired"` or `"ended"`.

        Raises `SandboxUnavailable` if the plan requires a strong sandbox, and the process has none.
        """
        self._wait_again()
        try:
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            return [], "ended"
        kind, rest = message[:1], message[1:]
        if kind == _WALLS:
            self.machine = Machine(**json.loads(rest))
            if self._requires and self.machine.level != "strong":
                raise SandboxUnavailable(
                    f"The sandbox of verification is {self.machine.level} on this machine, and strong is required. "
                    f"Missing: {'; '.join(f'{wall}: {why}' for wall, why in self.machine.missing.items())}. Use a "
                    "newer kernel, or a container that allows Landlock and filters of system calls."
                )
            return [], "busy"
        found = [LineResult.from_json(line) for line in rest.splitlines()]
        return found, {_FOUND: "busy", _DONE: "idle", _RETIRED: "retired"}[kind]

    def end(self) -> str:
        """End the process, and return a phrase that says why it ended."""
        self.connection.close()
        stuck = time.monotonic() > self.give_up_at
        with suppress(ProcessLookupError):
            # A process that has already ended keeps its own exit status.
            if not os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if stuck:
            return "the process that checked it hung"
        if code == -signal.SIGPROF:
            return f"it takes more CPU time than max_cpu_seconds={self._limits.max_cpu_seconds:g}"
        if code < 0:
            return f"the process that checked it was ended by {signal.Signals(-code).name}, perhaps for lack of memory"
        return f"the process that checked it ended with status {code}"

    def _wait_again(self) -> None:
        self.give_up_at = time.monotonic() + _PATIENCE * self._limits.max_cpu_seconds + 60


def _run(connection: Connection, plan: LinePlan, scratch: Path, current: mmap.mmap) -> None:
    """Check lines until the parent closes the connection."""
    gc.freeze()  # keep the memory from before the fork shared with the parent
    _settle(plan, scratch)
    machine = Machine("none", ()) if plan.fetch else confine(str(scratch))
    connection.send_bytes(_WALLS + json.dumps(asdict(machine)).encode("ascii"))
    if plan.require_sandbox and machine.level != "strong":
        return
    at_start, lines = _memory_mb(_RESIDENT), 0
    with LineChecker(plan) as checker:
        while True:
            batch: list[Line] = connection.recv()
            lines += len(batch)
            _check_all(batch, checker, plan, current, lambda found: connection.send_bytes(_FOUND + found))
            full = lines >= _LEAST_LINES and _memory_mb(_RESIDENT) - at_start > _MOST_GROWTH_MB
            connection.send_bytes(_RETIRED if full else _DONE)


def _check_all(
    batch: list[Line], checker: LineChecker, plan: LinePlan, current: mmap.mmap, tell: Callable[[bytes], None]
) -> None:
    found: list[bytes] = []
    told = time.monotonic()
    for number, raw in batch:
        current[:8] = number.to_bytes(8, "little")
        signal.setitimer(signal.ITIMER_PROF, plan.limits.max_cpu_seconds)  # its signal ends the process
        found.append(checker.check(number, raw).to_json())
        signal.setitimer(signal.ITIMER_PROF, 0)
        if time.monotonic() - told > _TELL_AFTER_S:
            tell(b"\n".join(found))
            found, told = [], time.monotonic()
    if found:
        tell(b"\n".join(found))
    current[:8] = bytes(8)


def _settle(plan: LinePlan, scratch: Path) -> None:
    """Set the working directory, output, signals and limits of this process."""
    for number in (signal.SIGPROF, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.path[:] = [os.path.abspath(path) for path in sys.path]
    os.chdir(scratch)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: _MOST_FILE_MB * _MB,
        resource.RLIMIT_DATA: (_memory_mb(_DATA) + plan.limits.max_memory_mb) * _MB,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _memory_mb(column: int) -> int:
    """Return the size of this process in a column of `/proc/self/statm`."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[column]) * resource.getpagesize() // _MB


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
        sandbox: the weakest sandbox of a process, after its first message; None before.
    """

    def __init__(self, plan: LinePlan, jobs: int, scratch: Path) -> None:
        self._plan, self._jobs, self._scratch = plan, jobs, scratch
        self._idle: list[Worker] = []
        self._busy: dict[Worker, _Batch] = {}
        self._todo: deque[_Batch] = deque()
        self._finished: dict[int, _Batch] = {}
        self.sandbox: Machine | None = None

    def check(self, lines: Iterator[tuple[int, bytes | BadLog]]) -> Iterator[LineResult]:
        """Yield the result for each line. The processes end with the iteration. Raises as `Worker.take`."""
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
                if self.sandbox is None or LEVELS.index(worker.machine.level) < LEVELS.index(self.sandbox.level):
                    self.sandbox = worker.machine
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
            # The line counts as unreadable and is not parsed again, because parsing may have been the problem.
            batch.note([LineResult(number, f"{self._plan.name} line {number}: {why}", given_up=True)])


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
