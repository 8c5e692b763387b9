"""One request per answer outside, many at a time inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agentgym_flow.generation.base import Completion, GenerationRequest

Waiting = tuple[GenerationRequest, "asyncio.Future[Completion]"]


class Gathering:
    """Gathers requests that are made at the same time, and has them answered in one go.

    "The same time" needs no clock: whatever is asked before the event loop has nothing else to do belongs together.

    Args:
        answer: answers many requests, in order.
    """

    def __init__(self, answer: Callable[[Sequence[GenerationRequest]], list[Completion]]) -> None:
        self._answer = answer
        self._waiting: list[Waiting] = []

    async def ask(self, request: GenerationRequest) -> Completion:
        """Return the answer to one request; what `answer` raises is raised for all that were asked together."""
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
