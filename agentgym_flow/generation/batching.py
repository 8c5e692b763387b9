"""Batching of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agentgym_flow.generation.base import Completion, GenerationRequest

Waiting = tuple[GenerationRequest, "asyncio.Future[Completion]"]


class RequestBatcher:
    """Collects concurrent requests and answers them in one batch.

    A batch is everything that is requested before the event loop becomes idle, so it does not depend on a clock.

    Args:
        answer: answers a batch of requests, in order.
    """

    def __init__(self, answer: Callable[[Sequence[GenerationRequest]], list[Completion]]) -> None:
        self._answer = answer
        self._waiting: list[Waiting] = []

    async def ask(self, request: GenerationRequest) -> Completion:
        """Return the answer to one request. An exception of `answer` is raised for all requests of the batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append((request, future))
        return await future

    def _flush(self) -> None:
        asked, self._waiting = self._waiting, []
        asked = [(request, future) for request, future in asked if not future.cancelled()]
        try:
            answers = self._answer([request for request, _ in asked])
        except Exception as error:
            for _, future in asked:
                future.set_exception(error)
            return
        for (_, future), answer in zip(asked, answers, strict=True):
            future.set_result(answer)
