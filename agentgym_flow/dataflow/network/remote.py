"""A manager and its callers in other processes: retries on their side, and queues for calls that wait on its own.

Every call can be repeated, so calls without an answer are retried with back-off until the deadline, and so are those
for which the manager's disk has no space. If the manager is restarted on its journal meanwhile, or space is freed,
callers only notice that the call took longer.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from agentgym_flow.dataflow.records import Flow, LeaseKey
from agentgym_flow.errors import DiskFull, FlowDown

P = ParamSpec("P")
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts; they double each time and vary randomly, so that callers do not retry in step."""


class NoAnswer(Exception):
    """An attempt failed and is to be retried; the text says why."""


def _remote(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls `method` of the manager."""
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        del bound.arguments["self"]
        answer: T = self._call(method.__name__, bound.arguments)
        return answer

    return call


class RemoteFlow(ABC):
    """Implements `agentgym_flow.dataflow.records.Flow`; subclasses make single attempts at a call.

    Args:
        place: names the manager in errors.
        deadline: seconds for which a call is retried.

    Attributes:
        deadline: as given; a new value applies to calls under way as well.
    """

    def __init__(self, place: str, *, deadline: float = 600.0) -> None:
        self.place, self.deadline = place, deadline
        self._closed = threading.Event()
        self._random = random.Random()  # independent of all other random draws

    def close(self) -> None:
        """Make calls that are between two attempts raise `FlowDown`."""
        self._closed.set()

    @abstractmethod
    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a call. Raises `NoAnswer` if it is to be retried."""

    def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                return self._attempt(name, arguments)
            except (NoAnswer, DiskFull) as error:
                left = began + self.deadline - time.monotonic()
                if left <= 0 or self._closed.wait(min(left, pause * (0.5 + self._random.random()))):
                    raise error if isinstance(error, DiskFull) else FlowDown(self._down(str(error))) from None
                pause = min(2 * pause, LONGEST_PAUSE)

    def _down(self, what: str) -> str:
        if self._closed.is_set():
            return f"the connection to {self.place} was closed"
        return (
            f"{self.place} gave no answer for {self.deadline:g} seconds ({what}): restart it with its journal, or "
            "check the connection from this machine"
        )

    describe = _remote(Flow.describe)
    lease = _remote(Flow.lease)
    renew = _remote(Flow.renew)
    commit = _remote(Flow.commit)
    fail = _remote(Flow.fail)
    give_back = _remote(Flow.give_back)
    fetch = _remote(Flow.fetch)
    open = _remote(Flow.open)
    publish = _remote(Flow.publish)
    admit = _remote(Flow.admit)
    arrivals = _remote(Flow.arrivals)
    reject = _remote(Flow.reject)
    ack = _remote(Flow.ack)
    keep = _remote(Flow.keep)
    finish = _remote(Flow.finish)
    beat = _remote(Flow.beat)
    status = _remote(Flow.status)


AT_ONCE = 16
"""The most calls at a time that do not wait."""

WAITING = 8
"""The most calls of one kind at a time that wait inside the manager."""

TURN = 1.0
"""Seconds after which a waiting call makes room for the next one in the queue."""

LONGEST = 60.0
"""The most seconds that a call may wait; clients that wait longer repeat it."""

KINDS = ("lease", "arrivals")
"""The calls that wait."""


class Switchboard:
    """Makes calls on a flow for the coroutines of one event loop.

    Args:
        flow: the manager; thread-safe.
        is_ending: whether the server is stopping; waiting calls then return at once, perhaps without a result.
    """

    def __init__(self, flow: Flow, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._flow, self._is_ending = flow, is_ending
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="flow")
        self._waiters = ThreadPoolExecutor(WAITING * len(KINDS), thread_name_prefix="flow-waiting")
        self._lines = {kind: asyncio.Semaphore(WAITING) for kind in KINDS}

    async def call(
        self, name: str, arguments: dict[str, Any], gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Any:
        """Return the answer of a call.

        Args:
            name: of the method.
            arguments: its arguments.
            gone: whether the client has disconnected; its leases are then given back at once.

        Raises whatever the manager raises.
        """
        wait = arguments.get("wait", 0.0)
        answer = await self._now(name, {**arguments, "wait": 0.0} if name in KINDS else arguments)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(wait, LONGEST)
        while name in KINDS and not answer and (left := end - loop.time()) > 0:
            if self._is_ending() or (gone is not None and await gone()):
                break
            answer = await self._in_line(name, arguments, left)
        if name == "lease" and answer and gone is not None and await gone():
            held = [LeaseKey(lease.stream, lease.slot.id, lease.attempt) for lease in answer]
            await self._now("give_back", {"worker": arguments["worker"], "held": held})
        return answer

    def close(self) -> None:
        """End the threads when their calls are done."""
        for pool in (self._threads, self._waiters):
            pool.shutdown(wait=False)

    async def _now(self, name: str, arguments: dict[str, Any]) -> Any:
        work = partial(getattr(self._flow, name), **arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _in_line(self, name: str, arguments: dict[str, Any], left: float) -> Any:
        line = self._lines[name]
        loop = asyncio.get_running_loop()
        end = loop.time() + left
        try:
            await asyncio.wait_for(line.acquire(), left)
        except TimeoutError:
            return await self._now(
                name, {**arguments, "wait": 0.0}
            )  # so that the manager sees that the caller is alive
        try:
            wait = 0.0 if self._is_ending() else min(TURN, max(0.0, end - loop.time()))
            work = partial(getattr(self._flow, name), **{**arguments, "wait": wait})
            return await loop.run_in_executor(self._waiters, work)
        finally:
            line.release()
