"""One client for all servers that the package asks: retrievers, chat models, vLLM servers and managers.

`Endpoint.send` makes one request; see `agentgym_flow._util.http`. `Endpoint.ask` repeats it until there is a usable
answer: with pauses, within a deadline, not before the server wants it, at most so many at a time, and through an
outage. The callers define what an answer means and what a failure is called.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from agentgym_flow._util.http import Call, Connections, ServerAddress, TryFailed
from agentgym_flow._util.sharing import Lock
from agentgym_flow.errors import BadSetting

T = TypeVar("T")

CONTACT = 4.5
"""Seconds in which a server that was never reached must accept a connection: its address may be wrong."""

PATIENCE = 600.0
"""Default seconds for which a server that has answered before may fail to answer."""

LONGEST_PAUSE = 8.0
"""The longest pause between tries in seconds, unless the server asks for a longer one."""

PROBE_POLL = 0.05
"""Seconds to wait before asking again whether another thread's probe has come to its end."""

BUSY = (429, 503)
"""Statuses of an overloaded server. It is alive, so they do not open a breaker."""

_random = random.SystemRandom()  # independent of all other random draws, and of those of forked children


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
    """A circuit breaker: after many consecutive failures, a server gets no requests for a while, then a single probe.

    The breaker is closed while requests are allowed, open while they are not, and half-open while the probe is under
    way. Return every permit of `enter` by calling exactly one of `succeeded`, `failed` and `dropped`. Results of
    requests that were sent before the last change of state are ignored. The class is thread-safe. In a forked child the
    breaker is closed.

    Args:
        failures: the number of consecutive failures that opens the breaker.
        rest: seconds from opening to the probe.
        clock: a monotonic clock in seconds.

    Raises `BadSetting` if `failures` is below 1 or `rest` is not a positive number.
    """

    def __init__(self, failures: int = 5, rest: float = 2.0, clock: Callable[[], float] = time.monotonic) -> None:
        if failures < 1:
            raise BadSetting(f"a breaker opens after 1 failure or more, not {failures}")
        if not 0 < rest < math.inf:
            raise BadSetting(f"a breaker rests for a positive number of seconds, not {rest}")
        self.failures, self.rest = failures, rest
        self._clock = clock
        self._lock = Lock()
        self._process = os.getpid()
        self._state = BreakerState.CLOSED
        self._era = self._in_a_row = 0
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


@dataclass(frozen=True)
class Tries:
    """How often and how long a request is made.

    Attributes:
        retries: the largest number of further tries.
        deadline: seconds for all tries and pauses.
        backoff: seconds of the first pause; see `pause_after`.
        timeout: seconds for one try.
        concurrency: the largest number of requests to the server at a time, from all threads.
    """

    retries: int
    deadline: float
    backoff: float
    timeout: float = math.inf
    concurrency: int = 1 << 20


def pause_after(tried: int, first: float, longest: float = LONGEST_PAUSE) -> float:
    """Return the pause in seconds after try number `tried`, from 0.

    Pauses double from `first` to `longest`, and are multiplied by a random factor between 0.5 and 1, so that many
    clients do not return at the same time.
    """
    return min(longest, first * 2.0 ** min(tried, 30)) * (0.5 + 0.5 * _random.random())


class Unanswered(Exception):
    """No try of a request succeeded. The text says how many there were, and why the last one failed.

    Attributes:
        last: the last failure.
        tries: the number of requests.
        silent: seconds since the server's last answer to any request; 0 if it has never answered.
        down: whether a server that has answered before was silent for its whole patience.
    """

    def __init__(self, last: TryFailed, tries: int, seconds: float, silent: float = 0.0, down: bool = False) -> None:
        times = "1 try" if tries == 1 else f"{tries} tries"
        super().__init__(f"gave no usable answer after {times} within {round(seconds, 1):g} s; last: {last}")
        self.last, self.tries, self.silent, self.down = last, tries, silent, down


class Gate:
    """Limits the number of requests under way, first come first served. A forked child begins with none."""

    def __init__(self) -> None:
        self.under_way = 0
        self._queue: deque[tuple[int, threading.Event]] = deque()
        self._lock, self._process = Lock(), os.getpid()

    @contextmanager
    def place(self, most: int, until: float, call: Call) -> Iterator[None]:
        """Wait until fewer than `most` requests are under way, and be one of them in this block.

        Raises `TryFailed` if that takes longer than `until`, and `CancelledError`.
        """
        turn = most, threading.Event()
        with self._lock:
            if self._process != os.getpid():
                self.under_way, self._process = 0, os.getpid()
                self._queue.clear()
            self._queue.append(turn)
            self._admit()
        try:
            if not turn[1].is_set() and not call.wait(turn[1], until):
                raise TryFailed("no request could be sent, others are under way", timeout=True)
            call.check()
            yield
        finally:
            with self._lock:
                if turn in self._queue:
                    self._queue.remove(turn)
                else:
                    self.under_way -= 1
                self._admit()

    def _admit(self) -> None:
        while self._queue and self.under_way < self._queue[0][0]:
            self.under_way += 1
            self._queue.popleft()[1].set()


