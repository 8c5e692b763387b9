"""A manager over HTTP: `POST /v1/CALL` for each call of `Flow`, with a bearer token: one of trainers, one of workers.

Mistakes of clients are answered with a status of 400 or above and one sentence; errors of the package travel under
their names, with status 422. Bodies have a digest each way. There is no encryption here: between machines, use a
tunnel (SSH, WireGuard) or a proxy that speaks TLS.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentgym_flow._util import loopback
from agentgym_flow.dataflow.network import calls
from agentgym_flow.dataflow.network.serving import Switchboard
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import AgentGymFlowError
from agentgym_flow.retrieval.protocol import check_token

with loopback.needing_extra():
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.routing import Mount
    from starlette.types import Receive, Scope, Send

    from agentgym_flow._util.connections import server

if TYPE_CHECKING:
    import uvicorn

CONNECTIONS = 4096
"""The most connections at a time, fewer where the process may not open as many files. A worker uses about three. Those
beyond are answered with status 503 while all others are busy, and ask again."""

PATIENCE = 5
"""Requests under way have so many seconds to be answered when the server stops."""

UPLOAD = 3600.0
"""Seconds that a body may take; who has no token is refused before the body is read."""

CHUNK = 1 << 20
"""So many bytes of an answer are written at a time, so that a slow reader has a deadline for each of them alone."""

_logger = logging.getLogger(__name__)


class _RequestRefused(Exception):
    def __init__(self, status: int, reason: str, error: str = "Refused") -> None:
        super().__init__(reason)
        self.status, self.answer = status, {"error": error, "message": reason}


def create_app(
    flow: Flow,
    *,
    token: str,
    worker_token: str | None = None,
    largest: int = calls.WEIGHTS_BODY,
    is_ending: Callable[[], bool] = lambda: False,
) -> Starlette:
    """Return the ASGI application around a manager.

    Args:
        flow: the manager.
        token: what a client has to send as `Authorization: Bearer TOKEN`.
        worker_token: the same for those who may only make the calls in `calls.WORKER_CALLS`; None: there are none.
        largest: the most bytes of a message with weights.
        is_ending: whether the server is stopping: calls that wait then end.

    Raises:
        BadSetting: a token is empty or none that a client can send.
    """
    good_for = {check_token(token): frozenset(calls.CALLS)}
    if worker_token is not None:
        good_for.setdefault(check_token(worker_token), calls.WORKER_CALLS)
    endpoint = _Endpoint(flow, good_for, largest)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        endpoint.switchboard = Switchboard(flow, is_ending)
        yield
        endpoint.switchboard.close()

    return Starlette(routes=[Mount("/", app=endpoint)], lifespan=lifespan)


class _Endpoint:
    """Answers every request, whatever its path."""

    switchboard: Switchboard

    def __init__(self, flow: Flow, good_for: Mapping[str, frozenset[str]], largest: int) -> None:
        self._good_for, self._largest = good_for, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI asks for it."""
        request = Request(scope, receive)
        status, kind, headers = 200, "application/json", {}
        try:
            answer, kind = await self._answer(request)
        except _RequestRefused as refused:
            status, answer = refused.status, calls.dumped(refused.answer)
            headers = {"Connection": "close"} | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
        except AgentGymFlowError as error:
            status, answer = 422, calls.dumped(calls.error_of(error))
        except ClientDisconnect:
            raise
        except Exception as error:  # a defect, or a full disk: clients ask again until their deadline
            _logger.exception("a call failed")
            status, answer = 500, calls.dumped({"error": "Failed", "message": type(error).__name__})
        await _send(send, status, answer, {"Content-Type": kind, **headers})

    async def _answer(self, request: Request) -> tuple[bytes, str]:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        # All of them are compared, so that the time tells nothing.
        allowed = [names for token, names in self._good_for.items() if loopback.same(given.strip(), token)]
        if kind.lower() != "bearer" or not allowed:
            raise _RequestRefused(401, "the token is missing or wrong")
        name = request.url.path.removeprefix("/v1/")
        if name not in calls.CALLS or request.url.path != f"/v1/{name}":
            raise _RequestRefused(404, "there is no such call; is this another version of agentgym_flow?")
        if name not in allowed[0]:
            raise _RequestRefused(403, f"this is the token of workers, and {name} is a call of trainers")
        if request.method != "POST":
            raise _RequestRefused(405, "calls are made with POST")
        call = calls.CALLS[name]
        arguments = await self._arguments(call, request)
        answer = await self.switchboard.call(name, arguments, request.is_disconnected)
        if call.result is bytes:
            return answer, "application/octet-stream"
        return calls.dumped(answer), "application/json"

    async def _arguments(self, call: calls.RemoteCall, request: Request) -> dict[str, Any]:
        body = await self._body(request, self._largest if call.limit is None else call.limit)
        try:
            if call.raw is None:
                return calls.arguments_of(call, calls.loaded(body))
            texts = request.query_params
            given = {one: calls.loaded(text.encode("utf-8", "replace")) for one, text in texts.items()}
            return {**calls.arguments_of(call, given), call.raw: body}
        except calls.Malformed as error:
            raise _RequestRefused(400, str(error)) from None

    async def _body(self, request: Request, limit: int) -> bytes:
        parts: list[bytes] = []
        length = request.headers.get("content-length", "")
        left = limit - (int(length) if length.isdigit() else 0)
        if left >= 0:
            left = limit
            async for part in request.stream():
                left -= len(part)
                if left < 0:
                    break
                parts.append(part)
        if left < 0:
            raise _RequestRefused(413, f"a request of this call has at most {limit:,} bytes")
        body = b"".join(parts)
        if request.headers.get(calls.DIGEST, "") != calls.digest_of(body):
            raise _RequestRefused(400, "the body is not what its digest says", "Corrupted")
        return body


