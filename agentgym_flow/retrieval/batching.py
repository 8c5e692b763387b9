"""Dynamic batching: concurrent requests are searched together, and large requests in parts.

One search runs at a time, in a thread, and requests that arrive meanwhile form the next batch. So no request waits for
a batch to fill, and batches grow with the load. Waiting requests share a batch evenly, so a request with few queries
needs at most two batches, even while a request with thousands is in progress. If a search fails, its requests are
searched individually, so a request cannot make others fail.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from agentgym_flow._util.serving import Refused
from agentgym_flow.retrieval.corpus import Hit, Retriever

_log = logging.getLogger(__name__)

MAX_WAITING = 16_384
"""The largest number of waiting queries, sufficient for four trainers that send 4,096 each."""

Results = list[list[Hit]]


_BUSY = "too many requests are waiting; try again later"
RETRY_AFTER = {"Retry-After": "1"}
"""The header of an answer to clients that should try again after a second."""


@dataclass(eq=False, slots=True)
class _PendingRequest:
    """A request. `taken` is the number of queries in batches so far; `found` has the results of completed ones."""

    queries: Sequence[str]
    topk: int
    since: float
    answer: asyncio.Future[Results]
    taken: int = 0
    found: Results = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.queries) - self.taken


_Part = tuple[_PendingRequest, Sequence[str]]  # a request, and its queries in one batch


class Batcher:
    """Collects requests and searches them together. Everything but the search runs in the event loop.

    Args:
        retriever: the retriever.
        max_batch: the largest number of queries per search; larger requests are split.
        max_waiting: the largest number of waiting queries; a larger request is accepted if the queue is empty.
        max_wait: the longest time in seconds before the first query of a request is searched.
        clock: a monotonic clock in seconds.

    Attributes:
        waiting: the number of waiting queries.
        batches: the number of searches so far.
        searched: the number of queries in them.
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
        self._pending: list[_PendingRequest] = []
        self._arrived = asyncio.Event()
        self.waiting = self.batches = self.searched = 0

    async def search(self, queries: Sequence[str], topk: int) -> Results:
        """Return the results of the retriever. Raises `Refused` if it fails, or too many requests are waiting."""
        if self.waiting and self.waiting + len(queries) > self._max_waiting:
            raise Refused(503, _BUSY, RETRY_AFTER)
        request = _PendingRequest(queries, topk, self._clock(), asyncio.get_running_loop().create_future())
        self._pending.append(request)
        self.waiting += len(queries)
        self._arrived.set()
        return await request.answer

    async def run(self) -> None:
        """Process requests until cancelled."""
        with ThreadPoolExecutor(1, "search") as thread:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while parts := self._next():
                    await self._search(thread, parts)

    def _next(self) -> list[_Part]:
        """Return the next batch: an even share of each request with the same `topk` as the first one.

        Requests with different `topk` cannot share a search, because the first three of ten results may differ from the
        results with `topk=3` (as in a fusion of rankings).
        """
        self._drop()
        if not self._pending:
            return []
        topk = self._pending[0].topk
        sharing = [request for request in self._pending if request.topk == topk][: self._max_batch]
        parts: list[_Part] = []
        room = self._max_batch
        # Requests with the fewest queries come first, so the unused part of their share goes to the others.
        for number, request in enumerate(sorted(sharing, key=lambda request: request.left)):
            size = min(request.left, room // (len(sharing) - number))
            parts.append((request, request.queries[request.taken : request.taken + size]))
            request.taken += size
            room -= size
        self.waiting -= self._max_batch - room
        served = set(map(id, sharing))
        self._pending = [request for request in self._pending if id(request) not in served]
        self._pending += [request for request in sharing if request.left]  # behind those not in this batch
        return parts

    def _drop(self) -> None:
        """Remove requests that failed or waited too long, and those whose clients have disconnected."""
        oldest = self._clock() - self._max_wait
        for request in self._pending:
            if not request.taken and request.since < oldest and not request.answer.done():
                request.answer.set_exception(Refused(503, _BUSY, RETRY_AFTER))
        self.waiting -= sum(request.left for request in self._pending if request.answer.done())
        self._pending = [request for request in self._pending if not request.answer.done()]

    async def _search(self, thread: ThreadPoolExecutor, parts: list[_Part]) -> None:
        try:
            results = await self._found(thread, [query for _, some in parts for query in some], parts[0][0].topk)
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    await self._search(thread, [part])
                return
            _log.exception("the retriever failed")
            answer = parts[0][0].answer
            if not answer.done():
                reason = f"the retriever failed ({type(error).__name__}); see the server's log"
                answer.set_exception(Refused(500, reason))
            return
        start = 0
        for request, some in parts:
            request.found += results[start : start + len(some)]
            start += len(some)
            if len(request.found) == len(request.queries) and not request.answer.done():  # its client may be gone
                request.answer.set_result(request.found)

    async def _found(self, thread: ThreadPoolExecutor, queries: list[str], topk: int) -> Results:
        different = list(dict.fromkeys(queries))  # rollouts of a group often send equal queries
        self.batches += 1
        self.searched += len(queries)
        found = await asyncio.get_running_loop().run_in_executor(thread, self._retriever.search, different, topk)
        if len(found) != len(different):
            raise ValueError(f"the retriever gave {len(found)} lists for {len(different)} queries")
        of_query = dict(zip(different, found, strict=True))
        return [of_query[query] for query in queries]