class Endpoint(Connections):
    """A server, and what this process knows of it. Thread-safe; safe after a fork.

    Args:
        address: the address of the server.
        breaker: keeps requests from a server that fails; None for no breaker.
        patience: see below.
        settings: those of `Connections`.

    Attributes:
        patience: the seconds since its last answer for which requests with a probe wait for a server that stopped
            answering, beyond their tries and deadline; 0 to disable.
        failed_in_a_row: the number of requests without a usable answer since the last one that had one.
    """

    def __init__(
        self, address: ServerAddress, *, breaker: Breaker | None = None, patience: float = 0.0, **settings: Any
    ) -> None:
        super().__init__(address, **settings)
        self.patience = patience
        self.failed_in_a_row = 0
        self._breaker = breaker or Breaker(1 << 62)
        self._answered: tuple[float, float] | None = None  # when the last answered request was sent, and when it came
        self._gate, self._probing = Gate(), Lock()

    @property
    def has_answered(self) -> bool:
        """Whether the server has ever given a usable answer."""
        return self._answered is not None

    def ask(
        self,
        attempt: Callable[[float], T],
        tries: Tries,
        call: Call | None = None,
        probe: Callable[[float], object] | None = None,
    ) -> tuple[T, int, float]:
        """Return the result of `attempt`, the number of tries, and the seconds for which an outage was waited out.

        While the server has never accepted a connection, no try starts that may fail to reach it more than `CONTACT`
        seconds after the first.

        Args:
            attempt: makes one request that ends at the given value of `time.monotonic()`. Raises `TryFailed`.
            tries: the limits.
            call: a handle to cancel the request.
            probe: makes a minimal request, likewise. With a probe, a request that runs out of tries or time waits for a
                server that has answered before, until it answers again, and is repeated. If it then fails although the
                server has answered another one in the meantime, the request is the cause, and not an outage.

        Raises:
            Unanswered: there is no usable answer.
            CancelledError: another thread cancelled the request.
        """
        call, begun = call or Call(), time.monotonic()
        end, contact = begun + tries.deadline, begun + CONTACT - min(self.connect_seconds, CONTACT)
        last, tried, failed = TryFailed("the breaker is open after earlier failures"), 0, math.inf
        while True:
            permit = self._breaker.enter()
            if not isinstance(permit, Permit):
                if time.monotonic() + permit >= (end if self.accepted else min(end, contact)):
                    raise self._unanswered(last, tried, tries)
                call.wait(threading.Event(), time.monotonic() + permit)
                continue
            sent = time.monotonic()
            try:
                end = end if failed == math.inf else math.inf  # an outage is limited by `patience`
                with self._gate.place(tries.concurrency, end, call):
                    tried, sent = tried + 1, time.monotonic()
                    result = attempt(min(sent + tries.timeout, end))
            except TryFailed as error:
                last, answer = error, error.answer
                is_alive = answer is not None and (answer.status < 500 or answer.status in BUSY)
                (self._breaker.succeeded if is_alive else self._breaker.failed)(permit)
            except BaseException:  # Ctrl-C: the state of the server is unknown
                self._breaker.dropped(permit)
                raise
            else:
                self._breaker.succeeded(permit)
                now = time.monotonic()
                self._answered, self.failed_in_a_row = (sent, now), 0
                return result, tried, max(0.0, now - failed)
            now = time.monotonic()
            asked = 0.0 if last.answer is None else last.answer.retry_after
            pause = max(asked, pause_after(max(0, tried - 1), tries.backoff))
            late = now + pause >= (end if self.accepted else min(end, contact))
            if not last.passing or late or tried > tries.retries:
                if probe is None or not self._is_out(last, failed, sent):
                    raise self._unanswered(last, tried, tries)
                failed, pause = min(failed, now), min(pause, self.patience)
            call.wait(threading.Event(), now + pause)
            if probe is not None and failed < math.inf:
                self._probe(probe, failed, tries, call)

    def _is_out(self, last: TryFailed, failed: float, sent: float) -> bool:
        """Return whether to wait for the server, and the request did not cause the failure.

        Args:
            last: the last failure.
            failed: when the request ran out of tries; infinite for just now.
            sent: when the last try began.
        """
        if self._answered is None or not last.passing:
            return False
        if failed <= self._answered[0] and self._answered[1] <= sent:
            return False
        return time.monotonic() - self._answered[1] < self.patience

    def _probe(self, probe: Callable[[float], object], failed: float, tries: Tries, call: Call) -> None:
        """Make a minimal request, unless the server has answered one that was sent since `failed`."""
        with self._probing:
            call.check()
            if self._answered is not None and self._answered[0] >= failed:
                return
            sent = time.monotonic()
            try:
                probe(sent + tries.timeout)
            except TryFailed as error:
                if error.passing:
                    return
            self._answered = sent, time.monotonic()

    def _unanswered(self, last: TryFailed, tried: int, tries: Tries) -> Unanswered:
        self.failed_in_a_row += tried > 0
        seconds = tries.deadline if self.accepted else min(tries.deadline, CONTACT)
        silent = 0.0 if self._answered is None else time.monotonic() - self._answered[1]
        down = self._answered is not None and last.passing and 0 < self.patience <= silent
        return Unanswered(last, tried, seconds, silent, down)


class RequestThreads:
    """Threads in which coroutines make requests, one for each request under way.

    Args:
        most: the largest number of requests at a time; further ones wait for their turn.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="requests")

    async def run(self, work: Callable[[Call], T]) -> T:
        """Return the result of `work`. If the coroutine is cancelled, so is the call that `work` gets."""
        call = Call()
        try:
            return await asyncio.wrap_future(self._pool.submit(work, call))
        finally:
            call.cancel()

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
