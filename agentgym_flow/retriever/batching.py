"""Requests that come in at the same time are searched for together.

One search runs at a time, in a thread; what comes in meanwhile waits and makes up the next one. So nobody waits for a
batch to fill, and the batches grow with the load. A search that fails is done again request by request, so that one
request cannot fail its neighbours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from agentgym_flow.retrieval.passage import Found, Retriever

_log = logging.getLogger(__name__)

Results = list[list[Found]]


class Full(Exception):
    """Too many queries wait already."""


class Late(Exception):
    """A request waited for so long that nobody waits for its answer any more."""


class Failed(Exception):
    """The retriever raised an error, which is in the log of this module."""


class _Asked(NamedTuple):
    queries: Sequence[str]
    topk: int
    since: float
    answer: asyncio.Future[Results]


class Batcher:
    """Collects requests and searches for them together. All but the search is done in the event loop.

    Args:
        retriever: what searches.
        max_batch: queries that are searched for at once; a larger request is a batch of its own.
        max_waiting: queries that may wait.
        max_wait: seconds that a request may wait.
        clock: seconds that never go back.

    Attributes:
        waiting: the queries that wait.
        batches: how many searches there were.
        searched: how many queries were in them.
    """

    def __init__(
        self,
        retriever: Retriever,
        *,
        max_batch: int = 64,
        max_waiting: int = 1024,
        max_wait: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retriever = retriever
        self._max_batch, self._max_waiting, self._max_wait = max_batch, max_waiting, max_wait
        self._clock = clock
        self._asked: deque[_Asked] = deque()
        self._come = asyncio.Event()
        self.waiting = self.batches = self.searched = 0

    async def search(self, queries: Sequence[str], topk: int) -> Results:
        """Return what the retriever finds. Raises `Full`, `Late` or `Failed`."""
        if self.waiting and self.waiting + len(queries) > self._max_waiting:
            raise Full
        asked = _Asked(queries, topk, self._clock(), asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        self.waiting += len(queries)
        self._come.set()
        return await asked.answer

    async def run(self) -> None:
        """Search for what comes in until cancelled."""
        with ThreadPoolExecutor(1, "search") as thread:
            while True:
                await self._come.wait()
                self._come.clear()
                while self._asked:
                    await self._search(thread, self._next())

    def _next(self) -> list[_Asked]:
        """Return requests from the front of the queue for as many passages as the first one, up to a full batch.

        Those for other numbers keep their order: what ten passages are found for may begin with other three than what
        three are (a fusion of rankings does that), so they cannot be searched for together.
        """
        batch: list[_Asked] = []
        rest: list[_Asked] = []
        size = 0
        while self._asked:
            asked = self._asked.popleft()
            if batch and (asked.topk != batch[0].topk or size + len(asked.queries) > self._max_batch):
                rest.append(asked)
                continue
            batch.append(asked)
            size += len(asked.queries)
            if size >= self._max_batch:
                break
        self._asked.extendleft(reversed(rest))
        self.waiting -= size
        return batch

    async def _search(self, thread: ThreadPoolExecutor, batch: list[_Asked]) -> None:
        oldest = self._clock() - self._max_wait
        for asked in batch:
            if asked.since < oldest and not asked.answer.done():
                asked.answer.set_exception(Late())
        batch = [asked for asked in batch if not asked.answer.done()]
        if not batch:
            return
        try:
            results = await self._found(thread, [query for asked in batch for query in asked.queries], batch[0].topk)
        except Exception as error:
            if len(batch) > 1:
                for asked in batch:
                    await self._search(thread, [asked])
                return
            _log.exception("the retriever failed")
            if not batch[0].answer.done():
                failure = Failed(type(error).__name__)
                batch[0].answer.set_exception(failure)
            return
        start = 0
        for asked in batch:
            if not asked.answer.done():  # its client may be gone
                asked.answer.set_result(results[start : start + len(asked.queries)])
            start += len(asked.queries)

    async def _found(self, thread: ThreadPoolExecutor, queries: list[str], topk: int) -> Results:
        different = list(dict.fromkeys(queries))  # rollouts of one group often ask the same
        self.batches += 1
        self.searched += len(queries)
        found = await asyncio.get_running_loop().run_in_executor(thread, self._retriever.search, different, topk)
        if len(found) != len(different):
            raise ValueError(f"the retriever gave {len(found)} lists for {len(different)} queries")
        of_query = dict(zip(different, found, strict=True))
        return [of_query[query] for query in queries]
