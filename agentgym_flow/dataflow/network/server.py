"""The HTTP server of a manager: `POST /v4/CALL` for each call of `Flow`, with the bearer token of trainers or workers.

Invalid requests get a status of 400 or above and one sentence; errors of the package are sent by name, with status 422.
All bodies have a checksum, except weights, whose receiver checks a digest. There is no encryption: between
machines, use a tunnel (SSH, WireGuard) or a TLS proxy.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

from agentgym_flow._util.fast_http import Application, FastProtocol, Head, HttpReply
from agentgym_flow._util.http import check_token
from agentgym_flow._util.serving import HOST, Refused, has_token, in_thread, needing_extra, run, server
from agentgym_flow.dataflow import network
from agentgym_flow.dataflow.network import Switchboard
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import AgentGymFlowError

with needing_extra():
    import uvicorn

CONNECTIONS = 4096
"""The most connections at a time; fewer if the process may not open that many files. A worker uses about three. Further
ones get status 503 while all others are busy, and retry."""

PATIENCE = 5
"""Seconds that requests under way have to finish when the server stops."""

UPLOAD = 3600.0
"""Seconds that a body may take; requests without a token are refused before their body is read."""

CHUNK = 1 << 20
"""Bytes of a body whose checksum is computed in the event loop."""

_CHECKSUM = network.CHECKSUM.lower()
_logger = logging.getLogger(__name__)


class Corrupted(Refused):
    """The body of a request does not match its checksum; the client repeats the request."""


class CallApplication(Application):
    """The calls of a manager.

    Args:
        flow: the manager.
        token: what clients must send as `Authorization: Bearer TOKEN`.
        worker_token: a token that allows only the calls in `network.WORKER_CALLS`; None for no such token.
        largest: the most bytes of a message with weights.
        is_ending: whether the server is stopping, which ends waiting calls.

    Raises:
        BadSetting: a token is empty, or cannot be sent in a header.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        token: str,
        worker_token: str | None = None,
        largest: int = network.WEIGHTS_BODY,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._good_for = {check_token(token): frozenset(network.CALLS)}
        if worker_token is not None:
            self._good_for.setdefault(check_token(worker_token), network.WORKER_CALLS)
        self._switchboard, self._largest = Switchboard(flow, is_ending), largest

    def check(self, head: Head) -> tuple[int, str]:
        """Refuse a wrong token and a call that does not exist, before the body is read."""
        given, path = head.headers.get("authorization", ""), head.path
        # Compare all of them, so that the time does not depend on which one matches.
        allowed = [names for token, names in self._good_for.items() if has_token(given, token)]
        if not allowed:
            raise Refused(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        name = path.removeprefix(network.VERSION)
        if name not in network.CALLS or path != network.VERSION + name:
            raise Refused(404, "there is no such call; is this another version of agentgym_flow?")
        if name not in allowed[0]:
            raise Refused(403, f"{name} needs the trainers' token, and this is the workers' token")
        if head.method != "POST":
            raise Refused(405, "use POST for calls")
        limit = network.CALLS[name].limit
        limit = self._largest if limit is None else limit
        return limit, f"a request of this call can have at most {limit:,} bytes"

    async def answer(self, head: Head, body: bytes | memoryview, gone: Callable[[], Awaitable[object]]) -> HttpReply:
        """Make the call."""
        call = network.CALLS[head.path.removeprefix(network.VERSION)]
        if call.raw is None and head.headers.get(_CHECKSUM, "") != await _checksum_of(body):
            raise Corrupted(400, "the body does not match its checksum")
        try:
            arguments = network.arguments_of(call, body, dict(parse_qsl(head.query, keep_blank_values=True)))
        except network.Malformed as error:
            raise Refused(400, str(error)) from None
        answer = await self._switchboard.call(call.name, arguments, gone)
        if call.result is bytes:
            return HttpReply(200, {}, answer)
        content = network.dumped(answer)
        return HttpReply(200, {network.CHECKSUM: await _checksum_of(content)}, content)

    def failed(self, error: Exception) -> HttpReply:
        """Return the answer for an error."""
        status, headers, content = 422, dict[str, str](), b""
        if isinstance(error, Refused):
            status, headers = error.status, {**(error.headers or {})}
            content = network.refusal(type(error).__name__, error.reason)
        elif isinstance(error, AgentGymFlowError):
            content = network.refusal_of(error)
        else:  # a defect, or a full disk: clients retry until their deadline
            _logger.error("a call failed", exc_info=error)
            status, content = 500, network.refusal("Failed", type(error).__name__)
        return HttpReply(status, {network.CHECKSUM: network.checksum_of(content), **headers}, content)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Start and end with the server (the lifespan of ASGI)."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._switchboard.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _checksum_of(body: bytes | memoryview) -> str:
    """Return the checksum of a body, without blocking the event loop for long."""
    return network.checksum_of(body) if len(body) <= CHUNK else await asyncio.to_thread(network.checksum_of, body)


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
        token: see `CallApplication`.
        worker_token: see `CallApplication`.
        port: the port; 0 for a free one.
        host: the address to listen on; other machines can reach any but the loopback interface.
        on_ready: called with the server's address.

    Raises:
        BadSetting: the port is taken or not allowed, or a token cannot be sent.
        KeyboardInterrupt: after Ctrl-C.
    """
    gc.freeze()  # what was imported stays, so it is not searched for garbage again and again
    run(_server(flow, token, worker_token), port, host, on_ready)


def _server(flow: Flow, token: str, worker_token: str | None) -> uvicorn.Server:
    app = CallApplication(flow, token=token, worker_token=worker_token, is_ending=lambda: running.should_exit)
    protocol = type("_CallProtocol", (FastProtocol,), {"application": app})
    running = server(app, patience=PATIENCE, connections=CONNECTIONS, body=UPLOAD, protocol=protocol)
    return running
