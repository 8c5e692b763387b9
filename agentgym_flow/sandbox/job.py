"""The keeper process, which starts on first use and ends with this process, and the programs that it runs."""

from __future__ import annotations

import atexit
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym_flow.errors import SandboxFailed
from agentgym_flow.sandbox.keeper import RUN, Order, wire
from agentgym_flow.sandbox.verdict import Level, ProgramVerdict, Status

# The keeper imports only its own modules of this package; the others would import NumPy and Gymnasium.
_BOOT = """
import sys, types
folder, descriptor = sys.argv[1], int(sys.argv[2])
for name, path in (("agentgym_flow", folder), ("agentgym_flow.sandbox", folder + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from agentgym_flow.sandbox.keeper.launch import main
main(descriptor)
"""
_PACKAGE = Path(__file__).resolve().parents[1]
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def interpreter() -> str:
    """Return the file of the interpreter itself, not of a virtual environment or a script that starts it."""
    try:
        running = os.readlink("/proc/self/exe")
    except OSError:
        running = ""
    # If another program embeds Python, only Python's own settings can name an interpreter.
    if os.path.basename(running).startswith("python"):
        return running
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


class Link:
    """A connection to a keeper. Thread-safe; a forked process starts a keeper of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        _links.add(self)

    def request(self, kind: bytes, descriptors: Sequence[int]) -> None:
        """Send a request of a `kind` with `descriptors`; the first one is a socket for the rest of the exchange.

        Raises `SandboxFailed` if no keeper can be started.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._end()  # it was killed, perhaps because memory ran out
            if self._requests is None:
                self._start()
            try:
                self._send(kind, descriptors)
            except OSError:  # it was killed just now
                self._end()
                self._start()
                self._send(kind, descriptors)

    def start(self) -> None:
        """Start the keeper now, for a process that will not be allowed to later. Raises `SandboxFailed`."""
        with self._lock:
            if self._requests is None:
                self._start()

    def close(self) -> None:
        """End the keeper, but not the programs that it has started; the next request starts another."""
        with self._lock:
            self._end()

    def _send(self, kind: bytes, descriptors: Sequence[int]) -> None:
        assert self._requests is not None
        socket.send_fds(self._requests, [kind], list(descriptors))

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [interpreter(), "-I", "-S", "-B", "-c", _BOOT, str(_PACKAGE), str(theirs.fileno())]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd="/",
                    env={},
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise SandboxFailed(f"The sandbox's keeper could not be started: {error}.") from None
        self._requests = ours

    def _end(self) -> None:
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            self._process.wait()
        self._requests = self._process = None

    def _forget(self) -> None:
        """In a forked process: drop the parent's keeper without ending it."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            self._process.returncode = 0  # not a child of this process, so `Popen` must not wait for it
        self._requests = self._process = None


def _forget_all() -> None:
    for link in list(_links):
        link._forget()


def _close_all() -> None:
    for link in list(_links):
        link.close()


if hasattr(os, "register_at_fork"):  # not on Windows, where this module can be imported, but nothing is run
    os.register_at_fork(after_in_child=_forget_all)
atexit.register(_close_all)


_CHUNK = 1 << 16
_PATIENCE_S = 30.0  # after a program's time, until the sandbox counts as failed
_GRACE_S = 3.0  # for the other programs, once one has ended
_STOPPED: dict[str, Status] = {"cpu": "timeout", "wall": "timeout", "caller": "killed"}


class _Stream:
    """The output of one pipe, up to a limit."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self.limit = limit
        self.data = bytearray()
        self.overflowed = False

    def read(self) -> bool:
        """Read what has arrived; return whether more may follow."""
        part = os.read(self.descriptor, _CHUNK)
        self.data += part[: self.limit - len(self.data) + 1]
        if len(self.data) > self.limit:
            self.overflowed = True
            del self.data[self.limit :]
        return bool(part)


