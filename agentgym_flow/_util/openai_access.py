"""What clients of OpenAI-compatible servers share: the package, addresses, keys and checks of settings."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from agentgym_flow._util.numbers import is_number
from agentgym_flow._util.server_address import server_address
from agentgym_flow.errors import BadSetting, MissingExtra

KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable that holds the key, unless a client names another."""

PATIENCE = 600.0
"""Default seconds for which a server that has answered before may fail to answer."""

PROBE = "Say yes."
"""The prompt that checks whether a server which stopped answering is back."""

CHAT = "/chat/completions"
"""The path of completions below the base URL.

Clients use `client.post`, which returns the bytes of the answer. `client.chat.completions.create` also validates all
messages and builds a model of the answer, which takes a third of the time of a request.
"""

_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"


class CompletionLimit:
    """The parameter that limits completions: `max_tokens`, or `max_completion_tokens` if a 400 rejects that."""

    def __init__(self) -> None:
        self._name = _OLD_LIMIT  # most servers know the older name

    async def send(self, post: Callable[[Mapping[str, Any]], Awaitable[bytes]], body: Mapping[str, Any]) -> bytes:
        """Return the answer of `post` to `body`, with `max_tokens` named as the server expects.

        Raises whatever `post` raises.
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
    """Return the key in an environment variable, or a placeholder if it is not set."""
    return os.environ.get(variable) or "none"  # the client requires a key; servers without keys ignore it


def checked_url(url: str) -> str:
    """Return `url`. Raises `BadSetting` if it cannot be the address of a server."""
    server_address(url, "http://localhost:8000/v1", "its key is in an environment variable")
    return url


def only_model(url: str) -> str:
    """Return the name of the only model of a server.

    Raises:
        BadSetting: `url` is not an address, or the server does not list exactly one model.
        MissingExtra: the `openai` package is not installed.
    """
    package = openai_package()
    try:
        client = package.OpenAI(base_url=checked_url(url), api_key=key_in(), timeout=30.0, max_retries=1)
        names = [model.id for model in client.models.list()]
    except (package.OpenAIError, ValueError, AttributeError, TypeError) as error:
        if isinstance(error, BadSetting):
            raise
        raise BadSetting(f"{url} does not say which models it has ({type(error).__name__}); name the model") from None
    if len(names) != 1 or not isinstance(names[0], str):
        some = ", ".join(map(str, names[:10]))
        raise BadSetting(f"{url} has {len(names)} models, so name one{': ' if some else ''}{some:.300}")
    return names[0]


def check_seconds(setting: str, value: object) -> None:
    """Raise `BadSetting` if `value` is not a number of seconds above 0."""
    if not is_number(value) or value <= 0:
        raise BadSetting(f"{setting} must be a number of seconds above 0, got {value!r:.60}")


def check_patience(value: object) -> float:
    """Return `value` as seconds. Raises `BadSetting` if it is not a number of at least 0."""
    if not is_number(value) or value < 0:
        raise BadSetting(f"patience must be a number of seconds of at least 0, got {value!r:.60}")
    return float(value)


def check_temperature(value: object) -> None:
    """Raise `BadSetting` if `value` is not a number of at least 0."""
    if not is_number(value) or value < 0:
        raise BadSetting(f"temperature must be a number of at least 0, got {value!r:.60}")
