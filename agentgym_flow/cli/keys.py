"""Single key presses from a terminal, without waiting for the Enter key."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator

try:
    import termios
    import tty
except ImportError:  # Windows: lines are read instead of keys
    termios = None  # type: ignore[assignment]

AVAILABLE = termios is not None
"""Whether this system can deliver single key presses."""

END_OF_INPUT = "\x04"
"""Ctrl-D, which a terminal in single-key mode delivers as a key."""

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_REST_OF_SEQUENCE = 0.05  # seconds; the bytes of an arrow key arrive together
_PATIENCE = 0.2  # seconds


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Make the terminal deliver keys immediately and without echo. Ctrl-C still interrupts. Restores it at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_key() -> str:
    """Wait for a key and return it: a character; `up`, `down`, `left` or `right` for arrows; `""` at end of input."""
    descriptor = sys.stdin.fileno()
    # A Ctrl-C between two instructions does not interrupt a read that begins right after it, so no wait is a long one.
    while not select.select([descriptor], [], [], _PATIENCE)[0]:
        pass
    first = os.read(descriptor, 1)
    if first != b"\x1b":
        return first.decode("latin-1")
    rest = ""
    while len(rest) < 2 and select.select([descriptor], [], [], _REST_OF_SEQUENCE)[0]:
        rest += os.read(descriptor, 1).decode("latin-1")
    return _ARROWS.get(rest[1:], "\x1b") if rest[:1] in ("[", "O") else "\x1b"
