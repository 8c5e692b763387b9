"""The HTTP client of a manager."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from agentgym_flow._util.loopback import ServerAddress, server_address
from agentgym_flow.dataflow.network import calls
from agentgym_flow.dataflow.network.remote import NoAnswer, RemoteFlow
from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.protocol import check_token

ANSWER = 60.0
"""Seconds without a byte after which an attempt fails, in addition to those that the call waits."""

KEPT = 4.0
"""Seconds for which an idle connection is reused; the server closes it after 5."""

_UNREADABLE = (OSError, http.client.HTTPException)


class HttpFlow(RemoteFlow):
    """Implements `agentgym_flow.dataflow.records.Flow` over HTTP. Thread-safe; connections are kept open.

    Args:
        url: the address of the manager or of a relay, such as `http://127.0.0.1:8300`.
        token: its token.
        deadline: seconds for which a call is retried.

    Raises:
        BadSetting: the address or the token is invalid.
    """

    def __init__(self, url: str, token: str, *, deadline: float = 600.0) -> None:
        self._address = _manager_at(url)
        self.url = url.rstrip("/")
        super().__init__(f"the manager at {self.url}", deadline=deadline)
        self._token = check_token(token)
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []  # with the time of last use, in order
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections; calls between two attempts raise `FlowDown`."""
        super().close()
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    # ---------------------------------------------------------------- inside
    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        call = calls.CALLS[name]
        path = f"/v1/{name}"
        if call.raw is None:
            body = calls.dumped(arguments)
        else:
            body = arguments[call.raw]
            others = {one: value for one, value in arguments.items() if one != call.raw}
            path += "?" + urlencode({one: calls.dumped(value) for one, value in others.items()})
        return self._answer(call, path, body, ANSWER + arguments.get("wait", 0.0))

    def _answer(self, call: calls.RemoteCall, path: str, body: bytes, patience: float) -> Any:
        status, answer = self._post(path, body, patience)
        if status == 200 and call.result is bytes:
            return answer
        try:
            value = calls.loaded(answer)
            if status == 200:
                return calls.read(call.result, value, "the answer")
            if status == 422:
                calls.raise_error(value)
        except calls.Malformed as error:
            raise NoAnswer(f"HTTP {status}, {error}") from None
        if status >= 500 or not isinstance(value, dict) or value.get("error") == "Corrupted":
            raise NoAnswer(f"HTTP {status}")
        advice = "; take the token of this manager" if status == 401 else ""
        raise BadSetting(f"{self.url} refused {call.name} with HTTP {status}: {value.get('message')!s:.300}{advice}")

    def _post(self, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
        """Make one attempt; return status and body of the answer, after checking its digest."""
        headers = {"Authorization": f"Bearer {self._token}", calls.DIGEST: calls.digest_of(body)}
        with self._connection(patience) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before the end
                connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            if response.headers.get(calls.DIGEST, "") != calls.digest_of(answer):
                raise NoAnswer(f"HTTP {response.status}, and the answer does not match its digest")
            return response.status, answer

    @contextmanager
    def _connection(self, patience: float) -> Iterator[http.client.HTTPConnection]:
        connection = self._take_idle()
        if connection is None:
            kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
            connection = kind(self._address.host, self._address.port)
        connection.timeout = patience
        if connection.sock is not None:
            connection.sock.settimeout(patience)
        kept = False
        try:
            yield connection
            kept = not self._closed.is_set()
        except _UNREADABLE as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from None
        finally:
            if kept:
                with self._lock:
                    self._idle.append((time.monotonic(), connection))
            else:
                connection.close()

    def _take_idle(self) -> http.client.HTTPConnection | None:
        oldest = time.monotonic() - KEPT
        with self._lock:
            while self._idle and self._idle[0][0] < oldest:
                self._idle.pop(0)[1].close()
            return self._idle.pop()[1] if self._idle else None


def _manager_at(url: str) -> ServerAddress:
    address = server_address(url, "http://127.0.0.1:8300", "pass the token as a separate setting")
    if address.path:
        raise BadSetting(f"{url!r:.100} is not the address of a manager, such as http://127.0.0.1:8300")
    return address
