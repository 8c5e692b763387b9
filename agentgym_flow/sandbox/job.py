"""One program under way: what it writes is collected, what its guard reports becomes a verdict."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from agentgym_flow.errors import SandboxFailed
from agentgym_flow.sandbox.keeper import wire
from agentgym_flow.sandbox.keeper.order import RUN, Order
from agentgym_flow.sandbox.link import Link
from agentgym_flow.sandbox.verdict import Level, ProgramVerdict, Status

_CHUNK = 1 << 16
_PATIENCE_S = 30.0  # beyond a program's own time, before the sandbox counts as broken
_STOPPED: dict[str, Status] = {"cpu": "timeout", "wall": "timeout", "caller": "killed"}


class _Stream:
    """What comes out of one pipe, up to a limit."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self.limit = limit
        self.data = bytearray()
        self.overflowed = False

    def read(self) -> bool:
        """Take what is there; return whether more can come."""
        part = os.read(self.descriptor, _CHUNK)
        self.data += part[: self.limit - len(self.data) + 1]
        if len(self.data) > self.limit:
            self.overflowed = True
            del self.data[self.limit :]
        return bool(part)


class Job:
    """A program that was handed to the keeper. `see_through` waits for it, `close` belongs at the end in any case.

    Args:
        link: the keeper.
        order: what to run.
        output_bytes: the limit for each of stdout and stderr.
        level: what the verdict says.
        descriptors: descriptors 3, 4, ... of the program. They are handed over, and stay the caller's to close.

    Raises:
        SandboxFailed: the keeper could not take it.
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
            wire.send(self._control.fileno(), order.to_json())
        except (OSError, SandboxFailed) as error:
            self.close()
            raise SandboxFailed(f"The program could not be handed to the sandbox: {error}") from None

    @property
    def ended(self) -> bool:
        """Whether the program has ended and all it wrote has been read."""
        return not self._open

    def cancel(self) -> None:
        """Have the program ended."""
        with suppress(OSError):  # it has just ended by itself
            self._control.shutdown(socket.SHUT_WR)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have `selector` watch what is still open; its keys carry this job and a name for `take`."""
        for name in self._open:
            selector.register(self._files[name], selectors.EVENT_READ, (self, name))

    def take(self, name: str) -> bool:
        """Read what is there under `name`; return whether more can come."""
        if name == "control":
            message = wire.receive(self._control.fileno())
            if message is not None:
                self._result = message
                self._give_up_at = min(self._give_up_at, time.monotonic() + _PATIENCE_S)
                return True  # it closes when the last process of the sandbox has ended
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
        """Raise `SandboxFailed` when the program should have ended long ago."""
        if time.monotonic() > self._give_up_at:
            raise SandboxFailed("A sandbox does not answer, long after its program's time was over; it was given up.")

    def verdict(self) -> ProgramVerdict:
        """Return how the program ended. Raises `SandboxFailed` when it was never started, or it is unknown."""
        assert self.ended, "the program has not ended"
        if self._result is None:
            raise SandboxFailed(
                "A sandbox was killed from outside, perhaps for want of memory, and its program with it."
            )
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
        """Have the program ended, if it still runs, and free what the job holds."""
        self._control.close()
        for stream in self._streams.values():
            if stream.descriptor >= 0:
                os.close(stream.descriptor)
                stream.descriptor = -1
        self._open.clear()


def see_through(jobs: Sequence[Job], grace_s: float = 3.0) -> None:
    """Wait until all `jobs` have ended; once one has, the others get `grace_s` seconds more.

    Raises `SandboxFailed` when one does not end.
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
                cancel_at = time.monotonic() + grace_s
            if cancel_at is not None and time.monotonic() > cancel_at:
                for job in jobs:
                    job.cancel()
