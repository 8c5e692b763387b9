"""Messages between caller, keeper, sandboxes and the two sides of a test: JSON after its length, over a descriptor.

It imports little, because every sandbox of a test loads it.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # `typing` alone takes longer to load than the rest
if TYPE_CHECKING:
    from typing import Any

_LENGTH_BYTES = 4
_MOST_BYTES = 1 << 28


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Send `message`. Raises `OSError` if the other side has closed."""
    text = json.dumps(message).encode("ascii")
    left = memoryview(len(text).to_bytes(_LENGTH_BYTES, "big") + text)
    while left:
        left = left[os.write(descriptor, left) :]


def receive(descriptor: int) -> dict[str, Any] | None:
    """Return the next message, or `None` if the other side closed without one, or in the middle of one.

    Raises `ValueError` or `RecursionError` if it is not JSON; only a program could send such a message.
    """
    header = _exactly(descriptor, _LENGTH_BYTES)
    if header is None:
        return None
    length = int.from_bytes(header, "big")
    text = _exactly(descriptor, length) if length <= _MOST_BYTES else None
    if text is None:
        return None
    message: dict[str, Any] = json.loads(text)
    return message


def _exactly(descriptor: int, count: int) -> bytes | None:
    parts = []
    while count:
        try:
            part = os.read(descriptor, min(count, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
