"""A process that checks lines: the interface for the parent, and the code that the process runs."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from agentgym_flow.replay.lines import Line, LineChecker, LinePlan, LineResult
from agentgym_flow.sandbox.box import confine

if sys.platform != "win32":  # on Windows this module can only be imported
    import resource

_WALLS, _FOUND, _DONE, _RETIRED = b"W", b"L", b"D", b"R"
_TELL_AFTER_S = 0.05
_PATIENCE = 30  # a process hangs if it sends nothing for this multiple of a line's CPU time, plus a minute
_MOST_GROWTH_MB = 150  # a process whose memory has grown more is replaced, ...
_LEAST_LINES = 256  # ... after it has checked this number of lines
_MOST_FILE_MB = 512
_MB = 1 << 20
_RESIDENT, _DATA = 1, 5  # columns of /proc/self/statm


class Worker:
    """A process that checks lines.

    Args:
        plan: the settings for checking lines.
        scratch: the only folder in which the process may write.

    Attributes:
        connection: the connection; it is readable if the process has sent a message or ended.
        walls: the layers of its sandbox, after its first message.
        give_up_at: the deadline for its next message, on the clock `time.monotonic`.
    """

    def __init__(self, plan: LinePlan, scratch: Path) -> None:
        self._limits = plan.limits
        self._line = mmap.mmap(-1, 8)  # shared memory: the number of the present line, 0 for none
        self.connection, theirs = multiprocessing.Pipe()
        self.walls: tuple[str, ...] = ()
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
        """Return new results, and the state of the process: `"busy"`, `"idle"`, `"retired"` or `"ended"`."""
        self._wait_again()
        try:
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            return [], "ended"
        kind, rest = message[:1], message[1:]
        if kind == _WALLS:
            self.walls = tuple(rest.decode("ascii").split())
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
    walls = () if plan.fetch else confine(str(scratch))
    connection.send_bytes(_WALLS + " ".join(walls).encode("ascii"))
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