class Job:
    """A program that the keeper runs. Wait for it with `wait_for`, and `close` it in any case.

    Args:
        link: the keeper.
        order: what to run.
        output_bytes: the limit for each of stdout and stderr.
        level: the level in the verdict.
        descriptors: descriptors 3, 4, ... of the program. The caller must close its own copies.

    Raises:
        SandboxFailed: the keeper could not start it.
    """

    def __init__(
        self, link: Link, order: Order, output_bytes: int, level: Level, descriptors: Sequence[int] = ()
    ) -> None:
        self._level = level
        self._result: dict[str, Any] | None = None
        self._give_up_at = time.monotonic() + order.wall_seconds + _PATIENCE_S
        self._control, theirs = socket.socketpair()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self._streams = {"stdout": _Stream(out, output_bytes), "stderr": _Stream(err, output_bytes)}
        self._open: set[str] = {"control", *self._streams}
        self._files: dict[str, int] = {"control": self._control.fileno(), "stdout": out, "stderr": err}
        try:
            try:
                link.request(RUN, [theirs.fileno(), out_end, err_end, *descriptors])
            finally:
                theirs.close()
                os.close(out_end)
                os.close(err_end)
            wire.send(self._control.fileno(), asdict(order))
        except (OSError, SandboxFailed) as error:
            self.close()
            raise SandboxFailed(f"The program could not be handed to the sandbox: {error}") from None

    @property
    def ended(self) -> bool:
        """Whether the program has ended and all its output was read."""
        return not self._open

    def cancel(self) -> None:
        """Terminate the program."""
        with suppress(OSError):  # it has just ended
            self._control.shutdown(socket.SHUT_WR)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Let `selector` watch what is still open; the data of its keys are this job and a name for `take`."""
        for name in self._open:
            selector.register(self._files[name], selectors.EVENT_READ, (self, name))

    def take(self, name: str) -> bool:
        """Read what has arrived under `name`; return whether more may follow."""
        if name == "control":
            message = wire.receive(self._control.fileno())
            if message is not None:
                self._result = message
                self._give_up_at = min(self._give_up_at, time.monotonic() + _PATIENCE_S)
                return True  # the socket closes when the last process of the sandbox has ended
            self._open.discard(name)
            return False
        stream = self._streams[name]
        goes_on = stream.read()
        if stream.overflowed:
            self.cancel()
        if not goes_on:
            self._open.discard(name)
        return goes_on

    def check_patience(self) -> None:
        """Raise `SandboxFailed` if the program should have ended long ago."""
        if time.monotonic() > self._give_up_at:
            raise SandboxFailed("A sandbox did not answer, long after the time limit of its program.")

    def verdict(self) -> ProgramVerdict:
        """Return how the program ended. Raises `SandboxFailed` if it was never started, or that is unknown."""
        assert self.ended, "the program has not ended"
        if self._result is None:
            raise SandboxFailed("A sandbox and its program were killed from outside, perhaps for lack of memory.")
        if "failure" in self._result:
            raise SandboxFailed(f"The sandbox could not be built, and nothing was run: {self._result['failure']}.")
        stdout, stderr = (bytes(stream.data).decode("utf-8", "replace") for stream in self._streams.values())
        code = self._result["code"]
        status = self._status(code, stderr)
        return ProgramVerdict(
            status=status,
            exit_code=code if status in ("ok", "error", "memory") else None,
            stdout=stdout,
            stderr=stderr.replace(f"{self._result['folder']}/", ""),
            cpu_seconds=round(self._result["cpu_seconds"], 3),
            level=self._level,
        )

    def _status(self, code: int, stderr: str) -> Status:
        assert self._result is not None
        if any(stream.overflowed for stream in self._streams.values()):
            return "output"
        if self._result["stopped"] is not None:
            return _STOPPED[self._result["stopped"]]
        if code < 0:
            return "killed"
        last_line = stderr.rstrip().rpartition("\n")[2]
        if code and last_line.partition(":")[0] == "MemoryError":
            return "memory"
        return "error" if code else "ok"

    def close(self) -> None:
        """Terminate the program, if it still runs, and free the job's resources."""
        self._control.close()
        for stream in self._streams.values():
            if stream.descriptor >= 0:
                os.close(stream.descriptor)
                stream.descriptor = -1
        self._open.clear()


def wait_for(jobs: Sequence[Job]) -> None:
    """Wait until all `jobs` have ended; `_GRACE_S` seconds after the first one, the others are terminated.

    Raises `SandboxFailed` if one does not end.
    """
    cancel_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for job in jobs:
            job.register(selector)
        while not all(job.ended for job in jobs):
            for key, _ in selector.select(timeout=0.1 if cancel_at is not None else 1.0):
                job, name = key.data
                if not job.take(name):
                    selector.unregister(key.fd)
            for job in jobs:
                if not job.ended:
                    job.check_patience()
            if cancel_at is None and any(job.ended for job in jobs):
                cancel_at = time.monotonic() + _GRACE_S
            if cancel_at is not None and time.monotonic() > cancel_at:
                for job in jobs:
                    job.cancel()
