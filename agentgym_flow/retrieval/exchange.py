"""HTTP requests with hard limits on the time and the size of the response.

The timeouts of the standard library apply to each read, so a server that sends one byte at a time could block a client
forever. Here every read ends at the deadline of the request. Connections are reused.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agentgym_flow._util.sharing import Lock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentgym_flow._util.loopback import ServerAddress

MAX_IDLE = 128
"""The largest number of idle connections."""


class Answer(NamedTuple):
    """A response: status, the header Retry-After in seconds (None if absent or a date), and body."""

    status: int
    retry_after: float | None
    body: bytes


class TooLarge(Exception):
    """A response exceeds the size limit."""


class Exchange:
    """Sends requests to one address over persistent connections. Safe in threads and after a fork.

    Args:
        address: the address.
        headers: the headers of every request.
        connect_timeout: seconds to establish a connection.
        read_timeout: seconds to wait for more data.
        max_answer: the largest number of bytes in a response.

    Attributes:
        accepted: whether the server has ever accepted a connection.
    """

    def __init__(
        self,
        address: ServerAddress,
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
        self.accepted = False

    def post(self, body: bytes, deadline: float) -> Answer:
        """Send `body` and return the response, at the latest when `time.monotonic()` reaches `deadline`.

        Raises `OSError` (including `TimeoutError`) or `http.client.HTTPException` if the response is incomplete, and
        `TooLarge`.
        """
        kept = self._take()
        if kept is not None:
            try:
                return self._post(kept, body, deadline)
            except (ConnectionError, http.client.RemoteDisconnected):
                pass  # the server has probably closed the idle connection; try a new one
        return self._post(self._connected(deadline), body, deadline)

    def connect(self, deadline: float) -> None:
        """Open a connection for a later request, unless an idle one is there. Raises `OSError`."""
        self._give_back(self._take() or self._connected(deadline), True)

    def close(self) -> None:
        """Close the idle connections."""
        while (kept := self._take()) is not None:
            kept.close()

    def _take(self) -> _Connection | None:
        with self._lock:
            if self._process != os.getpid():  # the connections belong to the parent process
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
        self.accepted = True
        return _Connection(host, port, _TimedSocket(wrapped, self._read_timeout))

    def _post(self, connection: _Connection, body: bytes, deadline: float) -> Answer:
        connection.timed.deadline = deadline
        whole = False
        try:
            connection.request("POST", self._address.path, body, self._headers)
            with connection.getresponse() as response:
                if response.length is not None and response.length > self._max_answer:  # according to Content-Length
                    raise TooLarge
                text = response.read(self._max_answer + 1)
                if len(text) > self._max_answer:
                    raise TooLarge
                if response.length:  # the number of missing bytes
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
    """An established connection that `http.client` never reopens."""

    auto_open = 0

    def __init__(self, host: str, port: int, timed: _TimedSocket) -> None:
        super().__init__(host, port)
        self.timed = timed
        self.sock = cast("socket.socket", timed)


class _TimedSocket:
    """The part of the socket interface that `http.client` uses, with a deadline for all operations."""

    def __init__(self, wrapped: socket.socket, patience: float) -> None:
        self._wrapped, self._patience = wrapped, patience
        self.deadline = 0.0

    def wait(self) -> None:
        """Set the timeout of the next operation to the remaining time. Raises `TimeoutError` if there is none."""
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
        raise TimeoutError("the deadline of the request has passed")
    return left


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds in a header Retry-After; None if it is absent or a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() and len(retry_after) < 6 else None
