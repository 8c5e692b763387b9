"""SIGTERM as a second Ctrl-C: SLURM, Kubernetes and `kill` send it, and what Ctrl-C keeps is kept for them too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM asked this process to end. Code that handles Ctrl-C handles it as well."""


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status of a program that a signal ended: 143 after SIGTERM, 130 after Ctrl-C."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Within, SIGTERM raises `Terminated` in the main thread.

    Nothing changes in other threads, and where the program handles or ignores SIGTERM itself.
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
    """Within, `handler` gets Ctrl-C and SIGTERM instead of what handles them in Python; `signal.SIG_IGN` ignores them.

    What is ignored anyway, as Ctrl-C in the background of a shell, stays so. Nothing changes outside the main thread.
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
