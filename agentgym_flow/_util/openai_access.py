"""What clients of OpenAI-compatible servers share: the package, addresses, keys and checks of settings."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Set
from types import ModuleType
from typing import Any, NamedTuple

from agentgym_flow._util.loopback import server_address
from agentgym_flow._util.values import is_number
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
_WORDS = {_OLD_LIMIT: (_OLD_LIMIT, _NEW_LIMIT), "temperature": ("temperature",)}  # in refusals of these fields
_FULL = re.compile(r"context[ _-]?(length|size|window)|(prompt|input) is too long", re.IGNORECASE)
_SECRET = re.compile(
    r"\bBearer\s+\S+|\b(?:sk|pk|rk|hf|gsk|xai|key)[-_][\w*.-]{6,}|(?<=://)[^/\s@]+(?=@)", re.IGNORECASE
)

LONGEST_REASON = 200
"""The number of characters that are shown of a server's reason."""


class Dialect:
    """The fields that a server accepts, learnt from its refusals with status 400.

    A server that rejects `max_tokens` gets `max_completion_tokens`. One that rejects `temperature` gets none, and
    samples at its default.
    """

    def __init__(self) -> None:
        self.changed: frozenset[str] = frozenset()
        """The fields that are renamed or left out."""

    async def send(self, post: Callable[[Mapping[str, Any]], Awaitable[bytes]], body: Mapping[str, Any]) -> bytes:
        """Return the answer of `post` to `body`, with the fields that the server accepts. Raises what `post` raises."""
        changed = self.changed
        while True:
            try:
                answer = await post(_with_changes(body, changed))
            except openai_package().BadRequestError as error:
                names = [name for name in _WORDS.keys() - changed if name in body]
                refused = {name for name in names if any(word in str(error) for word in _WORDS[name])}
                if not refused or is_context_full(error):
                    raise
                changed |= refused
            else:
                self.changed |= changed
                return answer


def _with_changes(body: Mapping[str, Any], changed: Set[str]) -> dict[str, Any]:
    adapted = {name: value for name, value in body.items() if name not in changed}
    return adapted | ({_NEW_LIMIT: body[_OLD_LIMIT]} if _OLD_LIMIT in changed and _OLD_LIMIT in body else {})


def is_context_full(error: Exception) -> bool:
    """Return whether a server refused a request because its messages do not fit into the model's context."""
    told = f"{error} {getattr(error, 'body', '')}"
    return getattr(error, "status_code", None) in (400, 413, 422) and bool(_FULL.search(told))


def reason_of(error: Exception) -> str:
    """Return the reason that a server gave for an error status: one short line without secrets; empty if there is none.

    It is for the user's eyes only: it may contain host names and paths, which must not be in a log.
    """
    body = getattr(error, "body", None)
    text = str(body.get("message") or "") if isinstance(body, Mapping) else body if isinstance(body, str) else ""
    text = "".join(character if character.isprintable() else " " for character in text[: 20 * LONGEST_REASON])
    key = os.environ.get(KEY_VARIABLE)
    text = _SECRET.sub("***", text.replace(key, "***") if key else text)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


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
