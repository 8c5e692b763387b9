"""Any model behind the OpenAI chat-completions protocol (vLLM, llama.cpp, hosted ones), asked for batches at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from agentgym_flow.core import check_positive
from agentgym_flow.openai_access import (
    check_count,
    check_seconds,
    check_temperature,
    checked_url,
    key_in,
    openai_package,
)
from agentgym_flow.policies.base import NO_ANSWER, Move, View
from agentgym_flow.prompts import profile_for

if TYPE_CHECKING:
    import openai

FAILED_REQUESTS = "failed_requests"
"""The key of `Episode.meta` under which failed requests are listed."""


class OpenAIPolicy:
    """Sends the profile's prompt of every view to a chat model and reads the action from its answer.

    A request that still fails after its retries is data, not a crash: the turn's action is `NO_ANSWER`, which no
    environment accepts, and `episode.meta["failed_requests"]` gets the number of the turn and the kind of failure. The
    key comes from the environment variable `OPENAI_API_KEY`; local servers need none.

    Args:
        model: the model's name on the server.
        url: the base URL, ending in `/v1` for most servers.
        env_id: the environment, which decides the prompt.
        profile: the name of the prompt profile.
        temperature: of sampling; 0 is greedy.
        max_tokens: the longest completion, in tokens.
        timeout: seconds until a request is given up.
        max_retries: how often a request that failed for a passing reason (timeout, 429, 5xx) is sent again.
        concurrency: how many requests are under way at a time.

    Raises:
        MissingExtra: the `openai` package is not installed.
        BadSetting: a number is out of its range, or the URL is none.
        UnknownEnvironment, UnknownProfile: there is no such environment or profile.
    """

    def __init__(
        self,
        model: str,
        url: str,
        env_id: str,
        *,
        profile: str = "text",
        temperature: float = 0.0,
        max_tokens: int = 512,
        timeout: float = 60.0,
        max_retries: int = 2,
        concurrency: int = 32,
    ) -> None:
        check_temperature(temperature)
        check_seconds("timeout", timeout)
        check_count("max_retries", max_retries)
        self.name = f"openai:{model}"
        self.model = model
        self.profile = profile_for(env_id, profile)
        self.temperature = temperature
        self.max_tokens = check_positive("max_tokens", max_tokens)
        self.concurrency = check_positive("concurrency", concurrency)
        self._client = _client(checked_url(url), timeout, max_retries)

    def act(self, views: Sequence[View]) -> list[Move]:
        """Return one move per view; up to `concurrency` requests run at a time."""
        with ThreadPoolExecutor(max_workers=min(self.concurrency, max(1, len(views)))) as pool:
            return list(pool.map(self._move, views))

    def _move(self, view: View) -> Move:
        import openai

        try:
            completion = self._complete(view)
        except (openai.OpenAIError, ValueError, MalformedAnswer) as error:  # ValueError: the body is not JSON
            failures = view.episode.meta.setdefault(FAILED_REQUESTS, [])
            failures.append({"turn": len(view.episode.turns), "failure": _kind(error)})
            return Move(NO_ANSWER, completion=NO_ANSWER)
        return Move(self.profile.parse(completion, view), completion=completion)

    def _complete(self, view: View) -> str:
        answer = self._client.chat.completions.create(
            model=self.model,
            messages=cast("Any", self.profile.messages(view)),
            temperature=self.temperature,
            max_tokens=self.max_tokens,  # the older name, which every compatible server reads
        )
        # A server may send well-formed JSON that is no chat completion; the client does not check it.
        try:
            content: object = answer.choices[0].message.content
        except (AttributeError, IndexError, TypeError):
            raise MalformedAnswer from None
        if not isinstance(content, str | None):
            raise MalformedAnswer
        return content or ""


class MalformedAnswer(Exception):
    """The server's answer is no chat completion."""


def _client(url: str, timeout: float, max_retries: int) -> openai.OpenAI:
    package = openai_package()
    client: openai.OpenAI = package.OpenAI(base_url=url, api_key=key_in(), timeout=timeout, max_retries=max_retries)
    return client


def _kind(error: Exception) -> str:
    # Not the message: it can hold host names and paths, which have no place in a log.
    status = getattr(error, "status_code", None)
    return type(error).__name__ if status is None else f"{type(error).__name__} (HTTP {status})"
