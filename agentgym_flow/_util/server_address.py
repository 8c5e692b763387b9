"""The addresses of servers that users name: retrievers, managers, OpenAI-compatible servers."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from agentgym_flow.errors import BadSetting, shown

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
