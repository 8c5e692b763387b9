"""The keeper's loop: fork once per request, so that the caller's process is never forked with all its threads."""

from __future__ import annotations

import gc
import os
import signal
import socket

from agentgym_flow.sandbox.keeper import launch, trial
from agentgym_flow.sandbox.keeper.order import RUN

_MOST_DESCRIPTORS = 8


def main(descriptor: int) -> None:
    """Serve requests that come over socket `descriptor`, until the other side closes it."""
    # Ctrl-C in the caller's terminal is for the caller to act on: it hangs up, and that ends everything here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended sandboxes leave nothing behind
    os.umask(0o022)
    gc.freeze()  # what is here by now is shared with every fork
    with socket.socket(fileno=descriptor) as requests:
        while True:
            kind, descriptors, _, _ = socket.recv_fds(requests, len(RUN), _MOST_DESCRIPTORS)
            if not kind:
                return
            try:
                if os.fork() == 0:
                    _serve(kind, requests, descriptors)
            except OSError:
                pass  # no process can be started now; the caller sees its socket close without an answer
            for each in descriptors:
                os.close(each)


def _serve(kind: bytes, requests: socket.socket, descriptors: list[int]) -> None:
    """Do what was asked, in a process of its own. Never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        if kind == RUN:
            launch.outer(descriptors[0], descriptors[1:])
        else:
            trial.answer(descriptors[0])
    finally:
        os._exit(0)
