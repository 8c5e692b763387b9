"""Addresses of servers that users name, and our own servers on the loopback interface.

Only this machine reaches the interface, but so do web pages in its browser, through a host name that resolves to it
(DNS rebinding). Servers therefore accept only requests whose `Host` header names this machine.
"""

from __future__ import annotations

import errno
import hmac
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agentgym_flow.errors import BadSetting, MissingExtra, shown

_PORTS = {"http": 80, "https": 443}


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


HOST = "127.0.0.1"
"""The address that servers listen on."""

HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""The names of this machine in a `Host` header. The port is not checked, because a tunnel may change it."""


@contextmanager
def needing_extra() -> Iterator[None]:
    """Raise `MissingExtra` if the imports of a server, in this block, need a package of the extra `serve`."""
    try:
        import uvicorn  # noqa: F401  used by `run`

        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise MissingExtra.of(package, "serve") from None


def listen(port: int, host: str = HOST) -> socket.socket:
    """Return a socket that listens on `port` (0: a free one). Raises `BadSetting` if it is taken or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it, small answers are 40 ms late.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restarted server gets its port again
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
    """Serve the ASGI application `app` until a signal ends the process.

    Args:
        app: the application.
        listening: the socket for requests; it stays open.
        patience: seconds that requests under way have to finish at the end.
        connections: the most at a time; see `agentgym_flow._util.connections`.
        websockets: accept WebSockets as well.

    Raises `KeyboardInterrupt` after Ctrl-C.
    """
    from agentgym_flow._util.connections import server

    server(app, patience=patience, connections=connections, websockets=websockets).run(sockets=[listening])


def is_this_machine(names: list[str]) -> bool:
    """Return whether a request has exactly one `Host` header and it names this machine."""
    return len(names) == 1 and _host(f"//{names[0]}") in HOSTS


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # an unclosed bracket
        return None


def same(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8"))
