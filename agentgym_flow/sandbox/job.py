"""A running program: collect its output, and turn the report of its guard into a verdict."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from agentgym_flow.errors import SandboxFailed
from agentgym_flow.sandbox.keeper import wire
from agentgym_flow.sandbox.keeper.order import RUN, Order
from agentgym_flow.sandbox.link import Link
from agentgym_flow.sandbox.verdict import Level, ProgramVerdict, Status

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
