"""The server as a Starlette application: `POST /retrieve` and `GET /health`.

Requests and answers are those of Search-R1; `agentgym_flow.retrieval.protocol` has their form. What a client did wrong
is told with a status of 400 and above and one sentence, and no error of ours shows its trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentgym_flow import loopback
from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval import protocol
from agentgym_flow.retrieval.passage import Retriever
from agentgym_flow.retriever.batching import Batcher, Failed, Full, Late
from agentgym_flow.retriever.metrics import Metrics

DEFAULT_TOPK = 3
"""Passages of an answer when the request does not say how many, as in Search-R1."""

MAX_TOPK = 100
"""The most passages that one may ask for."""

MAX_BODY = 4 << 20
"""The most bytes of a request: 64 queries of 4,096 characters fit, however they are escaped."""

MAX_QUERIES = 256
"""The most queries of a request."""

RETRY_AFTER = {"Retry-After": "1"}
"""What a client is told when the queue is full: come back after a second."""


class Asked(NamedTuple):
    """What a request asks for."""

    queries: list[str]
    topk: int
    scores: bool


class _Refused(Exception):
    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


def create_app(
    retriever: Retriever,
    *,
    token: str | None = None,
    topk: int = DEFAULT_TOPK,
    max_batch: int = 64,
    max_waiting: int = 1024,
    local: bool = True,
) -> Starlette:
    """Return the application around `retriever`.

    Args:
        retriever: what searches; one thread at a time asks it.
        token: what a client has to send as `Authorization: Bearer TOKEN`; None: whoever reaches the server may ask.
        topk: passages of an answer when the request does not say how many.
        max_batch: queries that are searched for at once.
        max_waiting: queries that may wait; more are answered with status 503.
        local: answer only under the names of this machine, and no page of a browser.

    Raises:
        BadSetting: the token is empty or none that a client can send, or a number cannot work.
    """
    if token is not None:
        protocol.check_token(token)
    if not 1 <= topk <= MAX_TOPK:
        raise BadSetting(f"topk is 1 to {MAX_TOPK}, not {topk}")
    if max_batch < 1 or max_waiting < 1:
        raise BadSetting(f"max_batch and max_waiting are 1 or more, not {max_batch} and {max_waiting}")
    service = _Service(retriever, Batcher(retriever, max_batch=max_batch, max_waiting=max_waiting), token, topk, local)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        searching = asyncio.create_task(service.batcher.run())
        yield
        searching.cancel()  # all requests are answered by now
        with contextlib.suppress(asyncio.CancelledError):
            await searching

    return Starlette(
        routes=[Route("/retrieve", service.retrieve, methods=["POST"]), Route("/health", service.health)],
        exception_handlers={_Refused: _refused, HTTPException: _refused},
        lifespan=lifespan,
    )


class _Service:
    """The endpoints."""

    def __init__(self, retriever: Retriever, batcher: Batcher, token: str | None, topk: int, local: bool) -> None:
        self._retriever, self.batcher = retriever, batcher
        self._token, self._topk, self._local = token, topk, local
        self._metrics = Metrics()
        self._since = time.monotonic()

    async def retrieve(self, request: Request) -> Response:
        """Answer the queries of a request."""
        start, status = time.monotonic(), 500
        try:
            response = await self._retrieve(request)
            status = response.status_code
        except _Refused as refused:
            status = refused.status
            raise
        finally:
            self._metrics.count(status, time.monotonic() - start)
        return response

    async def _retrieve(self, request: Request) -> Response:
        self._check_admitted(request)
        asked = self._read(await _body(request))
        try:
            found = await self.batcher.search(asked.queries, asked.topk)
        except (Full, Late):
            raise _Refused(503, "too many requests wait; come back later", RETRY_AFTER) from None
        except Failed as error:
            raise _Refused(500, f"the retriever failed ({error}); the server's log says more") from None
        return Response(protocol.answer_of(found, asked.scores), media_type="application/json")

    async def health(self, request: Request) -> Response:
        """Say that the server is there; to those who may ask for passages, also how it is doing."""
        self._check_place(request)
        if not self._has_token(request):
            return JSONResponse({"status": "ok"})
        batcher = self.batcher
        return JSONResponse(
            {
                "status": "ok",
                "retriever": self._retriever.name,
                "seconds": round(time.monotonic() - self._since, 1),
                "waiting": batcher.waiting,
                "queries": batcher.searched,
                "batches": batcher.batches,
                **self._metrics.summary(),
            }
        )

    def _check_place(self, request: Request) -> None:
        if self._local and not loopback.is_this_machine(request.headers.getlist("host")):
            raise _Refused(421, "this retriever answers under the names of its own machine only")
        if self._local and "origin" in request.headers:
            raise _Refused(403, "this retriever answers no page of a browser")

    def _has_token(self, request: Request) -> bool:
        if self._token is None:
            return True
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and loopback.same(given.strip(), self._token)

    def _check_admitted(self, request: Request) -> None:
        self._check_place(request)
        if not self._has_token(request):
            raise _Refused(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    def _read(self, body: bytes) -> Asked:
        try:
            message = protocol.read_json(body)
        except protocol.BadAnswer as error:
            raise _Refused(400, f"the request cannot be read: {error}") from None
        if not isinstance(message, Mapping):
            raise _Refused(400, "the request is not a JSON object")
        return Asked(_queries(message), self._number(message.get("topk")), _flag(message.get("return_scores")))

    def _number(self, topk: Any) -> int:
        if topk is None:
            return self._topk
        if isinstance(topk, bool) or not isinstance(topk, int) or not 0 <= topk <= MAX_TOPK:
            raise _Refused(400, f"topk is a whole number from 0 (which means {self._topk}) to {MAX_TOPK}")
        return topk or self._topk


def _queries(message: Mapping[str, Any]) -> list[str]:
    queries = message.get("queries")
    if queries is None:
        queries = message.get("query")
    if isinstance(queries, str):
        queries = [queries]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _Refused(400, 'the request has "queries", a list of texts, or "query", a text')
    if not 1 <= len(queries) <= MAX_QUERIES:
        raise _Refused(400, f"a request has 1 to {MAX_QUERIES} queries")
    return [query[: protocol.MAX_QUERY] for query in queries]


def _flag(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _Refused(400, "return_scores is true or false")
    return value


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY:
            raise _Refused(413, f"a request has at most {MAX_BODY} bytes", {"Connection": "close"})
    return b"".join(parts)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, _Refused):
        return JSONResponse({"error": error.reason}, error.status, error.headers)
    assert isinstance(error, HTTPException)  # nothing else is handled here
    return JSONResponse({"error": "ask POST /retrieve or GET /health"}, error.status_code, error.headers)
