"""The keeper's loop: fork once per request, so that the caller, which may have threads, is never forked."""

from __future__ import annotations

import gc
import os
import signal
import socket

from agentgym_flow.sandbox.keeper import launch, trial
from agentgym_flow.sandbox.keeper.order import RUN

_MOST_DESCRIPTORS = 8


def main(descriptor: int) -> None:
    """Serve requests from socket `descriptor`, until the other side closes it."""
    # On Ctrl-C in its terminal the caller closes the socket, which ends everything here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    os.umask(0o022)
    gc.freeze()  # keep the present objects shared with every fork
    with socket.socket(fileno=descriptor) as requests:
        while True:
            kind, descriptors, _, _ = socket.recv_fds(requests, len(RUN), _MOST_DESCRIPTORS)
            if not kind:
                return
            try:
                if os.fork() == 0:
                    _serve(kind, requests, descriptors)
            except OSError:
                pass  # no process can be started; the caller's socket closes without an answer
            for each in descriptors:
                os.close(each)


def _serve(kind: bytes, requests: socket.socket, descriptors: list[int]) -> None:
    """Serve one request in a forked process. Never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        if kind == RUN:
            launch.outer(descriptors[0], descriptors[1:])
        else:
            trial.answer(descriptors[0])
    finally:
        os._exit(0)
