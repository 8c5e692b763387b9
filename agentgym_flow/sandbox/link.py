"""The connection to the keeper process, which starts on first use and ends with this process."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from agentgym_flow.errors import SandboxFailed

# The keeper imports only its own modules of this package; the others would import NumPy and Gymnasium.
_BOOT = """
import sys, types
folder, descriptor = sys.argv[1], int(sys.argv[2])
for name, path in (("agentgym_flow", folder), ("agentgym_flow.sandbox", folder + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from agentgym_flow.sandbox.keeper.loop import main
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
