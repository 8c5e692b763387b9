"""The HTTP server of a manager: `POST /v3/CALL` for each call of `Flow`, with the bearer token of trainers or workers.

Invalid requests get a status of 400 or above and one sentence; errors of the package are sent by name, with status 422.
All bodies have a digest. There is no encryption: between machines, use a tunnel (SSH, WireGuard) or a TLS proxy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from urllib.parse import parse_qsl

from agentgym_flow._util.http import check_token
from agentgym_flow._util.serving import HOST, Refused, body_of, has_token, in_thread, needing_extra, run, server
from agentgym_flow.dataflow import network
from agentgym_flow.dataflow.network import Switchboard
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import AgentGymFlowError

with needing_extra():
    import uvicorn
    from starlette.requests import ClientDisconnect, Request
    from starlette.types import ASGIApp, Receive, Scope, Send

CONNECTIONS = 4096
"""The most connections at a time; fewer if the process may not open that many files. A worker uses about three. Further
ones get status 503 while all others are busy, and retry."""

PATIENCE = 5
"""Seconds that requests under way have to finish when the server stops."""

UPLOAD = 3600.0
"""Seconds that a body may take; requests without a token are refused before their body is read."""

CHUNK = 1 << 20
"""Bytes of an answer that are written at a time; slow readers have a deadline for each chunk."""

_DIGEST = network.DIGEST.lower().encode("ascii")
_logger = logging.getLogger(__name__)


class Corrupted(Refused):
    """The body of a request does not match its digest; the client repeats the request."""


def create_app(
    flow: Flow,
    *,
    token: str,
    worker_token: str | None = None,
    largest: int = network.WEIGHTS_BODY,
    is_ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Return the ASGI application around a manager.

    Args:
        flow: the manager.
        token: what clients must send as `Authorization: Bearer TOKEN`.
        worker_token: a token that allows only the calls in `network.WORKER_CALLS`; None for no such token.
        largest: the most bytes of a message with weights.
        is_ending: whether the server is stopping, which ends waiting calls.

    Raises:
        BadSetting: a token is empty, or cannot be sent in a header.
    """
    good_for = {check_token(token): frozenset(network.CALLS)}
    if worker_token is not None:
        good_for.setdefault(check_token(worker_token), network.WORKER_CALLS)
    return _Endpoint(Switchboard(flow, is_ending), good_for, largest)


class _Endpoint:
    """Answers every request, whatever its path. A framework's routing and requests would double the time of a call."""

    def __init__(self, switchboard: Switchboard, good_for: Mapping[str, frozenset[str]], largest: int) -> None:
        self._switchboard, self._good_for, self._largest = switchboard, good_for, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self._switchboard.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        status, headers = 200, {}
        try:
            answer = await self._answer(scope, receive)
        except Refused as refused:
            answer = network.refusal(type(refused).__name__, refused.reason)
            status = refused.status
            headers = {"Connection": "close"} | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
        except AgentGymFlowError as error:
            status, answer = 422, network.refusal_of(error)
        except ClientDisconnect:
            raise
        except Exception as error:  # a defect, or a full disk: clients retry until their deadline
            _logger.exception("a call failed")
            status, answer = 500, network.refusal("Failed", type(error).__name__)
        await _send(send, status, answer, headers)

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        given, path = headers.get(b"authorization", ""), scope["path"]
        # Compare all of them, so that the time does not depend on which one matches.
        allowed = [names for token, names in self._good_for.items() if has_token(given, token)]
        if not allowed:
            raise Refused(401, "the token is missing or wrong")
        name = path.removeprefix(network.VERSION)
        if name not in network.CALLS or path != network.VERSION + name:
            raise Refused(404, "there is no such call; is this another version of agentgym_flow?")
        if name not in allowed[0]:
            raise Refused(403, f"{name} needs the trainers' token, and this is the workers' token")
        if scope["method"] != "POST":
            raise Refused(405, "use POST for calls")
        call = network.CALLS[name]
        limit = self._largest if call.limit is None else call.limit
        reason = f"a request of this call can have at most {limit:,} bytes"
        body = b"".join([part async for part in body_of(Request(scope, receive), limit, reason)])
        if headers.get(_DIGEST, "") != await _digest_of(body):
            raise Corrupted(400, "the body does not match its digest")
        try:
            texts = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            arguments = network.arguments_of(call, body, texts)
        except network.Malformed as error:
            raise Refused(400, str(error)) from None
        answer = await self._switchboard.call(name, arguments, partial(_disconnected, receive))
        return answer if call.result is bytes else network.dumped(answer)


async def _disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _digest_of(body: bytes) -> str:
    """Return the digest of a body, without blocking the event loop for long."""
    return network.digest_of(body) if len(body) <= CHUNK else await asyncio.to_thread(network.digest_of, body)


@contextmanager
def serving(
    flow: Flow, token: str, worker_token: str | None = None, *, port: int = 0, host: str = HOST
) -> Iterator[str]:
    """Serve `flow` in a thread during the block; yield the address, such as `http://127.0.0.1:40123`.

    Arguments and errors are those of `serve`.
    """
    with in_thread(_server(flow, token, worker_token), port, host) as address:
        yield address


def serve(
    flow: Flow,
    token: str,
    worker_token: str | None = None,
    *,
    port: int,
    host: str = HOST,
    on_ready: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve `flow` until a signal ends the process.

    Args:
        flow: the manager.
        token: see `create_app`.
        worker_token: see `create_app`.
        port: the port; 0 for a free one.
        host: the address to listen on; other machines can reach any but the loopback interface.
        on_ready: called with the server's address.

    Raises:
        BadSetting: the port is taken or not allowed, or a token cannot be sent.
        KeyboardInterrupt: after Ctrl-C.
    """
    run(_server(flow, token, worker_token), port, host, on_ready)


def _server(flow: Flow, token: str, worker_token: str | None) -> uvicorn.Server:
    app = create_app(flow, token=token, worker_token=worker_token, is_ending=lambda: running.should_exit)
    running = server(app, patience=PATIENCE, connections=CONNECTIONS, body=UPLOAD)
    return running


async def _send(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    every = {"Content-Length": str(len(body)), network.DIGEST: await _digest_of(body), **headers}
    encoded = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    view = memoryview(body)
    for start in range(0, len(body), CHUNK):
        part = bytes(view[start : start + CHUNK])
        await send({"type": "http.response.body", "body": part, "more_body": start + CHUNK < len(body)})
    if not body:
        await send({"type": "http.response.body", "body": b""})
