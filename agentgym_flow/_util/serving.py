"""The base of our HTTP servers: a port on the loopback interface, tokens, bounded bodies, slow clients, a soft stop.

Only this machine reaches the loopback interface, but so do web pages in its browser, through a host name that resolves
to it (DNS rebinding). Servers there accept only requests whose `Host` header names this machine.

uvicorn waits for ever for a client that connects and sends nothing, sends half a request, or does not read its answer.
`server` sets a deadline for each of the three. When too many connections are open, it closes the one that has kept it
waiting longest, so clients that send nothing cannot shut out those that send requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from agentgym_flow.errors import BadSetting, MissingExtra


@contextmanager
def needing_extra() -> Iterator[None]:
    """Raise `MissingExtra` if the imports of a server, in this block, need a package of the extra `serve`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("h11", "httptools", "starlette", "uvicorn"):
            raise
        raise MissingExtra.of("uvicorn" if package == "h11" else package, "serve") from None


with needing_extra():
    import h11
    import uvicorn
    from starlette.requests import ClientDisconnect, Request
    from uvicorn.protocols.http.h11_impl import H11Protocol

HOST = "127.0.0.1"
"""The address that servers listen on."""

HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""The names of this machine in a `Host` header. The port is not checked, because a tunnel may change it."""

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


def listen(port: int, host: str = HOST) -> socket.socket:
    """Return a socket that listens on `port` (0: a free one). Raises `BadSetting` if it is taken or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it, small answers are 40 ms late.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restarted server gets its port again
    try:
        listening.bind((host, port))
        listening.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, socket.gaierror):
            raise BadSetting(f"{host!r} is not an address of this machine") from None
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is taken" if taken else "cannot be used"
        raise BadSetting(f"port {port} {why} ({error}); choose another one, or 0 for any free one") from None
    return listening


def run(
    running: uvicorn.Server, port: int, host: str = HOST, on_ready: Callable[[str], object] = lambda address: None
) -> None:
    """Run a server until a signal ends the process.

    Args:
        running: the server; see `server`.
        port: the port; 0 for a free one.
        host: the address to listen on.
        on_ready: called with the server's address when it accepts connections.

    Raises:
        BadSetting: the port is taken or not allowed.
        KeyboardInterrupt: after Ctrl-C.
    """
    with listen(port, host) as listening:
        on_ready(address_of(listening, host))
        running.run(sockets=[listening])


@contextmanager
def in_thread(running: uvicorn.Server, port: int = 0, host: str = HOST) -> Iterator[str]:
    """Run a server in a thread during the block; yield its address, such as `http://127.0.0.1:40123`."""
    with listen(port, host) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, name="server", daemon=True)
        thread.start()
        try:
            yield address_of(listening, host)
        finally:
            running.should_exit = True
            thread.join()


def address_of(listening: socket.socket, host: str = HOST) -> str:
    """Return the address of a socket that listens on `host`."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


class Refused(Exception):
    """A request is refused.

    Attributes:
        status: the HTTP status.
        reason: one sentence for the client.
        headers: further headers of the answer.
    """

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


async def body_of(request: Request, most: int, reason: str) -> AsyncIterator[bytes]:
    """Yield the parts of a request's body. Raises `Refused` with status 413 and `reason` if it exceeds `most` bytes."""
    length, size = request.headers.get("content-length", ""), 0
    if not length.isdigit() or int(length) <= most:
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            yield part
        else:
            return
    raise Refused(413, reason, {"Connection": "close"})


def is_this_machine(names: list[str]) -> bool:
    """Return whether a request has exactly one `Host` header and it names this machine."""
    try:
        return len(names) == 1 and urlsplit(f"//{names[0]}").hostname in HOSTS
    except ValueError:  # an unclosed bracket
        return False


def has_token(authorization: str, token: str) -> bool:
    """Return whether a header `Authorization` has a bearer token, in constant time."""
    kind, _, given = authorization.partition(" ")
    return kind.lower() == "bearer" and same(given.strip(), token)


def same(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8"))


def server(
    app: Any,
    *,
    patience: int,
    connections: int,
    body: float | None = None,
    websockets: bool = False,
    protocol: type[asyncio.Protocol] | None = None,
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
        protocol: reads requests, see `fast_http`; by default uvicorn's, which passes them to `app`.
    """

    async def quiet(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ClientDisconnect):  # not an error of the server
            await app(scope, receive, send)

    files = _open_files()
    most = min(connections, files * 3 // 4)
    config = uvicorn.Config(
        quiet,
        http=type("_BoundedProtocol", (protocol or _Protocol,), {"most": most, "body": body}),
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=most + 1,
        backlog=min(ACCEPTED, max(1, files // 8)),
        timeout_graceful_shutdown=patience,
        lifespan="on",
        loop="asyncio",  # uvicorn prefers uvloop where it is installed, as beside vLLM, and `fast_http` needs asyncio's
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


class Patient:
    """A connection with deadlines: for what the client is expected to send, and for one that does not read.

    Attributes:
        most: the most connections that are open at a time.
        body: as for `server`.
        expected: the seconds in which the client must send what is expected next; None if the server is at work.
        heard: when the last request was complete.
    """

    most: int
    body: float | None
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    connections: set[Any]
    expected: float | None = None
    heard = 0.0
    _receiving: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def start_waiting(self) -> None:
        """Wait for the first request, and close another connection if there are too many."""
        self.heard = self.loop.time()
        self.expect(HEADERS)
        if len(self.connections) <= self.most:
            return
        silent = [one for one in self.connections if isinstance(one, Patient) and one is not self and one.is_silent]
        if silent:  # otherwise the request gets status 503
            longest = min(silent, key=lambda one: (one.is_sending, one.heard))
            self.connections.discard(longest)
            longest.transport.abort()

    def expect(self, seconds: float | None) -> None:
        """Set the deadline for what is expected next, unless it is expected already."""
        if seconds is None:
            self.heard = self.loop.time()
        if seconds != self.expected:
            self.expected = seconds
            stop(self._receiving)
            self._receiving = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def end_waiting(self) -> None:
        """Cancel the deadlines."""
        stop(self._receiving)
        stop(self._sending)

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        self._sending = self._sending or self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel that deadline: the client reads."""
        stop(self._sending)
        self._sending = None

    @property
    def is_silent(self) -> bool:
        """Whether the server waits for this client."""
        return self.expected is not None

    @property
    def is_sending(self) -> bool:
        """Whether the client has begun to send a body."""
        return self.expected == (BODY if self.body is None else self.body)


class _Protocol(Patient, H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the headers, and close another connection if there are too many."""
        H11Protocol.connection_made(self, transport)
        self.start_waiting()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request."""
        super().data_received(data)
        state = self.conn.their_state
        body = BODY if self.body is None else self.body
        self.expect(HEADERS if state is h11.IDLE else body if state is h11.SEND_BODY else None)

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        H11Protocol.pause_writing(self)
        Patient.pause_writing(self)

    def resume_writing(self) -> None:
        """Cancel that deadline: the client reads."""
        H11Protocol.resume_writing(self)
        Patient.resume_writing(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines."""
        self.end_waiting()
        H11Protocol.connection_lost(self, exc)

    @property
    def is_silent(self) -> bool:
        """Whether the server waits for this client."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def is_sending(self) -> bool:
        """Whether the client has begun to send a body."""
        return self.conn.their_state is h11.SEND_BODY


def stop(clock: asyncio.TimerHandle | None) -> None:
    """Cancel a timer, if there is one."""
    if clock is not None:
        clock.cancel()
