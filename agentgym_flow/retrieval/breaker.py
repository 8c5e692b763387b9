"""A circuit breaker: a server that has just failed many times is left alone for a while, then tried with one request.

It is closed while requests may go, open while none may, and half-open while one request, the probe, decides. Requests
that were sent before the last change of state say nothing about the present, so their results are ignored.
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
"""Seconds after which one asks again while the probe of another is under way."""


class BreakerState(Enum):
    """What a breaker does with requests."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Pass(NamedTuple):
    """The leave to send one request: give it back with what came of it.

    Attributes:
        era: how often the breaker had changed its state when the leave was given.
    """

    era: int


class Breaker:
    """Counts failures one after the other, and lets no request through for a while when there are too many.

    Every pass from `enter` goes back by exactly one of `succeeded`, `failed` and `dropped`. Safe in threads. It is
    closed in a forked child.

    Args:
        failures: so many failures, with no success between them, open it.
        rest: seconds that it stays open before the probe.
        clock: seconds that never go back.

    Raises `BadSetting` when `failures` is below 1 or `rest` is not a positive number.
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
        """The present state; an open breaker stays open until somebody asks for a pass after its rest."""
        with self._lock:
            return self._state

    def enter(self) -> Pass | float:
        """Return a pass, or the seconds to wait before one asks again."""
        with self._lock:
            if self._process != os.getpid():  # a forked child: the probe, if there is one, is not its own
                self._process = os.getpid()
                self._turn(BreakerState.CLOSED)
            if self._state is BreakerState.OPEN:
                left = self._opened + self.rest - self._clock()
                if left > 0:
                    return left
                self._turn(BreakerState.HALF_OPEN)
                return Pass(self._era)
            return Pass(self._era) if self._state is BreakerState.CLOSED else PROBE_POLL

    def succeeded(self, given: Pass) -> None:
        """Take back a pass: the server answered."""
        with self._lock:
            if given.era == self._era:
                self._in_a_row = 0
                if self._state is BreakerState.HALF_OPEN:
                    self._turn(BreakerState.CLOSED)

    def failed(self, given: Pass) -> None:
        """Take back a pass: the server did not answer, or with nonsense."""
        with self._lock:
            if given.era != self._era:
                return
            self._in_a_row += 1
            if self._state is BreakerState.HALF_OPEN or self._in_a_row >= self.failures:
                self._open(self._clock())

    def dropped(self, given: Pass) -> None:
        """Take back a pass: nothing was learned (an interrupt). After a dropped probe the next one may go at once."""
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
