"""Calls of many clients on one manager: waiting calls do not block the others.

Each call that waits inside the manager needs a thread, so 1,000 idle workers would need 1,000. Calls are therefore made
without waiting at first. If there is no result, at most `WAITING` calls of a kind wait inside the manager, for a short
while each. The others queue, without a thread, until it is their turn or their time is up. When results arrive, the
calls inside return at once and the queue moves on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from agentgym_flow.dataflow.records import Flow, LeaseKey

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


async def _never() -> bool:
    return False


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

    async def call(self, name: str, arguments: dict[str, Any], gone: Callable[[], Awaitable[bool]] = _never) -> Any:
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
            if self._is_ending() or await gone():
                break
            answer = await self._in_line(name, arguments, left)
        if name == "lease" and answer and await gone():
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