@contextmanager
def serving(
    flow: Flow, token: str, worker_token: str | None = None, *, port: int = 0, host: str = loopback.HOST
) -> Iterator[str]:
    """Within, a thread serves `flow`; gives the address, such as `http://127.0.0.1:40123`.

    Args:
        flow: the manager.
        token: what clients have to send.
        worker_token: what workers may send instead, see `create_app`.
        port: the port; 0: a free one.
        host: the address to listen on; another one than the loopback interface can be reached by other machines.

    Raises:
        BadSetting: the port is taken or may not be used, or the token cannot be sent.
    """
    running = _server(flow, token, worker_token)
    with loopback.listen(port, host) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, name="flow-http", daemon=True)
        thread.start()
        try:
            yield _address(listening, host)
        finally:
            running.should_exit = True
            thread.join()


def serve(
    flow: Flow,
    token: str,
    worker_token: str | None = None,
    *,
    port: int,
    host: str = loopback.HOST,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve `flow` until the process is asked to end; `on_ready` gets the address. See `serving`.

    Raises `KeyboardInterrupt` after Ctrl-C.
    """
    running = _server(flow, token, worker_token)
    with loopback.listen(port, host) as listening:
        on_ready(_address(listening, host))
        running.run(sockets=[listening])


def _server(flow: Flow, token: str, worker_token: str | None) -> uvicorn.Server:
    app = create_app(flow, token=token, worker_token=worker_token, is_ending=lambda: running.should_exit)
    running = server(app, patience=PATIENCE, connections=CONNECTIONS, body=UPLOAD)
    return running


def _address(listening: socket.socket, host: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


async def _send(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    every = {"Content-Length": str(len(body)), calls.DIGEST: calls.digest_of(body), **headers}
    encoded = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    view = memoryview(body)
    for start in range(0, len(body), CHUNK):
        part = bytes(view[start : start + CHUNK])
        await send({"type": "http.response.body", "body": part, "more_body": start + CHUNK < len(body)})
    if not body:
        await send({"type": "http.response.body", "body": b""})
