"""What every client of an OpenAI-compatible server needs before its first request: package, address, key, settings."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from agentgym_flow.errors import BadSetting, MissingExtra, shown

KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable that holds the key, unless a client names another."""

PATIENCE = 600.0
"""Seconds for which a server that had answered may answer nothing, unless told otherwise."""

PROBE = "Say yes."
"""What a server that has stopped answering is asked, to see whether it is there."""


CHAT = "/chat/completions"
"""Where completions are asked for, below the base URL.

`client.post` sends a request there and returns the bytes of the answer. `client.chat.completions.create` would look
through all messages and make a model of the answer as well, which is a third of the time that a request takes.
"""

_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"


class CompletionLimit:
    """How a server calls the longest completion: `max_tokens`; `max_completion_tokens` if it refuses that by a 400."""

    def __init__(self) -> None:
        self._name = _OLD_LIMIT  # the older name, which most servers read

    async def send(self, post: Callable[[Mapping[str, Any]], Awaitable[bytes]], body: Mapping[str, Any]) -> bytes:
        """Return the answer to `body` by `post`, with its `max_tokens` named as the server wants it.

        Raises what `post` raises.
        """
        if self._name == _OLD_LIMIT or _OLD_LIMIT not in body:
            try:
                return await post(body)
            except openai_package().BadRequestError as error:
                if _OLD_LIMIT not in body or not any(name in str(error) for name in (_OLD_LIMIT, _NEW_LIMIT)):
                    raise
        answer = await post({_NEW_LIMIT if name == _OLD_LIMIT else name: value for name, value in body.items()})
        self._name = _NEW_LIMIT
        return answer


class RequestTiming(NamedTuple):
    """When a request was sent and when its answer came, on a monotonic clock."""

    sent: float
    came: float


def openai_package() -> ModuleType:
    """Return the module `openai`. Raises `MissingExtra`."""
    try:
        import openai
    except ImportError:
        raise MissingExtra.of("openai", "openai") from None
    return openai


def key_in(variable: str = KEY_VARIABLE) -> str:
    """Return the key in an environment variable; a word that stands for none when it is not set."""
    # The client refuses to be made without a key; servers that want none ignore this word.
    return os.environ.get(variable) or "none"


def checked_url(url: str) -> str:
    """Return `url`. Raises `BadSetting` when it cannot be the address of a server."""
    if not isinstance(url, str) or len(url) > 2000:
        raise BadSetting(f"{shown(url)} is not the address of a server; it should look like http://localhost:8000/v1")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not re.search(r"\s", url)
    except ValueError:  # an unclosed bracket, a port that is none
        good = False
    if not good:
        raise BadSetting(f"{url!r} is not the address of a server; it should look like http://localhost:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise BadSetting("the address of a server holds no name and password; its key is in an environment variable")
    return url


def only_model(url: str, seconds: float = 30.0) -> str:
    """Return the name of the one model of a server.

    Raises:
        BadSetting: the server does not say which models it has, or it has none, or several; or `url` is no address.
        MissingExtra: the `openai` package is not installed.
    """
    package = openai_package()
    try:
        client = package.OpenAI(base_url=checked_url(url), api_key=key_in(), timeout=seconds, max_retries=1)
        names = [model.id for model in client.models.list()]
    except (package.OpenAIError, ValueError, AttributeError, TypeError) as error:
        if isinstance(error, BadSetting):
            raise
        raise BadSetting(f"{url} does not say which models it has ({type(error).__name__}); name the model") from None
    if len(names) != 1 or not isinstance(names[0], str):
        some = ", ".join(map(str, names[:10]))
        raise BadSetting(f"{url} has {len(names)} models, so name one{': ' if some else ''}{some:.300}")
    return names[0]


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_seconds(setting: str, value: object) -> None:
    """Raise `BadSetting` when `value` is not a number of seconds above 0."""
    if not is_number(value) or value <= 0:
        raise BadSetting(f"{setting} must be a number of seconds above 0, got {value!r:.60}")


def check_patience(value: object) -> float:
    """Return `value` as a number of seconds. Raises `BadSetting` when it is not a number of at least 0."""
    if not is_number(value) or value < 0:
        raise BadSetting(f"patience must be a number of seconds of at least 0, got {value!r:.60}")
    return float(value)


def check_count(setting: str, value: object) -> None:
    """Raise `BadSetting` when `value` is not an integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadSetting(f"{setting} must be an integer of at least 0, got {value!r:.60}")


def check_temperature(value: object) -> None:
    """Raise `BadSetting` when `value` is not a number of at least 0."""
    if not is_number(value) or value < 0:
        raise BadSetting(f"temperature must be a number of at least 0, got {value!r:.60}")
