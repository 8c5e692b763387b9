"""Serving the shop on the loopback interface of this machine, and nowhere else."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from agentgym_flow.errors import BadSetting, MissingExtra
from agentgym_flow.shop.sessions import Shop

HOST = "127.0.0.1"
"""The only address that is listened on."""

PATIENCE = 3
"""Requests under way have so many seconds to end when the server stops."""

try:
    import uvicorn

    from agentgym_flow.shop.app import create_app
except ModuleNotFoundError as _error:
    _package = (_error.name or "").partition(".")[0]
    if _package in ("starlette", "uvicorn"):
        raise MissingExtra.of(_package, "serve") from None
    raise


def serve(
    shop: Shop, *, port: int = 8000, token: str | None = None, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve the shop until the process is interrupted; then close it, which writes down the visits under way.

    Args:
        shop: keeps the visits.
        port: the port; 0: a free one.
        token: what a person has to know to see all visits.
        on_ready: called with the address as soon as requests can be made.

    Raises:
        BadSetting: the port is taken or may not be used.
        KeyboardInterrupt: Ctrl-C ended it, after the shop was closed.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left can be taken again
        try:
            listening.bind((HOST, port))
            listening.listen()
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "is taken" if taken else "cannot be used"
            raise BadSetting(f"port {port} {why} ({error}); choose another one, or 0 for any free one") from None
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(shop, token),
                log_level="error",
                access_log=False,
                server_header=False,
                limit_concurrency=256,
                timeout_graceful_shutdown=PATIENCE,
                lifespan="on",
                ws="none",
            )
        )
        try:
            if on_ready is not None:
                on_ready(f"http://{HOST}:{listening.getsockname()[1]}/")
            server.run(sockets=[listening])
        finally:
            shop.close()  # the server has done it, unless it was interrupted before it began
