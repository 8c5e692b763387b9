"""HTTP requests with hard limits on the time and the size of the response, which another thread can cancel.

It is the standard library's client, so the base install reaches every server. Its timeouts apply to each read, so a
server that sends one byte at a time could block a client forever; here every read also ends at the deadline of the
request. Connections are reused. A request takes 0.12 ms of CPU time, where `httpx2` takes 0.68 ms; with 512 requests
under way, one thread each, 0.31 ms instead of 4.6 ms (2026-11-28, one core), because the pool of `httpx2` looks at all
connections for each request.
"""

from __future__ import annotations

import base64
import encodings.idna  # noqa: F401 (the first connection would import it, and a fork meanwhile leaves its lock held)
import http.client
import io
import math
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

import numpy as np

from agentgym_flow._util.sharing import Lock
from agentgym_flow._util.values import is_number
from agentgym_flow.errors import BadSetting, shown

CONNECT = 3.0
"""Default seconds to establish a connection."""

MOST_IDLE = 1024
"""The largest number of idle connections to a server."""

LARGE = 1 << 20
"""Bytes of a body from which on it is received into `large_room`."""

_PORTS = {"http": 80, "https": 443}
_CHUNK = 1 << 18


def large_room(size: int) -> memoryview:
    """Return memory of `size` bytes, with undefined contents, that is taken as it is written.

    It has what messages need of bytes. NumPy asks Linux for large pages; with small ones, the first write takes three
    times as long.
    """
    return np.empty(size, np.uint8).data


class ServerAddress(NamedTuple):
    """The parts of an address; `path` has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str


def server_address(url: object, example: str, secret: str) -> ServerAddress:
    """Return the parts of an http or https address, with the default port of its scheme.

    Args:
        url: the address; up to 2,000 printable ASCII characters, without a query or a fragment.
        example: a valid address, for messages.
        secret: where the password or token belongs, for messages.

    Raises:
        BadSetting: `url` is not such an address, or contains a name or a password, which the message does not repeat.
    """
    if isinstance(url, str) and "@" in url:
        raise BadSetting(f"the address of a server must not contain a name or a password; {secret}")
    invalid = BadSetting(f"{shown(url)} is not the address of a server; it should look like {example}")
    if not isinstance(url, str) or len(url) > 2000 or not (url.isascii() and url.isprintable()) or " " in url:
        raise invalid
    try:
        parts = urlsplit(url)
        port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError:  # an unclosed bracket, an invalid port
        raise invalid from None
    if parts.scheme not in _PORTS or not port or not parts.hostname or parts.query or parts.fragment:
        raise invalid
    return ServerAddress(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def check_token(token: str) -> str:
    """Return a token that is valid in `Authorization: Bearer TOKEN`. Raises `BadSetting` without naming the token."""
    if not token:
        raise BadSetting("the token is empty; leave it out, or choose a token that is hard to guess")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadSetting("a token has one or more ASCII characters and no blanks")
    return token


def check_seconds(setting: str, value: object) -> None:
    """Raise `BadSetting` if `value` is not a number of seconds above 0."""
    if not is_number(value) or value <= 0:
        raise BadSetting(f"{setting} must be a number of seconds above 0, got {value!r:.60}")


class Answer(NamedTuple):
    """A complete response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def retry_after(self) -> float:
        """The least seconds before the next try that the server asks for; 0 if it does not, or names a date."""
        for name, unit in (("Retry-After-Ms", 1000.0), ("Retry-After", 1.0)):
            given = self.headers.get(name) or ""
            if given.isdecimal() and len(given) < 9:
                return float(given) / unit
        return 0.0


class TryFailed(Exception):
    """There is no usable answer. The text says why, without anything that the server sent.

    Attributes:
        answer: the answer, if it has the status of an error.
        timeout: whether the time of the request was over.
        unreached: whether the server accepted no connection.
        passing: whether another try may succeed.
    """

    def __init__(
        self, text: str, *, answer: Answer | None = None, timeout: bool = False, unreached: bool = False
    ) -> None:
        super().__init__(text)
        self.answer, self.timeout, self.unreached = answer, timeout, unreached
        self.passing = answer is None or answer.status in (408, 409, 429) or answer.status >= 500

    @classmethod
    def of_status(cls, answer: Answer, hints: Mapping[int, str]) -> TryFailed:
        """Return the failure that an error's status is; `hints` say what a status means."""
        hint = hints.get(answer.status, "it moved" if 300 <= answer.status < 400 else "")
        return cls(f"status {answer.status}{f', {hint}' if hint else ''}", answer=answer)


