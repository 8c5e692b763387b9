"""Waits for work in several threads; an interrupt leaves no thread that still waits for a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import TypeVar

T = TypeVar("T")

POLL = 0.02
"""The interval in seconds at which interrupted work is polled."""


def all_of(parts: Sequence[Future[T]], stop: Callable[[], None], cancel: Callable[[], None] | None) -> list[T]:
    """Return the results of all parts.

    If parts raise, the first exception other than a cancellation is raised after all have ended.

    Args:
        parts: the futures to wait for.
        stop: called after an exception, so that no part begins anything new.
        cancel: called on an interrupt, possibly several times, to abort what parts wait for; None if impossible.
    """
    try:
        return [part.result() for part in parts]
    except BaseException as error:
        stop()
        interrupted = not isinstance(error, Exception)
        while wait(parts, POLL if interrupted and cancel else None).not_done:
            if cancel is not None:
                cancel()  # repeatedly, because a part may have been about to send a request
        if isinstance(error, CancelledError):  # because another part raised
            causes = (part.exception() for part in parts if not part.cancelled())
            raise next((cause for cause in causes if not isinstance(cause, CancelledError | None)), error) from None
        raise
