"""Waiting for work in several threads, all of it or none: an interrupt leaves nothing that still waits for a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import TypeVar

T = TypeVar("T")

POLL = 0.02
"""Seconds between two looks whether what was interrupted has come to its end."""


def all_of(parts: Sequence[Future[T]], stop: Callable[[], None], cancel: Callable[[], None] | None) -> list[T]:
    """Return what all parts come to.

    What the first of them raises that was not merely stopped is raised again, after all have ended.

    Args:
        parts: what is waited for.
        stop: called when something is raised: no part is to begin anything new.
        cancel: called on an interrupt, perhaps often: what the parts wait for is given up. None: it cannot be.
    """
    try:
        return [part.result() for part in parts]
    except BaseException as error:
        stop()
        interrupted = not isinstance(error, Exception)
        while wait(parts, POLL if interrupted and cancel else None).not_done:
            if cancel is not None:
                cancel()  # again and again: a part may just have been about to ask
        if isinstance(error, CancelledError):  # because of what another part raised
            causes = (part.exception() for part in parts if not part.cancelled())
            raise next((cause for cause in causes if not isinstance(cause, CancelledError | None)), error) from None
        raise
