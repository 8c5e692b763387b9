"""Serve an environment to OpenEnv clients, by default on this machine only.

Every client must send a token. Each WebSocket is a session with its own environment. The number of sessions is limited,
and idle ones are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

from agentgym_flow._util import serving
from agentgym_flow._util.http import check_token
from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadSetting
from agentgym_flow.integrations.openenv import FlowAction, FlowObservation, OpenEnvEnvironment

with serving.needing_extra():
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.types import ConcurrencyConfig

PATHS = frozenset({"/ws", "/health", "/schema"})
"""Served paths. OpenEnv's other routes create environments outside the session limit, so they are disabled."""

PATIENCE = 3
"""Seconds for pending requests to finish when the server stops."""

Scope = MutableMapping[str, Any]


def serve(
    env_id: str,
    *,
    token: str,
    port: int = 8000,
    host: str = serving.HOST,
    sessions: int = 64,
    idle: float = 600.0,
    on_ready: Callable[[str], object] = lambda address: None,
    **settings: Any,
) -> None:
    """Serve an environment until the process is interrupted or terminated.

    Args:
        env_id: the id of a text environment.
        token: the token that clients must send as `Authorization: Bearer TOKEN`.
        port: the port; 0 selects a free one.
        host: the address to listen on. Connections are not encrypted: between machines use a tunnel or a TLS proxy.
        sessions: the most concurrent sessions; others are refused with OpenEnv's `CAPACITY_REACHED`.
        idle: seconds without a message after which a session is closed.
        on_ready: called with the URL when the server accepts requests.
        settings: keyword arguments of the environment.

    Raises:
        BadSetting: the token is empty or not valid in a header, the port is taken, or a number is not positive.
        UnknownEnvironment: there is no text environment with this id.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    check_token(token)
    check_positive("sessions", sessions)
    if not idle > 0:
        raise BadSetting(f"idle must be a positive number of seconds, got {idle}")
    OpenEnvEnvironment(
        env_id, **settings
    ).close()  # a wrong id or setting is reported here, and not to the first client
    app = create_fastapi_app(
        partial(OpenEnvEnvironment, env_id, **settings),
        FlowAction,
        FlowObservation,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=sessions),
        mode="production",
    )
    guarded = _Guard(app, token, idle, local=host in serving.HOSTS)
    running = serving.server(guarded, patience=PATIENCE, connections=2 * sessions + 64, websockets=True)
    serving.run(running, port, host, on_ready)


class _Guard:
    """Middleware that refuses requests without the token and closes idle sessions."""

    def __init__(self, app: Any, token: str, idle: float, *, local: bool) -> None:
        self._app, self._token, self._idle, self._local = app, token, idle, local

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif status := self._refusal(scope):
            await receive()
            await self._refuse(scope, send, status)
        elif scope["type"] == "websocket":
            await self._app(scope, partial(self._next, receive, send), send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> int:
        """Return the HTTP status for refusing a request; 0 if it is accepted."""
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == b"host"]
        if self._local and not serving.is_this_machine(hosts):
            return 421
        if not serving.has_token(next((value for name, value in headers if name == b"authorization"), ""), self._token):
            return 401
        return 0 if scope["path"] in PATHS else 404

    @staticmethod
    async def _refuse(scope: Scope, send: Callable[[Any], Awaitable[None]], status: int) -> None:
        kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
        headers = [(b"content-length", b"0"), *([(b"www-authenticate", b"Bearer")] if status == 401 else [])]
        await send({"type": f"{kind}.start", "status": status, "headers": headers})
        await send({"type": f"{kind}.body", "body": b""})

    async def _next(self, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> Any:
        """Return the next message of a session, or a disconnect if none arrives in time."""
        try:
            async with asyncio.timeout(self._idle):
                return await receive()
        except TimeoutError:
            await send({"type": "websocket.close", "code": 1001, "reason": "idle"})
            return {"type": "websocket.disconnect", "code": 1001}
