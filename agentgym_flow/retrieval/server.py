"""Serves a retriever, by default only to this machine: `POST /retrieve` and `GET /health`.

`agentgym_flow.retrieval.protocol` defines the format of requests and answers, which is that of Search-R1. Errors are
answered with a status of at least 400 and one sentence, without tracebacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from agentgym_flow._util import serving
from agentgym_flow._util.http import check_token
from agentgym_flow._util.serving import Refused
from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval import protocol
from agentgym_flow.retrieval.batching import MAX_WAITING, RETRY_AFTER, Batcher, Results
from agentgym_flow.retrieval.corpus import Hit, Retriever

with serving.needing_extra():
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

PATIENCE = 30
"""Seconds to finish pending requests when the server stops."""

CONNECTIONS = 1024
"""The largest number of simultaneous connections."""

DEFAULT_TOPK = 3
"""The default number of passages per query, as in Search-R1."""

MAX_TOPK = 100
"""The largest number of passages per query."""

MAX_BODY = 32 << 20
"""The largest size of a request in bytes. Search-R1 sends the queries of a whole training batch at once."""

MAX_BODIES = 256 << 20
"""The largest total size of all pending requests in bytes."""

MAX_PASSAGES = 1 << 17
"""The largest number of passages per request: 4,096 queries with 32 passages each."""

AT_ONCE = 64
"""The number of results to serialise before yielding to other requests."""

GONE = 499
"""The status in the statistics for a client that disconnected before the answer, as in nginx."""

LAST = 2048
"""Response times are computed over this number of recent answers."""


def serve(
    retriever: Retriever,
    *,
    port: int = 8000,
    host: str = serving.HOST,
    token: str | None = None,
    topk: int = DEFAULT_TOPK,
    max_batch: int = 64,
    max_waiting: int = MAX_WAITING,
    on_ready: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve `retriever` until the process is interrupted or terminated; pending requests are answered first.

    Args:
        retriever: the retriever.
        port: the port; 0 selects a free one.
        host: the address to listen on; anything but the loopback interface requires a token.
        token: the token that clients must send.
        topk: the number of passages if a request does not specify it.
        max_batch: the largest number of queries per search.
        max_waiting: the largest number of waiting queries.
        on_ready: called with the address when the server accepts requests.

    Raises:
        BadSetting: the port is in use or not permitted, or another setting is invalid.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    local = host in serving.HOSTS
    if not local and token is None:
        raise BadSetting(
            f"anyone who can reach {host} could use this retriever; set a token, or listen on {serving.HOST}"
        )
    app = create_app(retriever, token=token, topk=topk, max_batch=max_batch, max_waiting=max_waiting, local=local)
    running = serving.server(app, patience=PATIENCE, connections=CONNECTIONS)
    serving.run(running, port, host, on_ready)


class RetrieveRequest(NamedTuple):
    """The content of a request."""

    queries: list[str]
    topk: int
    scores: bool


def create_app(
    retriever: Retriever,
    *,
    token: str | None = None,
    topk: int = DEFAULT_TOPK,
    max_batch: int = 64,
    max_waiting: int = MAX_WAITING,
    local: bool = True,
) -> Starlette:
    """Return the application around `retriever`.

    Args:
        retriever: the retriever; one thread at a time calls it.
        token: the token that clients must send as `Authorization: Bearer TOKEN`; None to allow all clients.
        topk: the number of passages if a request does not specify it.
        max_batch: the largest number of queries per search.
        max_waiting: the largest number of waiting queries; a request beyond it gets status 503, unless the queue is
            empty.
        local: accept only the host names of this machine, and no requests from web pages.

    Raises:
        BadSetting: the token is empty or not valid in a header, or a number is out of range.
    """
    if token is not None:
        check_token(token)
    if not 1 <= topk <= MAX_TOPK:
        raise BadSetting(f"topk is 1 to {MAX_TOPK}, not {topk}")
    if max_batch < 1 or max_waiting < 1:
        raise BadSetting(f"max_batch and max_waiting are 1 or more, not {max_batch} and {max_waiting}")
    service = _Service(retriever, Batcher(retriever, max_batch=max_batch, max_waiting=max_waiting), token, topk, local)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        searching = asyncio.create_task(service.batcher.run())
        yield
        searching.cancel()  # all requests have been answered
        with contextlib.suppress(asyncio.CancelledError):
            await searching

    return Starlette(
        routes=[Route("/retrieve", service.retrieve, methods=["POST"]), Route("/health", service.health)],
        exception_handlers={Refused: _refused, HTTPException: _refused},
        lifespan=lifespan,
    )


class Metrics:
    """The statistics at `/health`: requests by status, and the times of recent answers."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._seconds: deque[float] = deque(maxlen=LAST)

    def count(self, status: int, seconds: float) -> None:
        """Record a request to `/retrieve`. Times are recorded only for status 200."""
        self._statuses[status] += 1
        if status == 200:
            self._seconds.append(seconds)

    def summary(self) -> dict[str, Any]:
        """Return `requests`, `statuses` and, in milliseconds, `p50_ms` and `p99_ms` (None before the first answer)."""
        times = sorted(self._seconds)
        return {
            "requests": self._statuses.total(),
            "statuses": {str(status): count for status, count in sorted(self._statuses.items())},
            "p50_ms": percentile(times, 0.50),
            "p99_ms": percentile(times, 0.99),
        }


