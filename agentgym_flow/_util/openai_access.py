"""Servers with the OpenAI chat-completions protocol: requests, the fields that a server accepts, keys, and refusals."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Any, TypeVar

from agentgym_flow._util.endpoint import Endpoint, Tries, Unanswered
from agentgym_flow._util.http import Answer, Call, TryFailed, check_token, server_address
from agentgym_flow._util.values import is_number
from agentgym_flow.errors import BadSetting

T = TypeVar("T")

KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable that holds the key, unless a client names another."""

ANTHROPIC_KEY_VARIABLE = "ANTHROPIC_API_KEY"
"""The environment variable that holds the key for Anthropic's protocol."""

PROBE = "Say yes."
"""The prompt that checks whether a server which stopped answering is back."""

MOST_ANSWER = 16 << 20
"""The maximum size of an answer in bytes."""

LONGEST_REASON = 200
"""The number of characters that are shown of a server's reason."""

_HINTS = {
    400: "it does not accept the request: a setting it does not know, or too long a prompt",
    401: "it requires another key",
    403: "it rejects this key",
    404: "it has no such model, or nothing at this address",
    413: "the request is too large for it",
    422: "it does not accept the request",
    429: "it is overloaded, or the account's quota is used up",
    503: "it is overloaded",
}
STRICT = "strict"
"""The field of tools that asks for calls which fit their schema."""

_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
OPTIONAL = frozenset({_OLD_LIMIT, "temperature", "parallel_tool_calls", STRICT})
"""The fields of a request for chat completions that a server may refuse."""

_FULL = re.compile(r"context[ _-]?(length|size|window)|(prompt|input) is too long", re.IGNORECASE)
_SECRET = re.compile(
    r"\bBearer\s+\S+|\b(?:sk|pk|rk|hf|gsk|xai|key)[-_][\w*.-]{6,}|(?<=://)[^/\s@]+(?=@)", re.IGNORECASE
)
_ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}  # header -> its variable


def bearer(key: str) -> dict[str, str]:
    """Return the headers that carry a key of OpenAI, and the account that it belongs to."""
    account = {header: os.environ[name] for header, name in _ACCOUNT.items() if os.environ.get(name)}
    return {"Authorization": f"Bearer {key}", **account}


class ChatEndpoint(Endpoint):
    """A server of chat completions.

    It learns from refusals with status 400 or 422 which fields the server accepts. A field that is optional and named
    in the refusal is left out from then on. One that rejects `max_tokens` gets `max_completion_tokens`. One that
    rejects `temperature` samples at its default.

    Args:
        url: the base URL.
        patience: see `Endpoint`.
        path: the path of the requests.
        headers: makes the headers that carry the key.
        optional: the fields that may be left out, or in the case of `max_tokens` renamed.

    Attributes:
        changed: the fields that are renamed or left out.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float,
        path: str = "/chat/completions",
        headers: Callable[[str], Mapping[str, str]] = bearer,
        optional: Set[str] = OPTIONAL,
    ) -> None:
        address = server_address(checked_url(url), "", "")
        usual = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "agentgym_flow"}
        super().__init__(address, patience=patience, headers=usual, most=MOST_ANSWER, proxies=True)
        self._path, self._key_headers, self._optional = path, headers, optional
        self.changed: frozenset[str] = frozenset()

    def complete(
        self,
        body: Mapping[str, Any],
        read: Callable[[Answer], T],
        key: str,
        tries: Tries,
        call: Call,
        probe: Mapping[str, Any] | None = None,
    ) -> tuple[T, int, float]:
        """Return what `read` makes of the completion, the number of tries, and the seconds waited; see `Endpoint.ask`.

        Args:
            body: the request.
            read: reads the answer. Raises `TryFailed` if it is malformed.
            key: the key.
            tries: the limits.
            call: a handle to cancel the request.
            probe: a short request with the prompt `PROBE`; None for one of chat completions.

        Raises `Unanswered` and `CancelledError`.
        """
        limits = {name: 1 for name in (_OLD_LIMIT, _NEW_LIMIT) if name in body}
        probe = probe or {"model": body["model"], "messages": [{"role": "user", "content": PROBE}], **limits}
        return self.ask(
            lambda until: read(self._post(body, key, until, call)),
            tries,
            call,
            lambda until: self._post(probe, key, until, call),
        )

    def _post(self, body: Mapping[str, Any], key: str, until: float, call: Call) -> Answer:
        changed = self.changed
        while True:
            adapted = {name: value for name, value in body.items() if name not in changed}
            if _OLD_LIMIT in changed & body.keys():
                adapted[_NEW_LIMIT] = body[_OLD_LIMIT]
            if STRICT in changed:
                adapted["tools"] = [_lenient(tool) for tool in body.get("tools", ())]
            text = json.dumps(adapted, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            raw = text.encode("utf-8", "replace")
            answer = self.send(self._path, raw, dict(self._key_headers(key)), until=until, call=call)
            if answer.status == 200:
                self.changed |= changed
                return answer
            fields = {*body, STRICT} if "tools" in body else body.keys()
            left = {name for name in self._optional - changed if name in fields}
            refused = {name for name in left if re.search(rf"\b{name}\b", answer.text)}  # not `strict` in "restricted"
            if _OLD_LIMIT in left and _NEW_LIMIT in answer.text:
                refused.add(_OLD_LIMIT)
            if answer.status not in (400, 422) or not refused or is_context_full(answer):
                raise TryFailed.of_status(answer, _HINTS)
            changed |= refused


def _lenient(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool of any protocol without the field `strict`."""
    return {name: _lenient(value) if name == "function" else value for name, value in tool.items() if name != STRICT}


