"""A circuit breaker: after many consecutive failures, a server gets no requests for a while, then a single probe.

The breaker is closed while requests are allowed, open while they are not, and half-open while the probe is under way.
The results of requests that were sent before the last change of state are ignored as outdated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from agentgym_flow._util.sharing import Lock
from agentgym_flow.errors import BadSetting

PROBE_POLL = 0.05
"""Seconds to wait before calling `enter` again while another thread's probe is under way."""


class BreakerState(Enum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Permit(NamedTuple):
    """The permission to send one request, to be returned with its result.

    Attributes:
        era: the number of state changes of the breaker when it issued the permit.
    """

    era: int


class Breaker:
    """Counts consecutive failures and blocks requests for a while after too many.

    Return every permit of `enter` by calling exactly one of `succeeded`, `failed` and `dropped`. The class is
    thread-safe. In a forked child the breaker is closed.

    Args:
        failures: the number of consecutive failures that opens the breaker.
        rest: seconds from opening to the probe.
        clock: a monotonic clock in seconds.

    Raises `BadSetting` if `failures` is below 1 or `rest` is not a positive number.
    """

    def __init__(self, failures: int = 5, rest: float = 2.0, clock: Callable[[], float] = time.monotonic) -> None:
        if failures < 1:
            raise BadSetting(f"a breaker opens after 1 failure or more, not {failures}")
        if not 0 < rest < float("inf"):
            raise BadSetting(f"a breaker rests for a positive number of seconds, not {rest}")
        self.failures, self.rest = failures, rest
        self._clock = clock
        self._lock = Lock()
        self._process = os.getpid()
        self._state = BreakerState.CLOSED
        self._era = 0
        self._in_a_row = 0
        self._opened = 0.0

    @property
    def state(self) -> BreakerState:
        """The current state; an open breaker changes its state only in a call of `enter`."""
        with self._lock:
            return self._state

    def enter(self) -> Permit | float:
        """Return a permit, or the seconds to wait before the next call."""
        with self._lock:
            if self._process != os.getpid():  # in a forked child; a probe belongs to the parent
                self._process = os.getpid()
                self._turn(BreakerState.CLOSED)
            if self._state is BreakerState.OPEN:
                left = self._opened + self.rest - self._clock()
                if left > 0:
                    return left
                self._turn(BreakerState.HALF_OPEN)
                return Permit(self._era)
            return Permit(self._era) if self._state is BreakerState.CLOSED else PROBE_POLL

    def succeeded(self, given: Permit) -> None:
        """Return a permit: the server answered."""
        with self._lock:
            if given.era == self._era:
                self._in_a_row = 0
                if self._state is BreakerState.HALF_OPEN:
                    self._turn(BreakerState.CLOSED)

    def failed(self, given: Permit) -> None:
        """Return a permit: the server did not answer, or its answer was malformed."""
        with self._lock:
            if given.era != self._era:
                return
            self._in_a_row += 1
            if self._state is BreakerState.HALF_OPEN or self._in_a_row >= self.failures:
                self._open(self._clock())

    def dropped(self, given: Permit) -> None:
        """Return a permit: the result is unknown (an interrupt). After a dropped probe the next one is due at once."""
        with self._lock:
            if given.era == self._era and self._state is BreakerState.HALF_OPEN:
                self._open(self._clock() - self.rest)

    def _open(self, since: float) -> None:
        self._turn(BreakerState.OPEN)
        self._opened = since

    def _turn(self, state: BreakerState) -> None:
        self._state = state
        self._era += 1
        self._in_a_row = 0