def percentile(times: list[float], share: float) -> float | None:
    """Return a percentile of the sorted `times` (in seconds) in milliseconds; None if there are none."""
    return round(1000 * times[max(0, math.ceil(share * len(times)) - 1)], 3) if times else None


class _Service:
    """The endpoints."""

    def __init__(self, retriever: Retriever, batcher: Batcher, token: str | None, topk: int, local: bool) -> None:
        self._retriever, self.batcher = retriever, batcher
        self._token, self._topk, self._local = token, topk, local
        self._metrics = Metrics()
        self._since = time.monotonic()
        self._held = 0  # bytes of pending requests

    async def retrieve(self, request: Request) -> Response:
        """Answer the queries of a request."""
        start, status = time.monotonic(), 500
        body: list[bytes] = []
        try:
            response = await self._retrieve(request, body)
            status = response.status_code
        except Refused as refused:
            status = refused.status
            raise
        except ClientDisconnect:
            status = GONE
            raise
        finally:
            self._held -= sum(map(len, body))
            self._metrics.count(status, time.monotonic() - start)
        return response

    async def _retrieve(self, request: Request, body: list[bytes]) -> Response:
        self._check_place(request)
        if not self._has_token(request):
            raise Refused(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        await self._receive(request, body)
        asked = self._read(b"".join(body))
        different = list(dict.fromkeys(asked.queries))  # rollouts of a group often send equal queries
        found = await _unless_gone(request, self.batcher.search(different, asked.topk))
        return await _answer(asked, dict(zip(different, found, strict=True)))

    async def _receive(self, request: Request, body: list[bytes]) -> None:
        """Read the request into `body`, counting its bytes in `_held`."""
        async for part in serving.body_of(request, MAX_BODY, f"a request has at most {MAX_BODY} bytes"):
            body.append(part)
            self._held += len(part)
            if self._held > MAX_BODIES:
                raise Refused(
                    503, "the waiting requests are too large; try again later", {"Connection": "close", **RETRY_AFTER}
                )

    async def health(self, request: Request) -> Response:
        """Report that the server is running; with a valid token, also its statistics."""
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
        if self._local and not serving.is_this_machine(request.headers.getlist("host")):
            raise Refused(421, "this retriever accepts only requests addressed to this machine")
        if self._local and "origin" in request.headers:
            raise Refused(403, "this retriever does not answer requests from web pages")

    def _has_token(self, request: Request) -> bool:
        return self._token is None or serving.has_token(request.headers.get("authorization", ""), self._token)

    def _read(self, body: bytes) -> RetrieveRequest:
        try:
            message = protocol.read_json(body)
        except protocol.BadAnswer as error:
            raise Refused(400, f"the request cannot be read: {error}") from None
        if not isinstance(message, Mapping):
            raise Refused(400, "the request is not a JSON object")
        asked = RetrieveRequest(
            _queries(message), self._number(message.get("topk")), _flag(message.get("return_scores"))
        )
        if len(asked.queries) * asked.topk > MAX_PASSAGES:
            raise Refused(413, f"a request can ask for at most {MAX_PASSAGES} passages; split it")
        return asked

    def _number(self, topk: Any) -> int:
        if topk is None:
            return self._topk
        if isinstance(topk, bool) or not isinstance(topk, int) or not 0 <= topk <= MAX_TOPK:
            raise Refused(400, f"topk is an integer from 0 (which means {self._topk}) to {MAX_TOPK}")
        return topk or self._topk


def _queries(message: Mapping[str, Any]) -> list[str]:
    queries = message.get("queries")
    if queries is None:
        queries = message.get("query")
    if isinstance(queries, str):
        queries = [queries]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise Refused(400, 'the request needs "queries", a list of texts, or "query", a text')
    if not queries:
        raise Refused(400, "a request needs at least one query")
    return [query[: protocol.MAX_QUERY] for query in queries]


def _flag(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Refused(400, "return_scores must be true or false")
    return value


async def _unless_gone(request: Request, search: Coroutine[Any, Any, Results]) -> Results:
    """Return the result of `search`. If the client disconnects, cancel it and raise `ClientDisconnect`."""
    searching = asyncio.create_task(search)
    leaving = asyncio.create_task(_leave(request))
    try:
        await asyncio.wait((searching, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not searching.done():
            raise ClientDisconnect
        return searching.result()
    finally:
        searching.cancel()
        leaving.cancel()


async def _leave(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _answer(asked: RetrieveRequest, found: Mapping[str, Sequence[Hit]]) -> Response:
    """Serialise the answer in parts, yielding to other requests in between."""
    written: dict[str, bytes] = {}
    parts = [protocol.ANSWER_START]
    for start in range(0, len(asked.queries), AT_ONCE):
        queries = asked.queries[start : start + AT_ONCE]
        for query in queries:
            if query not in written:
                written[query] = protocol.result_of(found[query], asked.scores)
        parts.append((b", " if start else b"") + b", ".join(written[query] for query in queries))
        if start:
            await asyncio.sleep(0)
    return _Parts([*parts, protocol.ANSWER_END])


class _Parts(Response):
    """A response that is sent in parts, to avoid copying a large body."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(headers={"Content-Length": str(sum(map(len, parts)))}, media_type="application/json")
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response (the ASGI interface)."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return JSONResponse({"error": error.reason}, error.status, error.headers)
    assert isinstance(error, HTTPException)  # no other exception is registered
    return JSONResponse({"error": "use POST /retrieve or GET /health"}, error.status_code, error.headers)
