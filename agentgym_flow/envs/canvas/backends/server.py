"""A model behind a server, as Canvas asks it: the reply with its tokens, or the failure of a request or the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentgym_flow._util.endpoint import PATIENCE, Tries, Unanswered
from agentgym_flow._util.http import Answer, Call, TryFailed
from agentgym_flow._util.openai_access import ChatEndpoint
from agentgym_flow._util.sharing import Lock

IN_A_ROW = 10
"""The number of failed requests after which a server that has never answered counts as down."""


class ModelReply(NamedTuple):
    """A completion.

    Attributes:
        text: the text, possibly empty.
        ended: the server's finish reason, such as `"stop"` or `"length"`; empty if unknown.
        read: the tokens of the prompt; 0 if unknown.
        written: the tokens of the completion; 0 if unknown.
        tries: the number of requests.
        waited: the seconds during which the request waited for a server that was down.
    """

    text: str
    ended: str
    read: int
    written: int
    tries: int = 1
    waited: float = 0.0


class ServerFailed(Exception):
    """There was no usable answer. The message gives the reason, without text from the server.

    Attributes:
        status: `"timeout"` if there was no answer in time, else `"error"`.
        tries: the number of requests.
        lasting: whether all other requests would fail too: there is no server at the address, it rejects the key or the
            model, it has failed `IN_A_ROW` requests without ever answering, or it stopped answering for longer than its
            patience.
    """

    def __init__(self, text: str, status: Literal["error", "timeout"], tries: int, lasting: bool) -> None:
        super().__init__(text)
        self.status, self.tries, self.lasting = status, tries, lasting


_lock = Lock()
_servers: dict[str, ChatEndpoint] = {}


def server_at(url: str) -> ChatEndpoint:
    """Return the server at `url`, which all its callers in this process share."""
    with _lock:
        if (found := _servers.get(url.rstrip("/"))) is None:
            found = _servers[url.rstrip("/")] = ChatEndpoint(url, patience=PATIENCE)
        return found


def ask_model(server: ChatEndpoint, request: Mapping[str, Any], key: str, tries: Tries, call: Call) -> ModelReply:
    """Return the reply to a request. Raises `ServerFailed`, and `CancelledError` if the call was cancelled."""
    try:
        reply, tried, waited = server.complete(request, _read, key, tries, call)
    except Unanswered as error:
        down, last = error.down, error.last
        text = f"the model {error}{'; it has answered no request for the whole of --patience' if down else ''}"
        if not server.has_answered or not server.patience:
            down = server.failed_in_a_row >= IN_A_ROW
        lasting = last.unreached or (last.answer is not None and last.answer.status in (401, 403, 404))
        status: Literal["error", "timeout"] = "timeout" if last.timeout else "error"
        raise ServerFailed(text, status, error.tries, lasting or down) from None
    return reply._replace(tries=tried, waited=waited)


def _read(answer: Answer) -> ModelReply:
    """Parse an answer. Raises `TryFailed`."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise TryFailed("the answer is not JSON") from None
    try:
        choices = found["choices"]
        if isinstance(choices, list) and not choices:
            raise TryFailed("the answer has no choices")
        text, ended = choices[0]["message"].get("content"), choices[0].get("finish_reason")
        usage = found.get("usage") or {}
        read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    except (KeyError, IndexError, TypeError, AttributeError):
        raise TryFailed("the answer is not a chat completion") from None
    counts = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in (read, written))
    if not isinstance(text, str | None) or not isinstance(ended, str | None) or not counts:
        raise TryFailed("the answer is not a chat completion")
    return ModelReply(text or "", ended or "", read, written)
