"""Connections that cannot lock a server: a client has limited time, and so many connections at a time are open.

uvicorn waits for ever for a client that connects and sends nothing, sends half a request, or does not read its answer.
Here each of the three has a deadline. When too many connections are open, the one that has kept the server waiting for
longest is closed in favour of the new one, so clients that send nothing cannot shut out those that ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0
"""Seconds from connecting, or from the first byte of the next request, until the headers are complete."""

BODY = 60.0
"""Seconds from there until the body is complete."""

READING = 60.0
"""Seconds that a client may leave a full buffer of its answer unread."""


ACCEPTED = 128
"""The most connections that are accepted before they are counted."""


MESSAGE = 1 << 20
"""Bytes of the longest message on a WebSocket."""


def server(
    app: Any, *, patience: int, connections: int, body: float | None = None, websockets: bool = False
) -> uvicorn.Server:
    """Return a server of the ASGI application `app`.

    Args:
        app: the application.
        patience: requests under way have so many seconds to end when the server stops.
        connections: the most at a time, or fewer where the process may not open as many files. One more closes the
            connection that sent nothing for longest; if all have requests under way, it is answered with status 503.
        body: a request has so many seconds for its body; `BODY` if None.
        websockets: accept WebSockets as well, which needs the package `websockets`. Clients that answer no ping are
            disconnected; the application sets all other deadlines.
    """

    async def quiet(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ClientDisconnect):  # a client that leaves is not an error of the server
            await app(scope, receive, send)

    files = _open_files()
    most = min(connections, files * 3 // 4)
    config = uvicorn.Config(
        quiet,
        http=type("_BoundedProtocol", (_Protocol,), {"most": most, "body": body}),
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=most + 1,
        backlog=min(ACCEPTED, max(1, files // 8)),
        timeout_graceful_shutdown=patience,
        lifespan="on",
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=MESSAGE,
    )
    return _ReadyServer(config)


def _open_files() -> int:
    """Return how many files this process may have open, sockets included."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows, where sockets are not counted as files
        return 1 << 20
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


class _ReadyServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; connections that are not accepted yet wait, or else a burst of clients would lose a second."""
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(socket.SOMAXCONN)  # asyncio takes `backlog` for both


class _Protocol(H11Protocol):
    """HTTP/1.1 by uvicorn, with deadlines and a bound. `most` connections are open at a time.

    A request has `body` seconds for its body, or `BODY`.
    """

    most: int
    body: float | None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and make room when there are too many connections."""
        super().connection_made(transport)
        self._heard = self.loop.time()  # when the last complete request was there
        self._expected: Any = None  # h11.IDLE: headers; h11.SEND_BODY: a body; None: nothing
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """Start the clock for a client that does not read."""
        super().pause_writing()
        self._sending = self._sending or self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that clock: the client reads."""
        super().resume_writing()
        _stop(self._sending)
        self._sending = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        _stop(self._receiving)
        _stop(self._sending)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Let the deadline be that of the part of the request which is expected now, if any is."""
        state = self.conn.their_state
        expected = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if expected is None:
            self._heard = self.loop.time()
        if expected is not self._expected:
            self._expected = expected
            _stop(self._receiving)
            if expected is not None:
                body = BODY if self.body is None else self.body
                seconds = HEADERS if expected is h11.IDLE else body
                self._receiving = self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        silent = [one for one in self.connections if isinstance(one, _Protocol) and one is not self and one.is_silent]
        if silent:  # otherwise uvicorn's `limit_concurrency` answers with status 503
            longest = min(silent, key=lambda one: (one.conn.their_state is h11.SEND_BODY, one._heard))
            self.connections.discard(longest)
            longest.transport.abort()

    @property
    def is_silent(self) -> bool:
        """Whether the server waits for this client, and not the other way round."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)


def _stop(clock: asyncio.TimerHandle | None) -> None:
    if clock is not None:
        clock.cancel()
