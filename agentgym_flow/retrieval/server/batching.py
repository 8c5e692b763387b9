"""Requests that come in at the same time are searched for together, and large ones in parts.

One search runs at a time, in a thread; what comes in meanwhile waits and makes up the next one. So nobody waits for a
batch to fill, and the batches grow with the load. All requests that wait share a batch evenly, so a request for a few
queries is answered after two batches at most, also while one for thousands is under way. A search that fails is done
again request by request, so that one request cannot fail its neighbours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from agentgym_flow.retrieval.passage import Hit, Retriever

_log = logging.getLogger(__name__)

MAX_WAITING = 16_384
"""Queries that may wait: four trainers' worth, when each sends 4,096 at once."""

Results = list[list[Hit]]


class QueueFull(Exception):
    """Too many queries wait already."""


class DeadlineExceeded(Exception):
    """A request waited for so long that nobody waits for its answer any more."""


class RetrievalFailed(Exception):
    """The retriever raised an error, which is in the log of this module."""


@dataclass(eq=False, slots=True)
class _Asked:
    """A request. `taken` of its queries are in a batch or were, and `found` has what those before them found."""

    queries: Sequence[str]
    topk: int
    since: float
    answer: asyncio.Future[Results]
    taken: int = 0
    found: Results = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.queries) - self.taken


class _Part(NamedTuple):
    """Some queries of a request."""

    asked: _Asked
    queries: Sequence[str]


class Batcher:
    """Collects requests and searches for them together. All but the search is done in the event loop.

    Args:
        retriever: what searches.
        max_batch: queries that are searched for at once; a larger request is searched for in parts.
        max_waiting: queries that may wait; a larger request is taken when nothing else waits.
        max_wait: seconds that a request may wait until its first query is searched for.
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
        max_waiting: int = MAX_WAITING,
        max_wait: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retriever = retriever
        self._max_batch, self._max_waiting, self._max_wait = max_batch, max_waiting, max_wait
        self._clock = clock
        self._asked: list[_Asked] = []
        self._come = asyncio.Event()
        self.waiting = self.batches = self.searched = 0

    async def search(self, queries: Sequence[str], topk: int) -> Results:
        """Return what the retriever finds. Raises `QueueFull`, `DeadlineExceeded` or `RetrievalFailed`."""
        if self.waiting and self.waiting + len(queries) > self._max_waiting:
            raise QueueFull
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
                while parts := self._next():
                    await self._search(thread, parts)

    def _next(self) -> list[_Part]:
        """Return the next batch: of requests for as many passages as the first one, an even share of each.

        Those for other numbers keep their order: what ten passages are found for may begin with other three than what
        three are (a fusion of rankings does that), so they cannot be searched for together.
        """
        self._drop()
        if not self._asked:
            return []
        topk = self._asked[0].topk
        sharing = [asked for asked in self._asked if asked.topk == topk][: self._max_batch]
        parts: list[_Part] = []
        room = self._max_batch
        # Those that need least come first, so what they leave of their share goes to the others.
        for number, asked in enumerate(sorted(sharing, key=lambda asked: asked.left)):
            size = min(asked.left, room // (len(sharing) - number))
            parts.append(_Part(asked, asked.queries[asked.taken : asked.taken + size]))
            asked.taken += size
            room -= size
        self.waiting -= self._max_batch - room
        served = set(map(id, sharing))
        self._asked = [asked for asked in self._asked if id(asked) not in served]
        self._asked += [asked for asked in sharing if asked.left]  # behind those that had nothing of this batch
        return parts

    def _drop(self) -> None:
        """Leave out requests that failed or waited too long, and those whose clients are gone."""
        oldest = self._clock() - self._max_wait
        for asked in self._asked:
            if not asked.taken and asked.since < oldest and not asked.answer.done():
                asked.answer.set_exception(DeadlineExceeded())
        self.waiting -= sum(asked.left for asked in self._asked if asked.answer.done())
        self._asked = [asked for asked in self._asked if not asked.answer.done()]

    async def _search(self, thread: ThreadPoolExecutor, parts: list[_Part]) -> None:
        try:
            results = await self._found(
                thread, [query for part in parts for query in part.queries], parts[0].asked.topk
            )
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    await self._search(thread, [part])
                return
            _log.exception("the retriever failed")
            answer = parts[0].asked.answer
            if not answer.done():
                answer.set_exception(RetrievalFailed(type(error).__name__))
            return
        start = 0
        for asked, some in parts:
            asked.found += results[start : start + len(some)]
            start += len(some)
            if len(asked.found) == len(asked.queries) and not asked.answer.done():  # its client may be gone
                asked.answer.set_result(asked.found)

    async def _found(self, thread: ThreadPoolExecutor, queries: list[str], topk: int) -> Results:
        different = list(dict.fromkeys(queries))  # rollouts of one group often ask the same
        self.batches += 1
        self.searched += len(queries)
        found = await asyncio.get_running_loop().run_in_executor(thread, self._retriever.search, different, topk)
        if len(found) != len(different):
            raise ValueError(f"the retriever gave {len(found)} lists for {len(different)} queries")
        of_query = dict(zip(different, found, strict=True))
        return [of_query[query] for query in queries]
