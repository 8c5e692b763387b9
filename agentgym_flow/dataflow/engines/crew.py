"""Supervision of workers: dead ones are replaced, and those that die again and again are given up."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentgym_flow.errors import AgentGymFlowError, NoWorkers

QUICK = 30.0
"""Seconds after its start within which the death of a worker is quick: it probably cannot start."""

MOST_FAILURES = 5
"""Quick deaths in a row after which a worker is given up."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a dead worker is replaced; they double after each quick death."""

LOOK = 0.1
"""Seconds between two checks of the workers."""

_logger = logging.getLogger(__name__)


class CrewWorker(Protocol):
    """A running worker."""

    def ended(self) -> str | None:
        """Return None while it runs, and then why it has ended."""

    def leave(self) -> None:
        """Ask it to give its leases back and end; returns at once."""

    def end(self) -> None:
        """Kill it."""


@dataclass(slots=True)
class _Seat:
    number: int
    member: CrewWorker | None = None
    since: float = 0.0
    due: float = 0.0
    failures: int = 0
    given_up: bool = False


class Crew:
    """Keeps workers running.

    Args:
        hire: starts the worker with a number.
        quick: see `QUICK`.
        most_failures: see `MOST_FAILURES`.

    Attributes:
        deaths: how many workers have ended without being asked to.
    """

    def __init__(
        self, hire: Callable[[int], CrewWorker], *, quick: float = QUICK, most_failures: int = MOST_FAILURES
    ) -> None:
        self.deaths = 0
        self._hire, self._quick, self._most = hire, quick, most_failures
        self._seats: list[_Seat] = []
        self._last_words = ""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, count: int) -> None:
        """Start `count` more workers."""
        self._seats += [_Seat(len(self._seats) + number) for number in range(count)]
        if self._thread is None and self._seats:
            self._thread = threading.Thread(target=self._watch, name="flow-crew", daemon=True)
            self._thread.start()

    def __len__(self) -> int:
        """Return how many workers run, or are about to be replaced."""
        return sum(not seat.given_up for seat in self._seats)

    @property
    def given_up(self) -> int:
        """How many workers were given up."""
        return len(self._seats) - len(self)

    def check(self) -> None:
        """Raise `NoWorkers`, with the last one's error, if all were given up."""
        if self._seats and not len(self):
            raise NoWorkers(
                f"all {len(self._seats)} workers failed: each ended {self._most} times in a row within "
                f"{self._quick:g} seconds. The last error: {self._last_words}"
            )

    def close(self, patience: float = 10.0) -> None:
        """End all workers; they have `patience` seconds to give their leases back."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        left = [seat.member for seat in self._seats if seat.member is not None]
        self._seats = []
        for member in left:
            with contextlib.suppress(Exception):  # it is killed below in any case
                member.leave()
        end = time.monotonic() + patience
        while any(member.ended() is None for member in left) and time.monotonic() < end:
            time.sleep(LOOK)
        for member in left:
            member.end()

    def _watch(self) -> None:
        while not self._closing.wait(LOOK):
            for seat in list(self._seats):
                if not seat.given_up and not self._closing.is_set():
                    self._look_at(seat)

    def _look_at(self, seat: _Seat) -> None:
        now = time.monotonic()
        why = None
        if seat.member is not None:
            why = seat.member.ended()
        elif now >= seat.due:
            seat.since = now
            try:
                seat.member = self._hire(seat.number)
            except (AgentGymFlowError, OSError) as error:
                why = f"{type(error).__name__}: {error}"
        if why is None:
            return
        if seat.member is not None:
            seat.member.end()
        self.deaths += 1
        self._last_words = why
        seat.failures = seat.failures + 1 if now - seat.since < self._quick else 0
        seat.given_up = seat.failures >= self._most
        seat.member, seat.due = None, now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** max(0, seat.failures - 1))
        fate = "is given up" if seat.given_up else "is replaced"
        _logger.warning("rollout worker %d has ended and %s: %s", seat.number, fate, why)
