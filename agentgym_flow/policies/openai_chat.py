"""A policy for any model with the OpenAI chat-completions protocol (vLLM, llama.cpp, hosted models)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_flow._util.endpoint import LONGEST_PAUSE, PATIENCE, RequestThreads, Tries, Unanswered
from agentgym_flow._util.http import Answer, Call, TryFailed, check_seconds
from agentgym_flow._util.openai_access import (
    ChatEndpoint,
    check_patience,
    check_temperature,
    is_context_full,
    key_in,
    reason_of,
)
from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.episodes import PolicyOutput
from agentgym_flow.errors import BadSetting, ServerDown, UnknownOption, shown
from agentgym_flow.policies.base import CONTEXT, NO_ANSWER, PolicyInput
from agentgym_flow.prompts import CONVERSATION, LAYOUTS, TURN, Message, template_for
from agentgym_flow.prompts.types import ConversationTemplate, TranscriptTemplate

FAILED_REQUESTS = "failed_requests"
"""The key of `Episode.meta` with the list of failed requests."""

LOGPROBS = "logprobs"
"""The key of `Episode.meta` with the log-probabilities of the tokens of each turn's completion, in nats."""


class OpenAIPolicy:
    """Sends the prompt of every policy input to a chat model, and reads the action from its answer.

    A failed request does not stop the rollout if the server answers other requests, or has never answered. The action
    of the turn is then `NO_ANSWER`, which no environment accepts, and `episode.meta["failed_requests"]` records the
    turn and the kind of failure. If the server stops answering at all, the policy repeats all requests until one is
    answered, or raises `ServerDown` after `patience` seconds. The key is read from the environment variable
    `OPENAI_API_KEY`; local servers need none.

    If a server rejects `max_tokens` with status 400, the limit is sent as `max_completion_tokens`. If it rejects
    `temperature`, none is sent, and the server samples at its default. If it says that the messages are longer than the
    model's context, the episode is truncated (`truncated_by` in `episode.meta`).

    Args:
        model: the name of the model on the server.
        url: the base URL, which ends in `/v1` for most servers.
        env_id: the environment, which determines the prompt.
        template: the name of the prompt template, or `NAME:PATH` for published prompts; see
            `agentgym_flow.template_for`. If the template also writes the start of the answer (Search-R1), the
            server must be able to continue a message, as vLLM is.
        template_settings: new values for fields of the prompt template.
        shots: the number of solved turns in front of the first prompt, a shorter form of
            `template_settings={"shots": N}`.
        layout: `turn`: every prompt is written from scratch; `conversation`: the first prompt stays, and every later
            one adds the last answer and the template's `follow_up` message, as models with this layout are trained.
        temperature: the sampling temperature; 0 is greedy.
        max_tokens: the largest length of a completion, in tokens.
        logprobs: request the log-probabilities of the completion's tokens, and store them in
            `episode.meta["logprobs"]`. Leaderboards need them for the badge *attested*.
        chat_template_kwargs: settings of the model's chat template, such as `{"enable_thinking": False}`, for servers
            that support them, such as vLLM.
        timeout: the timeout of a request in seconds.
        max_retries: the number of retries after a temporary failure (timeout, 429, 5xx).
        concurrency: the largest number of concurrent requests.
        patience: seconds without any answer after which a server counts as down. 0: record failures immediately.

    Attributes:
        settings: the settings that affect the answers, as plain data.
        ignores_rng: True, because answers depend only on the policy input, so they can be recorded and reused.
        refusal: the server's reason for its last refusal, in short; empty if there is none. Not for logs.

    `async with policy:` starts and ends the threads of its requests, which `rollout` does itself.

    Raises:
        BadSetting: a number is out of range, the URL is malformed, or the template does not support conversations.
        UnknownEnvironment, UnknownTemplate, UnknownOption: there is no such environment, template, field of it, or
            layout.
        BadPromptFile: the file of published prompts cannot be read, or lacks a string that the template needs.
    """

    ignores_rng = True
    _key: str
    _threads: RequestThreads

    def __init__(
        self,
        model: str,
        url: str,
        env_id: str,
        *,
        template: str = "text",
        template_settings: Mapping[str, Any] | None = None,
        shots: int | None = None,
        layout: str = TURN,
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
        max_retries = check_integer("max_retries", max_retries, 0)
        if not isinstance(template_settings, Mapping | None):
            raise BadSetting(f"template_settings must be a mapping, got {shown(template_settings)}")
        changed = {**(template_settings or {}), **({} if shots is None else {"shots": shots})}
        self.template = template_for(env_id, template, changed)
        if layout not in LAYOUTS:
            raise UnknownOption.among(layout, LAYOUTS)
        if layout == CONVERSATION and not isinstance(self.template, ConversationTemplate):
            raise BadSetting(f"template {template!r} has no follow_up message, which layout conversation needs")
        self.layout = layout
        self.name = f"openai:{model}" + (f" ({self.template.name})" if ":" in template else "")
        self.model = model
        self.temperature = temperature
        self.max_tokens = check_positive("max_tokens", max_tokens)
        self.concurrency = check_positive("concurrency", concurrency)
        # No deadline of its own: a longer pause that the server asks for is an outage.
        pauses = (max_retries + 1) * (timeout + LONGEST_PAUSE)
        self._tries = Tries(max_retries, pauses, 0.5, timeout)
        self._server = ChatEndpoint(url, patience=check_patience(patience))
        self.settings: dict[str, Any] = {"template": self.template.name}
        self.settings |= {"temperature": temperature, "max_tokens": max_tokens}
        if not isinstance(logprobs, bool):
            raise BadSetting(f"logprobs must be true or false, got {shown(logprobs)}")
        if not isinstance(chat_template_kwargs, Mapping | None):
            raise BadSetting(f"chat_template_kwargs must be a mapping, got {shown(chat_template_kwargs)}")
        self._logprobs = logprobs
        self._template_settings = dict(chat_template_kwargs or {})
        optional = {
            "template_settings": changed,
            "layout": "" if layout == TURN else layout,
            "logprobs": logprobs,
            "chat_template_kwargs": self._template_settings,
        }
        self.settings |= {name: value for name, value in optional.items() if value}
        self.refusal = ""
        self._said: dict[int, tuple[int, list[Message]]] = {}  # of each episode: the last turn, and its messages

    @property
    def remarks(self) -> list[str]:
        """What the user should know about the server's answers, one sentence each. Not for logs."""
        said = []
        if "temperature" in self._server.changed:
            said.append("the server rejects temperature, so none was sent, and it sampled at its default")
        if self.refusal:
            said.append(f"the server refused requests; its last reason: {self.refusal}")
        return said

    async def __aenter__(self) -> OpenAIPolicy:
        self._key, self._threads = key_in(), RequestThreads(self.concurrency)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._said.clear()
        self._threads.close()
        self._server.close()

    def messages(self, policy_input: PolicyInput) -> list[Message]:
        """Return the prompt of a turn. In layout `conversation`, it is called in every turn, also to ask nothing.

        Raises `BadSetting` if it was not called in the turn before.
        """
        template, turns = self.template, policy_input.episode.turns
        if self.layout == TURN or isinstance(template, TranscriptTemplate):
            return template.messages(policy_input)
        assert isinstance(template, ConversationTemplate)
        last, messages = self._said.get(id(policy_input.episode), (-1, []))
        if not turns:
            messages = template.messages(policy_input)
        elif last == len(turns) - 1:
            answer = turns[-1].output.text
            new: list[Message] = [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": template.follow_up(policy_input)},
            ]
            messages = [*messages, *new]
        elif last != len(turns):  # else a repeated call
            raise BadSetting("layout conversation continues what was said: let one policy play the whole episode")
        self._said[id(policy_input.episode)] = len(turns), messages
        return messages

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output for one input. Up to `concurrency` requests run at a time. Raises `ServerDown`."""
        body = self._body(self.messages(policy_input))
        try:
            answer = await self._threads.run(lambda call: self._answer(body, call))
            completion, logprobs, cut = self._read(answer)
        except Unanswered as error:
            kind, refused = _kind(error.last), error.last.answer
            if error.down:
                raise ServerDown(
                    f"policy {self.name!r}: the server has not answered for {error.silent:.0f} s; last: {kind}"
                ) from None
            return self._failed(policy_input, kind, refused)
        except (ValueError, MalformedAnswer) as error:  # ValueError: not JSON
            return self._failed(policy_input, type(error).__name__, None)
        self._keep_logprobs(policy_input, logprobs)
        action = self.template.parse_action(completion, policy_input)
        return PolicyOutput(action, completion=completion, cut=cut)

    def _answer(self, body: Mapping[str, Any], call: Call) -> Answer:
        return self._server.complete(body, lambda answer: answer, self._key, self._tries, call)[0]

    def _failed(self, policy_input: PolicyInput, kind: str, refused: Answer | None) -> PolicyOutput:
        """Return the output for a request that failed, and record it, unless the context is full in a later turn."""
        self.refusal = ("" if refused is None else reason_of(refused)) or self.refusal
        full = refused is not None and is_context_full(refused)
        if not full or not policy_input.episode.turns:
            failures = policy_input.episode.meta.setdefault(FAILED_REQUESTS, [])
            failures.append({"turn": len(policy_input.episode.turns), "failure": kind})
        if full:  # every further turn would fail as well
            return PolicyOutput(NO_ANSWER, truncated_by=CONTEXT)
        self._keep_logprobs(policy_input, [])
        return PolicyOutput(NO_ANSWER, completion=NO_ANSWER)

    def _keep_logprobs(self, policy_input: PolicyInput, logprobs: list[float]) -> None:
        if self._logprobs:
            policy_input.episode.meta.setdefault(LOGPROBS, []).append(logprobs)

    def _read(self, answer: Answer) -> tuple[str, list[float], bool]:
        """Return a completion, its log-probabilities, and whether it was cut at the token limit."""
        try:
            choice = json.loads(answer.body)["choices"][0]
            content: object = choice["message"].get("content")
            cut = choice.get("finish_reason") == "length"
            logprobs = [one["logprob"] for one in choice["logprobs"]["content"]] if self._logprobs else []
        except (RecursionError, KeyError, IndexError, TypeError, AttributeError):
            raise MalformedAnswer from None
        if not isinstance(content, str | None) or not all(isinstance(one, int | float) for one in logprobs):
            raise MalformedAnswer
        return content or "", [float(one) for one in logprobs], cut

    def _body(self, messages: Sequence[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": messages, "temperature": self.temperature}
        body["max_tokens"] = self.max_tokens
        if self._logprobs:
            body["logprobs"] = True
        if self._template_settings:
            body["chat_template_kwargs"] = self._template_settings
        if messages[-1]["role"] == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body


class MalformedAnswer(Exception):
    """The answer of the server is not a chat completion."""


_KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
"""The names of failures in logs, by status. They are those of OpenAI's client, with which earlier logs were made."""


def _kind(failure: TryFailed) -> str:
    """Return the kind of a failure for logs, without its reason, which can contain host names and paths."""
    if failure.answer is None:
        return "APITimeoutError" if failure.timeout else "APIConnectionError"
    status = failure.answer.status
    return f"{_KINDS.get(status, 'InternalServerError' if status >= 500 else 'APIStatusError')} (HTTP {status})"
