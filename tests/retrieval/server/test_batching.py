"""Batching without a server: requests that waited too long, clients that are gone, and the order of the queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from retriever_running import Echo, said

from agentgym_flow._util.serving import Refused
from agentgym_flow.retrieval.batching import Batcher
from agentgym_flow.retrieval.corpus import Hit


@asynccontextmanager
async def searching(batcher: Batcher) -> AsyncIterator[None]:
    task = asyncio.create_task(batcher.run())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_request_that_waited_too_long_is_not_searched_for() -> None:
    now, retriever = [0.0], Echo()
    batcher = Batcher(retriever, max_wait=30.0, clock=lambda: now[0])

    async def play() -> None:
        old = asyncio.create_task(batcher.search(["old"], 1))
        await asyncio.sleep(0)
        now[0] = 31.0
        new = asyncio.create_task(batcher.search(["new"], 1))
        await asyncio.sleep(0)
        async with searching(batcher):
            assert await new == [[said("new", 0)]]
            with pytest.raises(Refused, match="too many"):
                await old

    asyncio.run(play())
    assert retriever.batches == [["new"]]
    assert batcher.waiting == 0


def test_a_client_that_is_gone_costs_nothing() -> None:
    retriever = Echo()
    batcher = Batcher(retriever)

    async def play() -> None:
        gone = asyncio.create_task(batcher.search(["gone"], 1))
        here = asyncio.create_task(batcher.search(["here"], 1))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        async with searching(batcher):
            assert await here == [[said("here", 0)]]

    asyncio.run(play())
    assert retriever.batches == [["here"]]


def test_the_queue_is_served_in_order_by_the_number_of_passages() -> None:
    retriever = Echo()
    batcher = Batcher(retriever, max_batch=3)

    async def play() -> list[list[list[Hit]]]:
        asked = [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 1), ("f", 1)]
        tasks = [asyncio.create_task(batcher.search([query], topk)) for query, topk in asked]
        await asyncio.sleep(0)
        assert batcher.waiting == 6
        async with searching(batcher):
            return list(await asyncio.gather(*tasks))

    answers = asyncio.run(play())
    assert retriever.batches == [["a", "c", "e"], ["b", "d"], ["f"]]
    assert [answer[0][0].passage.text[-1] for answer in answers] == list("abcdef")
    assert (batcher.waiting, batcher.batches, batcher.searched) == (0, 3, 6)


def test_a_request_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    batcher = Batcher(Echo(), max_waiting=2)

    async def play() -> None:
        large = asyncio.create_task(batcher.search(list("abc"), 1))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="too many"):
            await batcher.search(["d"], 1)
        async with searching(batcher):
            assert len(await large) == 3
            assert await batcher.search(["d"], 1)

    asyncio.run(play())


def test_a_retriever_that_answers_too_little_has_failed() -> None:
    class Short(Echo):
        def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
            return super().search(queries, topk)[1:]

    batcher = Batcher(Short())

    async def play() -> None:
        async with searching(batcher):
            with pytest.raises(Refused, match="ValueError"):
                await batcher.search(["a", "b"], 1)

    asyncio.run(play())
