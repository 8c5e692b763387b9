"""HTTP/1.1 for a server with many small requests: a call takes a third of the time that it takes with h11 and ASGI.

`httptools` parses the heads of requests. Bodies have a known length; requests without one (`Transfer-Encoding:
chunked`) get status 411. Each request is one call of an application: no routing, no streams. The limits on connections
and slow clients are those of `serving`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from agentgym_flow._util.http import LARGE, large_room
from agentgym_flow._util.serving import BODY, HEADERS, Patient, Refused, needing_extra

with needing_extra():
    import httptools

LONGEST_HEAD = 1 << 16
"""The most bytes of a request line and headers."""

PART = 1 << 20
"""Bytes of an answer that are written at a time; slow readers have a deadline for each part."""


class Head(NamedTuple):
    """A request without its body: the method, the path, the query, and headers by their names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


class HttpReply(NamedTuple):
    """The answer to a request: status, headers and body. A body that has only a length and slices is read in parts."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Application(ABC):
    """Answers requests. Both methods may raise `Refused`."""

    @abstractmethod
    def check(self, head: Head) -> tuple[int, str]:
        """Return the most bytes that the body of a request may have, and what to say if it has more."""

    @abstractmethod
    async def answer(self, head: Head, body: bytes | memoryview, gone: Callable[[], Awaitable[object]]) -> HttpReply:
        """Return the answer; `gone` returns when the client has disconnected."""

    @abstractmethod
    def failed(self, error: Exception) -> HttpReply:
        """Return the answer to a request that failed or was refused."""


class _HeadReader:
    """What `httptools` calls for the parts of a request."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: dict[str, str] = {}

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        one, text = name.decode("ascii").lower(), value.decode("latin-1")
        self.headers[one] = f"{self.headers[one]},{text}" if one in self.headers else text


def read_head(given: bytes) -> tuple[Head, bool]:
    """Return a request without its body, and whether the connection stays open. Raises `Refused`."""
    found = _HeadReader()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(given)
    except httptools.HttpParserUpgrade:
        raise Refused(400, "this server speaks HTTP/1.1 only") from None
    except (httptools.HttpParserError, UnicodeDecodeError):
        raise Refused(400, "this is not a request of HTTP/1.1") from None
    if parser.get_http_version() not in ("1.0", "1.1"):
        raise Refused(400, "this server speaks HTTP/1.1 only")
    path, _, query = found.target.decode("latin-1").partition("?")
    return Head(parser.get_method().decode("ascii"), path, query, found.headers), parser.should_keep_alive()


def length_of(head: Head) -> int:
    """Return the length of a request's body. Raises `Refused` if it is not given as one number."""
    length = head.headers.get("content-length", "0")
    if "transfer-encoding" in head.headers:
        raise Refused(411, "give the length of the body as Content-Length")
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise Refused(400, "Content-Length is not a number")
    return int(length)


