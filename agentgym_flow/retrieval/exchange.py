"""One HTTP request and its answer, within a time and a size that nothing on the other side can stretch.

The timeouts of the standard library are for each piece of an answer, so a server that sends a byte now and then holds
its client for ever. Here every read ends at the deadline of the exchange. Connections are kept and used again.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from agentgym_flow._util.sharing import Lock
from agentgym_flow.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_IDLE = 128
"""Connections that are kept for later."""

_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where a server is: scheme, host, port, and the path of a request."""

    scheme: str
    host: str
    port: int
    path: str


class Answer(NamedTuple):
    """A whole answer: its status, the header Retry-After in seconds (None: absent or a date), and its body."""

    status: int
    retry_after: float | None
    body: bytes


class TooLarge(Exception):
    """An answer is larger than it may be."""


def address_of(url: str, path: str) -> Address:
    """Return the parts of `url`, to which `path` is added unless it ends with it. Raises `BadSetting`."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise BadSetting(f"{url!r} is not an address: {error}") from None
    if not port or not parts.hostname or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise BadSetting(f"{url!r} is not the address of a server; one is http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise BadSetting("the address of a retriever holds no name and password; a token is given apart from it")
    stem = parts.path.rstrip("/")
    return Address(parts.scheme, parts.hostname, port, stem if stem.endswith(path) else stem + path)


class Exchange:
    """Sends requests to one address, over connections that it keeps. Safe in threads and after a fork.

    Args:
        address: where to.
        headers: sent with each request.
        connect_timeout: seconds for a connection to come about.
        read_timeout: seconds in which the server must send something.
        max_answer: bytes that an answer may have.
    """

    def __init__(
        self,
        address: Address,
        headers: Mapping[str, str],
        *,
        connect_timeout: float,
        read_timeout: float,
        max_answer: int,
    ) -> None:
        self._address, self._headers = address, dict(headers)
        self._connect_timeout, self._read_timeout, self._max_answer = connect_timeout, read_timeout, max_answer
        self._idle: list[_Connection] = []
        self._lock = Lock()
        self._process = os.getpid()

    def post(self, body: bytes, deadline: float) -> Answer:
        """Send `body` and return the answer, by `time.monotonic() == deadline`.

        Raises `OSError` (with `TimeoutError`) and `http.client.HTTPException` when it does not come whole, and
        `TooLarge`.
        """
        kept = self._take()
        if kept is not None:
            try:
                return self._post(kept, body, deadline)
            except (ConnectionError, http.client.RemoteDisconnected):
                pass  # most likely the server had closed it meanwhile, as it may; a new one tells
        return self._post(self._connected(deadline), body, deadline)

    def close(self) -> None:
        """Close the connections that are kept."""
        while (kept := self._take()) is not None:
            kept.close()

    def _take(self) -> _Connection | None:
        with self._lock:
            if self._process != os.getpid():  # they belong to the parent: leave them to it
                self._idle, self._process = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _connected(self, deadline: float) -> _Connection:
        scheme, host, port, _ = self._address
        wrapped = socket.create_connection((host, port), _left(deadline, self._connect_timeout))
        try:
            wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if scheme == "https":
                wrapped = ssl.create_default_context().wrap_socket(wrapped, server_hostname=host)
        except BaseException:
            wrapped.close()
            raise
        return _Connection(host, port, _TimedSocket(wrapped, self._read_timeout))

    def _post(self, connection: _Connection, body: bytes, deadline: float) -> Answer:
        connection.timed.deadline = deadline
        whole = False
        try:
            connection.request("POST", self._address.path, body, self._headers)
            with connection.getresponse() as response:
                if response.length is not None and response.length > self._max_answer:  # as announced
                    raise TooLarge
                text = response.read(self._max_answer + 1)
                if len(text) > self._max_answer:
                    raise TooLarge
                if response.length:  # what is missing of the announced length
                    raise http.client.IncompleteRead(text, response.length)
                whole = not response.will_close
                return Answer(response.status, seconds_of(response.getheader("Retry-After")), text)
        finally:
            self._give_back(connection, whole)

    def _give_back(self, connection: _Connection, whole: bool) -> None:
        with self._lock:
            if whole and len(self._idle) < MAX_IDLE and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection that is there already and is not made anew behind one's back."""

    auto_open = 0

    def __init__(self, host: str, port: int, timed: _TimedSocket) -> None:
        super().__init__(host, port)
        self.timed = timed
        self.sock = cast("socket.socket", timed)


class _TimedSocket:
    """The part of a socket that `http.client` uses, with a deadline over all that is sent and read."""

    def __init__(self, wrapped: socket.socket, patience: float) -> None:
        self._wrapped, self._patience = wrapped, patience
        self.deadline = 0.0

    def wait(self) -> None:
        """Give the next operation the time that is left. Raises `TimeoutError` when there is none."""
        self._wrapped.settimeout(_left(self.deadline, self._patience))

    def sendall(self, data: Any) -> None:
        self.wait()
        self._wrapped.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self, self._wrapped.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._wrapped.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, timed: _TimedSocket, raw: io.RawIOBase) -> None:
        self._timed, self._raw = timed, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._timed.wait()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left(deadline: float, at_most: float) -> float:
    left = min(deadline - time.monotonic(), at_most)
    if left <= 0:
        raise TimeoutError("the time for the request is over")
    return left


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds that a header Retry-After asks for; None when it is absent or a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() and len(retry_after) < 6 else None
