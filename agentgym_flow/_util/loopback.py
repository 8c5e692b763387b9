"""Serving on the loopback interface: what the shop and the retriever have in common.

The interface is reached by this machine only, but also by every page in its browser, under a name of its own that
points here (DNS rebinding). So both servers ask that the name in a request be one of this machine.
"""

from __future__ import annotations

import errno
import hmac
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from agentgym_flow.errors import BadSetting, MissingExtra

HOST = "127.0.0.1"
"""The address that is listened on."""

HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""The names under which this machine calls itself. The port is free, so that a tunnel may change it."""


@contextmanager
def needing_extra() -> Iterator[None]:
    """Around the imports of a server: raise `MissingExtra` when they lack a package of the extra `serve`."""
    try:
        import uvicorn  # noqa: F401  `run` imports it when all is ready

        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise MissingExtra.of(package, "serve") from None


def listen(port: int, host: str = HOST) -> socket.socket:
    """Return a socket that listens on `port` (0: a free one). Raises `BadSetting` when it is taken or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sends small answers at once only where it is, and else 40 ms late.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left can be taken again
    try:
        listening.bind((host, port))
        listening.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, socket.gaierror):
            raise BadSetting(f"{host!r} is not an address of this machine") from None
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is taken" if taken else "cannot be used"
        raise BadSetting(f"port {port} {why} ({error}); choose another one, or 0 for any free one") from None
    return listening


def run(app: Any, listening: socket.socket, *, patience: int, connections: int, websockets: bool = False) -> None:
    """Serve the ASGI application `app` until the process is asked to end, and end as that signal would have it.

    Args:
        app: the application.
        listening: where requests come in; it stays open.
        patience: requests under way have so many seconds to end.
        connections: the most at a time; see `agentgym_flow._util.connections`.
        websockets: accept WebSockets as well.

    Raises `KeyboardInterrupt` after Ctrl-C.
    """
    from agentgym_flow._util.connections import server

    server(app, patience=patience, connections=connections, websockets=websockets).run(sockets=[listening])


def is_this_machine(names: list[str]) -> bool:
    """Return whether the `Host` headers of a request are a single one, and a name of this machine."""
    return len(names) == 1 and _host(f"//{names[0]}") in HOSTS


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # a bracket without its partner
        return None


def same(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8"))