class FastProtocol(Patient, asyncio.Protocol):
    """One connection. It reads a request, answers it, and reads the next one.

    Subclasses have an `application`. The other arguments are uvicorn's.
    """

    application: Application

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        self.connections, self._tasks, self._keep_alive = server_state.connections, server_state.tasks, config
        self._parts: list[bytes] = []
        self._missing = 0  # bytes of the body
        self._head: Head | None = None
        self._stays = True
        self._call: asyncio.Task[None] | None = None
        self._gone, self._can_write = asyncio.Event(), asyncio.Event()
        self._can_write.set()

    # ---------------------------------------------------------------- asyncio and uvicorn
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, and close another connection if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connections.add(self)
        self.start_waiting()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request; those of the next one wait until this one is answered."""
        self._parts.append(data)
        if self._call is not None:
            self.transport.pause_reading()
        elif self._head is None:
            self._read_head()
        else:
            self._missing -= len(data)
            self._read_body()

    def pause_writing(self) -> None:
        """Write no more, and start the deadline for a client that does not read."""
        super().pause_writing()
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the call under way that the client has disconnected."""
        self.connections.discard(self)
        self.end_waiting()
        self._gone.set()
        self._can_write.set()

    def shutdown(self) -> None:
        """Close the connection after the call under way."""
        self._stays = False
        if self._call is None:
            self.transport.close()

    # ---------------------------------------------------------------- a request
    def _read_head(self) -> None:
        data = b"".join(self._parts)
        end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD)
        if end < 0:
            self._parts = [data]
            self.expect(HEADERS)
            if len(data) > LONGEST_HEAD:
                self._begin(self._refuse(Refused(431, "the headers are too long")))
            return
        try:
            if len(self.connections) > self.most:
                raise Refused(503, "too many connections are open")
            head, stays = read_head(data[: end + 4])
            most, reason = self.application.check(head)
            if (length := length_of(head)) > most:
                raise Refused(413, reason)
        except Refused as refused:
            self._begin(self._refuse(refused))
            return
        self._head, self._stays = head, self._stays and stays
        self._parts = [data[end + 4 :]]
        self._missing = length - len(self._parts[0])
        if head.headers.get("expect", "").lower() == "100-continue" and self._missing > 0:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._read_body()

    def _read_body(self) -> None:
        if self._missing > 0:
            self.expect(BODY if self.body is None else self.body)
            if self._missing > LARGE:
                self.transport.set_protocol(_LargeBody(self, b"".join(self._parts), self._missing))
            return
        assert self._head is not None
        body, rest = b"".join(self._parts), b""
        if self._missing < 0:
            body, rest = body[: self._missing], body[self._missing :]
        self._parts = [rest] if rest else []
        self._begin(self._answer(self._head, body))

    def take_body(self, body: memoryview) -> None:
        """Go on with the body that `_LargeBody` has read."""
        assert self._head is not None
        self._parts = []
        self.transport.set_protocol(self)
        self._begin(self._answer(self._head, body))

    def _begin(self, call: Any) -> None:
        self.expect(None)
        self._call = self.loop.create_task(call)
        self._tasks.add(self._call)
        self._call.add_done_callback(self._end)

    def _end(self, call: asyncio.Task[None]) -> None:
        self._tasks.discard(call)
        self._head, self._call = None, None
        if call.cancelled() or call.exception() is not None or not self._stays:
            self.transport.close()
            return
        self.transport.resume_reading()
        if self._parts:
            self._read_head()
        else:
            self.expect(self._keep_alive.timeout_keep_alive)

    # ---------------------------------------------------------------- an answer
    async def _answer(self, head: Head, body: bytes | memoryview) -> None:
        try:
            await self._write(*await self.application.answer(head, body, self._gone.wait))
        except Exception as error:
            await self._refuse(error)

    async def _refuse(self, error: Exception) -> None:
        self._stays = self._stays and not isinstance(error, Refused)
        await self._write(*self.application.failed(error))

    async def _write(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        every = {**headers, "Content-Length": len(body), **({} if self._stays else {"Connection": "close"})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode("ascii")
        view = memoryview(body) if isinstance(body, bytes) else body
        self.transport.write(head + view[:PART])
        for start in range(PART, len(body), PART):
            await self._can_write.wait()
            if self._gone.is_set():
                return
            self.transport.write(view[start : start + PART])
        await self._can_write.wait()


class _LargeBody(asyncio.BufferedProtocol):
    """Receives the rest of a large body into its place; then the connection goes on.

    A client that sends nothing takes no memory.
    """

    def __init__(self, connection: FastProtocol, begun: bytes, missing: int) -> None:
        self._connection, self._place = connection, len(begun)
        self._body = large_room(len(begun) + missing)
        self._body[: self._place] = begun

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to write what comes next."""
        return self._body[self._place :]

    def buffer_updated(self, nbytes: int) -> None:
        """Note that so many bytes have come."""
        self._place += nbytes
        if self._place == len(self._body):
            self._connection.take_body(self._body)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._connection.connection_lost(exc)