class Call:
    """A handle to cancel a request from another thread: whoever waits for it gets `CancelledError`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], object]] = []
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the request."""
        with self._lock:
            self._cancelled = True
            for stop in self._stops:
                stop()

    def check(self) -> None:
        """Raise `CancelledError` if the request was cancelled."""
        if self._cancelled:
            raise CancelledError

    @contextmanager
    def stopped_by(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` if the request is cancelled in this block; raise `CancelledError` if it was before."""
        with self._lock:
            self._stops.append(stop)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)

    def wait(self, event: threading.Event, until: float) -> bool:
        """Return whether an event happens by the time `until`. Raises `CancelledError`."""
        with self.stopped_by(event.set):
            happened = event.wait(None if until == math.inf else max(0.0, until - time.monotonic()))
        self.check()
        return happened


class Connections:
    """Sends requests to one server over persistent connections. Safe in threads and after a fork.

    Args:
        address: the address of the server.
        headers: the headers of every request.
        connect: seconds to establish a connection.
        idle: seconds to wait for more data.
        most: the largest number of bytes in a response; None for no limit.
        proxies: use the proxies that environment variables such as `HTTPS_PROXY` name.

    Attributes:
        accepted: whether the server has ever accepted a connection.
        connect_seconds: see `connect`.
    """

    def __init__(
        self,
        address: ServerAddress,
        headers: Mapping[str, str] | None = None,
        *,
        connect: float = CONNECT,
        idle: float = math.inf,
        most: int | None = None,
        proxies: bool = False,
    ) -> None:
        self.address, self._headers = address, dict(headers or {})
        self.connect_seconds, self._idle, self._most = connect, idle, most
        self._proxy = _proxy_of(address) if proxies else None
        self._unused: list[http.client.HTTPConnection] = []
        self._lock, self._process = Lock(), os.getpid()
        self.accepted = False

    def send(
        self,
        path: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        until: float = math.inf,
        idle: float | None = None,
        call: Call | None = None,
        large: bool = False,
    ) -> Answer:
        """Make one request and return the response, whatever its status.

        Args:
            path: what follows the address.
            body: the body.
            headers: further headers.
            method: the method.
            until: the value of `time.monotonic()` at which the request ends.
            idle: seconds to wait for more data, if not those of all requests.
            call: a handle to cancel the request.
            large: whether a body of more than `LARGE` bytes with status 200 is a `memoryview`, which takes less time.

        Raises:
            TryFailed: there is no complete response in time.
            CancelledError: another thread cancelled the request.
        """
        call, began, idle = call or Call(), time.monotonic(), self._idle if idle is None else idle
        try:
            if (kept := self._take()) is not None:
                with suppress(ConnectionError):  # the server has probably closed the idle connection; try a new one
                    return self._exchange(kept, (method, path, body, headers or {}), until, idle, call, large)
                call.check()
            return self._exchange(self._connected(until), (method, path, body, headers or {}), until, idle, call, large)
        except TimeoutError as error:
            seconds = round(min(until - began, idle), 1)
            raise TryFailed(f"no answer in {seconds:g} s", timeout=True) from error
        except http.client.IncompleteRead as error:
            raise TryFailed("the connection failed: the answer was cut off") from error
        except (OSError, http.client.HTTPException) as error:
            raise TryFailed(f"the connection failed ({type(error).__name__})") from error
        finally:
            call.check()

    def connect(self, until: float) -> None:
        """Open a connection for a later request, unless there is one. Raises `TryFailed`."""
        self._keep(self._take() or self._connected(until))

    def close(self) -> None:
        """Close the idle connections; later requests open new ones."""
        while (kept := self._take()) is not None:
            kept.close()

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():  # the connections belong to the parent process
                self._unused, self._process = [], os.getpid()
            return self._unused.pop() if self._unused else None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._unused) < MOST_IDLE and self._process == os.getpid():
                self._unused.append(connection)
                return
        connection.close()

    def _connected(self, until: float) -> http.client.HTTPConnection:
        scheme, host, port, _ = self.address
        seconds = min(_left(until), self.connect_seconds)
        proxy = self._proxy
        at = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        if scheme == "https":
            connection: http.client.HTTPConnection
            connection = http.client.HTTPSConnection(*at, timeout=seconds, context=_tls())
            if proxy is not None:
                connection.set_tunnel(host, port, _proxy_headers(proxy))
        else:
            connection = http.client.HTTPConnection(*at, timeout=seconds)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TryFailed(f"the connection failed ({type(error).__name__})", unreached=True) from error
        except BaseException:
            connection.close()
            raise
        connection.sock = cast("socket.socket", _TimedSocket(connection.sock))
        connection.auto_open = 0  # a closed connection is left to `send`
        self.accepted = True
        return connection

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        request: tuple[str, str, bytes | None, Mapping[str, str]],
        until: float,
        idle: float,
        call: Call,
        large: bool,
    ) -> Answer:
        method, path, body, headers = request
        timed = cast("_TimedSocket", connection.sock)
        timed.until, timed.idle, timed.holds = until, idle, 0 < len(body or b"") <= _CHUNK
        complete, target, headers = False, self.address.path + path, {**self._headers, **headers}
        if self._proxy is not None and self.address.scheme == "http":
            netloc = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
            target, headers = f"http://{netloc}:{self.address.port}{target}", headers | _proxy_headers(self._proxy)
        try:
            with call.stopped_by(timed.shut_down):
                with suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before the end
                    connection.request(method, target, body, headers)
                with connection.getresponse() as response:
                    content = self._content(response, large and response.status == 200)
                    complete = not response.will_close
                    return Answer(response.status, response.headers, content)
        finally:
            if complete:
                self._keep(connection)
            else:
                connection.close()

    def _content(self, response: http.client.HTTPResponse, large: bool) -> bytes:
        most = math.inf if self._most is None else self._most
        if response.length is not None:  # according to Content-Length
            if response.length > most:
                raise TryFailed("the answer is too large")
            if not large or response.length <= LARGE:
                return response.read()
            room = large_room(response.length)
            if (missing := len(room) - response.readinto(room)) > 0:
                raise http.client.IncompleteRead(b"", missing)
            return cast("bytes", room)
        parts, size = [], 0
        while part := response.read(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > most:
                raise TryFailed("the answer is too large")
        return b"".join(parts)


class _TimedSocket:
    """The part of the socket interface that `http.client` uses, with a deadline for all operations."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._wrapped = wrapped
        self.until = self.idle = math.inf
        self.holds, self._held = False, b""  # the next part is a head, which is sent together with a short body

    def wait(self) -> None:
        """Set the timeout of the next operation to the remaining time. Raises `TimeoutError` if there is none."""
        seconds = min(_left(self.until), self.idle)
        self._wrapped.settimeout(None if seconds == math.inf else seconds)

    def sendall(self, data: Any) -> None:
        if self.holds:  # a server that gets both at once is woken up once
            self.holds, self._held = False, data
            return
        left, self._held = memoryview(self._held + data if self._held else data), b""
        while left:  # the timeout of `socket.sendall` holds for all of the data, however much it is
            self.wait()
            left = left[self._wrapped.send(left[:_CHUNK]) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self, self._wrapped.makefile("rb", buffering=0)))

    def shut_down(self) -> None:
        with suppress(OSError):
            self._wrapped.shutdown(socket.SHUT_RDWR)

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


def _proxy_of(address: ServerAddress) -> SplitResult | None:
    from urllib.request import getproxies, proxy_bypass

    found = urlsplit(getproxies().get(address.scheme, ""))
    return None if found.scheme != "http" or proxy_bypass(address.host) else found


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    name = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(name.encode()).decode('ascii')}"}


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline of the request has passed")
    return left


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:  # a system without certificates, or with a folder of them
        with suppress(ImportError):
            import certifi

            context.load_verify_locations(certifi.where())
    return context
