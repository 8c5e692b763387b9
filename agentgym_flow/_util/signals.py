"""Handle SIGTERM, which SLURM, Kubernetes and `kill` send, like Ctrl-C, so that finished work is kept as well.

`wait_passively` chooses how the threads of numerical libraries wait for each other: commands call it, importing the
package does not.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """This process received SIGTERM. Code that handles Ctrl-C handles this too."""


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status of a program ended by a signal: 143 for SIGTERM, 130 for Ctrl-C."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise `Terminated` in the main thread if SIGTERM arrives during the block.

    Does nothing in other threads, or if the program handles or ignores SIGTERM itself.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(*_: Any) -> None:
    raise Terminated


@contextmanager
def signals_go_to(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> Iterator[None]:
    """Replace the Python handlers of Ctrl-C and SIGTERM during the block; `signal.SIG_IGN` ignores both.

    Signals that are ignored already, such as Ctrl-C in a background process, stay ignored. Does nothing outside the
    main thread.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    before = {number: found for number in numbers if callable(found := signal.getsignal(number))}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)


PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Environment variables that let waiting threads sleep: of OpenMP, and of its GNU and LLVM/Intel libraries."""


def wait_passively() -> None:
    """Let threads sleep while they wait, in this process and its children, unless one of `PASSIVE` is already set.

    By default they spin, which takes the cores from other programs and from the threads that are waited for. The
    libraries read the variables when they are loaded, so call this before torch is imported.
    """
    if not any(name in os.environ for name in PASSIVE):
        os.environ.update(PASSIVE)