def is_context_full(answer: Answer) -> bool:
    """Return whether a server refused a request because its messages do not fit into the model's context."""
    return answer.status in (400, 413, 422) and bool(_FULL.search(answer.text))


def reason_of(answer: Answer) -> str:
    """Return the reason that a server gave for an error status: one short line without secrets; empty if there is none.

    It is for the user's eyes only: it may contain host names and paths, which must not be in a log.
    """
    given: Any = answer.text
    with suppress(ValueError, RecursionError):  # it may be plain text
        given = json.loads(given)
    if isinstance(given, Mapping):
        given = given.get("error", given)
    text = str(given.get("message") or "") if isinstance(given, Mapping) else given if isinstance(given, str) else ""
    text = "".join(character if character.isprintable() else " " for character in text[: 20 * LONGEST_REASON])
    for name in (KEY_VARIABLE, ANTHROPIC_KEY_VARIABLE):
        text = text.replace(os.environ.get(name) or "\0", "***")  # no NUL is printable
    text = _SECRET.sub("***", text)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def key_in(variable: str = KEY_VARIABLE) -> str:
    """Return the key in an environment variable, or a placeholder if it is not set, for servers without keys.

    Raises `BadSetting` if it cannot be sent.
    """
    try:
        return check_token(os.environ.get(variable, "").strip() or "none")
    except BadSetting as error:
        raise BadSetting(f"the key in {variable} cannot be sent: {error}") from None


def checked_url(url: str) -> str:
    """Return `url`. Raises `BadSetting` if it cannot be the address of a server."""
    server_address(url, "http://localhost:8000/v1", "its key is in an environment variable")
    return url


def only_model(url: str) -> str:
    """Return the name of the only model of a server.

    Raises `BadSetting` if `url` is not an address, or the server does not list exactly one model.
    """
    server, headers = ChatEndpoint(url, patience=0.0), bearer(key_in())

    def attempt(until: float) -> list[Any]:
        answer = server.send("/models", headers=headers, method="GET", until=until)
        if answer.status != 200:
            raise TryFailed.of_status(answer, _HINTS)
        try:
            return [model["id"] for model in json.loads(answer.body)["data"]]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise TryFailed("the answer is not a list of models") from None

    try:
        names, _, _ = server.ask(attempt, Tries(retries=1, deadline=60.0, backoff=0.5, timeout=30.0))
    except Unanswered as error:
        raise BadSetting(f"{url} does not say which models it has ({error.last}); name the model") from None
    if len(names) != 1 or not isinstance(names[0], str):
        some = ", ".join(map(str, names[:10]))
        raise BadSetting(f"{url} has {len(names)} models, so name one{': ' if some else ''}{some:.300}")
    return names[0]


def check_patience(value: object) -> float:
    """Return `value` as seconds. Raises `BadSetting` if it is not a number of at least 0."""
    if not is_number(value) or value < 0:
        raise BadSetting(f"patience must be a number of seconds of at least 0, got {value!r:.60}")
    return float(value)


def check_temperature(value: object) -> None:
    """Raise `BadSetting` if `value` is not a number of at least 0."""
    if not is_number(value) or value < 0:
        raise BadSetting(f"temperature must be a number of at least 0, got {value!r:.60}")
