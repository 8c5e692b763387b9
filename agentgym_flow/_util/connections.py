"""A uvicorn server that slow clients cannot block: their time and the number of open connections are limited.

uvicorn waits for ever for a client that connects and sends nothing, sends half a request, or does not read its answer.
This server sets a deadline for each of the three. When too many connections are open, it closes the one that has kept
it waiting longest, so clients that send nothing cannot shut out those that send requests.
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
        patience: when the server stops, seconds that requests under way have to finish.
        connections: the most open at a time; fewer if the process may not open that many files. A further connection
            replaces the one that has been silent longest; if all have requests under way, it gets status 503.
        body: seconds in which a client must send its body; `BODY` if None.
        websockets: accept WebSockets as well, which needs the package `websockets`. Clients that do not answer pings
            are disconnected; the application sets all other deadlines.
    """

    async def quiet(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ClientDisconnect):  # not an error of the server
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
        """Start with the longest queue of pending connections; with a short one, a burst of clients loses a second."""
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(socket.SOMAXCONN)  # asyncio uses `backlog` for this queue and for the accepted connections


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines. At most `most` connections are open; `body` is as for `server`."""

    most: int
    body: float | None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the headers, and close another connection if there are too many."""
        super().connection_made(transport)
        self._heard = self.loop.time()  # when the last request was complete
        self._expected: Any = None  # h11.IDLE: headers; h11.SEND_BODY: a body; None: nothing
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._sending = self._sending or self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel that deadline: the client reads."""
        super().resume_writing()
        _stop(self._sending)
        self._sending = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines."""
        _stop(self._receiving)
        _stop(self._sending)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set the deadline for the part of the request that is expected next, if any."""
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
        """Whether the server waits for this client."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)


def _stop(clock: asyncio.TimerHandle | None) -> None:
    if clock is not None:
        clock.cancel()
