"""Any model behind the OpenAI chat-completions protocol (vLLM, llama.cpp, hosted ones); no episode waits for others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_flow._util.openai_access import (
    CHAT,
    PATIENCE,
    PROBE,
    CompletionLimit,
    RequestTiming,
    check_patience,
    check_seconds,
    check_temperature,
    checked_url,
    key_in,
    openai_package,
)
from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.errors import BadSetting, ServerDown, shown
from agentgym_flow.policies.base import NO_ANSWER, PolicyInput, PolicyOutput
from agentgym_flow.prompts import Message, profile_for

if TYPE_CHECKING:
    import openai

FAILED_REQUESTS = "failed_requests"
"""The key of `Episode.meta` under which failed requests are listed."""

LOGPROBS = "logprobs"
"""The key of `Episode.meta` with the log-probabilities of the tokens of each turn's completion, in nats."""


class OpenAIPolicy:
    """Sends the profile's prompt of every view to a chat model and reads the action from its answer.

    A request that still fails after its retries, while the server answers others, is data, not a crash: the turn's
    action is `NO_ANSWER`, which no environment accepts, and `episode.meta["failed_requests"]` gets the number of the
    turn and the kind of failure. So is one that fails before the server has answered anything. If a server that had
    answered answers nobody any more, requests wait for it: all are sent again until one is answered or `patience` is
    over, and then `ServerDown` is raised. The key comes from the environment variable `OPENAI_API_KEY`; local servers
    need none.

    The longest completion is sent as `max_completion_tokens` to a server that refuses `max_tokens` by a 400.

    Args:
        model: the model's name on the server.
        url: the base URL, ending in `/v1` for most servers.
        env_id: the environment, which decides the prompt.
        profile: the name of the prompt profile, or `NAME:PATH` for published prompts; see
            `agentgym_flow.prompts.profile_for`. Where it writes the beginning of the answer, too (Search-R1), the
            server is asked to go on with it, as vLLM does.
        temperature: of sampling; 0 is greedy.
        max_tokens: the longest completion, in tokens.
        logprobs: ask for the log-probabilities of the completions' tokens, and keep them in `episode.meta["logprobs"]`:
            what a leaderboard needs for the badge *attested*.
        chat_template_kwargs: settings of the model's chat template, such as `{"enable_thinking": False}`, for servers
            that take them (vLLM does).
        timeout: seconds until a request is given up.
        max_retries: how often a request that failed for a passing reason (timeout, 429, 5xx) is sent again.
        concurrency: how many requests are under way at a time.
        patience: seconds without any answer after which a server is down; 0: failed requests are data at once.

    Attributes:
        settings: what decides the answers, plain data.
        ignores_rng: it answers by what it sees alone, so that an answer may be kept and used again.

    Its connections belong to one event loop: `async with policy:` opens and closes them around `respond`, as `rollout`
    does.

    Raises:
        MissingExtra: the `openai` package is not installed.
        BadSetting: a number is out of its range, or the URL is none.
        UnknownEnvironment, UnknownProfile: there is no such environment or profile.
        BadPromptFile: the file of published prompts cannot be read, or lacks what the profile needs.
    """

    ignores_rng = True

    def __init__(
        self,
        model: str,
        url: str,
        env_id: str,
        *,
        profile: str = "text",
        temperature: float = 0.0,
        max_tokens: int = 512,
        logprobs: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        concurrency: int = 32,
        patience: float = PATIENCE,
    ) -> None:
        check_temperature(temperature)
        check_seconds("timeout", timeout)
        check_integer("max_retries", max_retries, 0)
        self.profile = profile_for(env_id, profile)
        self.name = f"openai:{model}" + (f" ({self.profile.name})" if ":" in profile else "")
        self.model = model
        self.temperature = temperature
        self.max_tokens = check_positive("max_tokens", max_tokens)
        self.concurrency = check_positive("concurrency", concurrency)
        self.patience = check_patience(patience)
        self.settings: dict[str, Any] = {
            "profile": self.profile.name,
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if not isinstance(logprobs, bool):
            raise BadSetting(f"logprobs must be true or false, got {shown(logprobs)}")
        self._logprobs = logprobs
        if logprobs:
            self.settings["logprobs"] = True
        self._template_settings = dict(chat_template_kwargs or {})
        if self._template_settings:
            self.settings["chat_template_kwargs"] = self._template_settings
        self._limit = CompletionLimit()
        self._answered: RequestTiming | None = None  # the last request that was answered
        self._access = {"base_url": checked_url(url), "timeout": timeout, "max_retries": max_retries}
        self._package = openai_package()
        self._client: openai.AsyncOpenAI
        self._room: asyncio.Semaphore
        self._probing: asyncio.Lock

    async def __aenter__(self) -> OpenAIPolicy:
        self._client = self._package.AsyncOpenAI(api_key=key_in(), **self._access)
        self._room, self._probing = asyncio.Semaphore(self.concurrency), asyncio.Lock()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def respond(self, view: PolicyInput) -> PolicyOutput:
        """Return the move for one view; up to `concurrency` requests run at a time. Raises `ServerDown`."""
        async with self._room:
            return await self._move(view)

    async def _move(self, view: PolicyInput) -> PolicyOutput:
        pause, failed = 0.5, None
        while True:
            began = time.monotonic()
            try:
                completion, logprobs = await self._complete(view)
            except (self._package.OpenAIError, ValueError, MalformedAnswer) as error:  # ValueError: it is not JSON
                if not self._is_outage(error, failed, began):
                    failures = view.episode.meta.setdefault(FAILED_REQUESTS, [])
                    failures.append({"turn": len(view.episode.turns), "failure": _kind(error)})
                    self._keep_logprobs(view, [])
                    return PolicyOutput(NO_ANSWER, completion=NO_ANSWER)
                failed = failed or time.monotonic()
                await asyncio.sleep(pause)
                await self._probe(failed)
                pause = min(2 * pause, 8.0)
                continue
            self._keep_logprobs(view, logprobs)
            return PolicyOutput(self.profile.parse_action(completion, view), completion=completion)

    def _keep_logprobs(self, view: PolicyInput, logprobs: list[float]) -> None:
        if self._logprobs:
            view.episode.meta.setdefault(LOGPROBS, []).append(logprobs)

    def _is_outage(self, error: Exception, failed: float | None, began: float) -> bool:
        """Return whether a failure is the server's and not the request's. Raises `ServerDown` at the end of patience.

        It is the server's if it may pass, the server had answered before, and no request that was sent after this one
        first `failed` (None: just now) was answered before this try `began`.
        """
        answered = self._answered
        if not self.patience or answered is None or not _may_pass(error):
            return False
        if failed is not None and failed <= answered.sent and answered.came <= began:
            return False
        silent = time.monotonic() - answered.came
        if silent >= self.patience:
            raise ServerDown(
                f"policy {self.name!r}: the server has answered nothing for {silent:.0f} s; last: {_kind(error)}"
            ) from None
        return True

    async def _probe(self, failed: float) -> None:
        """Ask for next to nothing, unless the server has answered since: it tells an outage from a bad request."""
        async with self._probing:
            if self._answered is not None and self._answered.sent >= failed:
                return
            sent = time.monotonic()
            try:
                await self._send([{"role": "user", "content": PROBE}], 1)
            except (self._package.OpenAIError, ValueError) as error:
                if _may_pass(error):
                    return
            self._answered = RequestTiming(sent, time.monotonic())

    async def _complete(self, view: PolicyInput) -> tuple[str, list[float]]:
        sent = time.monotonic()
        answer = await self._send(self.profile.messages(view), self.max_tokens)
        try:
            choice = json.loads(answer)["choices"][0]
            content: object = choice["message"].get("content")
            logprobs = [one["logprob"] for one in choice["logprobs"]["content"]] if self._logprobs else []
        except (RecursionError, KeyError, IndexError, TypeError, AttributeError):
            raise MalformedAnswer from None
        if not isinstance(content, str | None) or not all(isinstance(one, int | float) for one in logprobs):
            raise MalformedAnswer
        self._answered = RequestTiming(sent, time.monotonic())
        return content or "", [float(one) for one in logprobs]

    async def _send(self, messages: Sequence[Message], most: int) -> bytes:
        body: dict[str, Any] = {"model": self.model, "messages": messages, "temperature": self.temperature}
        body["max_tokens"] = most
        if self._logprobs:
            body["logprobs"] = True
        if self._template_settings:
            body["chat_template_kwargs"] = self._template_settings
        if messages[-1]["role"] == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return await self._limit.send(self._post, body)

    async def _post(self, body: Mapping[str, Any]) -> bytes:
        return await self._client.post(CHAT, cast_to=bytes, body=body)


class MalformedAnswer(Exception):
    """The server's answer is no chat completion."""


def _may_pass(error: Exception) -> bool:
    """Return whether the same request may be answered later: all but a refusal of the request itself."""
    status = getattr(error, "status_code", None)
    return status is None or status in (408, 409, 429) or status >= 500


def _kind(error: Exception) -> str:
    # Not the message: it can hold host names and paths, which have no place in a log.
    status = getattr(error, "status_code", None)
    return type(error).__name__ if status is None else f"{type(error).__name__} (HTTP {status})"
