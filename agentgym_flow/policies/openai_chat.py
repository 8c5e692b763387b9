"""A policy for any model behind the OpenAI chat-completions protocol (vLLM, llama.cpp, hosted models) or a like one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_flow._util.endpoint import LONGEST_PAUSE, PATIENCE, RequestThreads, Tries, Unanswered
from agentgym_flow._util.http import Answer, Call, TryFailed, check_seconds
from agentgym_flow._util.openai_access import (
    PROBE,
    ChatEndpoint,
    check_patience,
    check_temperature,
    is_context_full,
    key_in,
    reason_of,
)
from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.episodes import LOGPROBS, REASONING, PolicyOutput
from agentgym_flow.errors import BadSetting, ServerDown, UnknownOption, shown
from agentgym_flow.policies.base import CONTEXT, NO_ANSWER, PolicyInput
from agentgym_flow.policies.dialects import DIALECTS, NOTHING, MalformedAnswer, Reply, ToolCall, numbers_in
from agentgym_flow.policies.spending import USAGE, Prices, add_usage
from agentgym_flow.prompts import CONVERSATION, LAYOUTS, TURN, template_for, tools_for
from agentgym_flow.prompts.tools import NO_CALL, called
from agentgym_flow.prompts.types import ConversationTemplate, TranscriptTemplate

FAILED_REQUESTS = "failed_requests"
"""The key of `Episode.meta` with the list of failed requests."""

TOOL_CALLS = "tool_calls"
"""The key of `Episode.meta` with the calls of tools by turn, and why the first call of a turn was no action (`bad`)."""

NOT_EXECUTED = "not executed: only the first call of a turn is"
"""The answer to further calls of a turn."""


class OpenAIPolicy:
    """Sends the prompt of every policy input to a chat model, and reads the action from its answer.

    A failed request does not stop the rollout if the server answers other requests, or has never answered. The action
    of the turn is then `NO_ANSWER`, which no environment accepts, and `episode.meta["failed_requests"]` records the
    turn and the kind of failure. If the server stops answering at all, the policy repeats all requests until one is
    answered, or raises `ServerDown` after `patience` seconds. The key is read from the environment variable
    `OPENAI_API_KEY`; local servers need none.

    If a server rejects `max_tokens` with status 400, the limit is sent as `max_completion_tokens`. If it rejects
    another optional field (`temperature`, `parallel_tool_calls`, `tool_choice`, `strict`) and names it, the field is no
    longer sent, as `remarks` reports. If it says that the messages are longer than the model's context, the episode is
    truncated (`truncated_by` in `episode.meta`).

    A model acts by calling a tool if `tools` is set. The first call of a turn is played, and further ones are answered
    with `NOT_EXECUTED`. If that call has malformed JSON, an unknown name or bad arguments, or there is no call, the
    action is `NO_ANSWER`. Calls are kept in `episode.meta["tool_calls"]`. Without `tools`, a call is read only from a
    reply without text. Reasoning that the server separates from the text is kept in `episode.meta["reasoning"]`; no
    action is read from it.

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
            None: `conversation` with `tools`, otherwise `turn`.
        tools: offer the actions of the environment as tools (`agentgym_flow.prompts.tools_for`). Needs the template
            `text` without `shots`.
        dialect: the protocol of the server: `chat` (OpenAI's chat completions), `responses` (OpenAI's responses) or
            `anthropic` (Anthropic's messages, whose key is read from `ANTHROPIC_API_KEY`).
        temperature: the sampling temperature; 0 is greedy.
        max_tokens: the largest length of a completion, in tokens.
        logprobs: request the log-probabilities of the completion's tokens, and store them in
            `episode.meta["logprobs"]`. Leaderboards need them for the badge *attested*.
            Only in dialect `chat`.
        chat_template_kwargs: settings of the model's chat template, such as `{"enable_thinking": False}`, for servers
            that support them, such as vLLM. Only in dialect `chat`.
        prices: a file with the prices of models (`spending.Prices.read`); `episode.meta["usage"]` then has the `cost`.
        timeout: the timeout of a request in seconds.
        max_retries: the number of retries after a temporary failure (timeout, 429, 5xx).
        concurrency: the largest number of concurrent requests.
        patience: seconds without any answer after which a server counts as down. 0: record failures immediately.

    Attributes:
        settings: the settings that affect the answers, as plain data.
        ignores_rng: True, because answers depend only on the policy input, so they can be recorded and reused.
        key_variable: the environment variable that holds the key.
        refusal: the server's reason for its last refusal, in short; empty if there is none. Not for logs.

    `async with policy:` starts and ends the threads of its requests, which `rollout` does itself.

    Raises:
        BadSetting: a number is out of range, the URL is malformed, or the template does not support conversations or
            tools, or the dialect a setting.
        UnknownEnvironment, UnknownTemplate, UnknownOption: there is no such environment, template, field of it, layout
            or dialect.
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
        layout: str | None = None,
        tools: bool = False,
        dialect: str = "chat",
        temperature: float = 0.0,
        max_tokens: int = 512,
        logprobs: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        prices: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        concurrency: int = 32,
        patience: float = PATIENCE,
    ) -> None:
        check_temperature(temperature)
        check_seconds("timeout", timeout)
        max_retries = check_integer("max_retries", max_retries, 0)
        for name, given in {"tools": tools, "logprobs": logprobs}.items():
            if not isinstance(given, bool):
                raise BadSetting(f"{name} must be true or false, got {shown(given)}")
        mappings = {"template_settings": template_settings, "chat_template_kwargs": chat_template_kwargs}
        for name, value in mappings.items():
            if not isinstance(value, Mapping | None):
                raise BadSetting(f"{name} must be a mapping, got {shown(value)}")
        changed = {**(template_settings or {}), **({} if shots is None else {"shots": shots})}
        if tools and (template != "text" or changed.get("shots")):
            raise BadSetting("tools are offered with the template text, and without shots: leave the others out")
        self.template = template_for(env_id, template, {**changed, "tools": True} if tools else changed)
        layout = layout or (CONVERSATION if tools else TURN)
        self._logprobs, self._template_settings = logprobs, dict(chat_template_kwargs or {})
        self._check_support(template, layout, dialect)
        self.layout = layout
        self.name = f"openai:{model}" + (f" ({self.template.name})" if ":" in template else "")
        self.model = model
        self.temperature = temperature
        self.max_tokens = check_positive("max_tokens", max_tokens)
        self.concurrency = check_positive("concurrency", concurrency)
        # No deadline of its own: a longer pause that the server asks for is an outage.
        pauses = (max_retries + 1) * (timeout + LONGEST_PAUSE)
        self._tries = Tries(max_retries, pauses, 0.5, timeout)
        self._dialect = spoken = DIALECTS[dialect]
        self.key_variable = spoken.key_variable
        how: dict[str, Any] = {"path": spoken.path, "headers": spoken.headers, "optional": spoken.optional}
        self._server = ChatEndpoint(url, patience=check_patience(patience), **how)
        self._tools, self._offered = tools_for(env_id), tools
        self._prices = None if prices is None else Prices.read(prices, model)
        self._unasked = 0  # calls in place of texts
        self.settings: dict[str, Any] = {"template": self.template.name}
        self.settings |= {"temperature": temperature, "max_tokens": max_tokens}
        optional = {
            "template_settings": changed,
            "layout": "" if layout == TURN else layout,
            "tools": tools,
            "dialect": "" if dialect == "chat" else dialect,
            "logprobs": logprobs,
            "chat_template_kwargs": self._template_settings,
        }
        self.settings |= {name: value for name, value in optional.items() if value}
        self.refusal = ""
        self._said: dict[int, tuple[int, list[Any]]] = {}  # of each episode: the last turn, and its messages
        self._items: dict[int, tuple[int, Any]] = {}  # of each episode: the last turn, and the items of its reply

    def _check_support(self, template: str, layout: str, dialect: str) -> None:
        """Raise the error of a layout or a dialect that is unknown, or does not support the other settings."""
        if layout not in LAYOUTS:
            raise UnknownOption.among(layout, LAYOUTS)
        if dialect not in DIALECTS:
            raise UnknownOption.among(dialect, DIALECTS)
        only_in_chat = self._logprobs or self._template_settings or isinstance(self.template, TranscriptTemplate)
        if dialect != "chat" and only_in_chat:
            raise BadSetting(
                f"dialect {dialect} has no logprobs, chat_template_kwargs or prompts that begin the answer"
            )
        if layout == CONVERSATION and not isinstance(self.template, ConversationTemplate):
            raise BadSetting(f"template {template!r} has no follow_up message, which layout conversation needs")

    @property
    def remarks(self) -> list[str]:
        """What the user should know about the server's answers, one sentence each. Not for logs."""
        said = []
        for name in sorted(self._server.changed - {"max_tokens"}):
            end = ", and it sampled at its default" if name == "temperature" else ""
            said.append(f"the server rejects {name}, so none was sent{end}")
        if self._unasked:
            said.append(f"{self._unasked} answers were calls of tools, which were not offered; --tools offers them")
        if self.refusal:
            said.append(f"the server refused requests; its last reason: {self.refusal}")
        return said

    async def __aenter__(self) -> OpenAIPolicy:
        self._key, self._threads = key_in(self.key_variable), RequestThreads(self.concurrency)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._said.clear()
        self._items.clear()
        self._threads.close()
        self._server.close()

    def messages(self, policy_input: PolicyInput) -> list[Any]:
        """Return the prompt of a turn (`dialects.Chat`). In layout `conversation`, it is called in every turn.

        Raises `BadSetting` if it was not called in the turn before.
        """
        template, turns = self.template, policy_input.episode.turns
        if self.layout == TURN or isinstance(template, TranscriptTemplate):
            return list(template.messages(policy_input))
        last, messages = self._said.get(id(policy_input.episode), (-1, []))
        if not turns:
            self._items.pop(id(policy_input.episode), None)  # of an earlier episode at the same place in memory
            messages = list(template.messages(policy_input))
        elif last == len(turns) - 1:
            messages = [*messages, *self._last_turn(policy_input)]
        elif last != len(turns):  # else a repeated call
            raise BadSetting("layout conversation continues what was said: let one policy play the whole episode")
        self._said[id(policy_input.episode)] = len(turns), messages
        return messages

    def items(self, policy_input: PolicyInput) -> Sequence[Any]:
        """Return the parts of the reply in the present turn that the server wants back. Some protocols have none."""
        turn, items = self._items.get(id(policy_input.episode), (-1, ()))
        return items if turn == len(policy_input.episode.turns) else ()

    def keep_items(self, policy_input: PolicyInput, items: Sequence[Any]) -> None:
        """Keep the parts of a recorded reply in the present turn that the server wants back."""
        if items:
            self._items[id(policy_input.episode)] = len(policy_input.episode.turns), items

    def _last_turn(self, policy_input: PolicyInput) -> list[dict[str, Any]]:
        """Return the answer of the last turn, and what came of it: the answers to its calls, or a message."""
        assert isinstance(self.template, ConversationTemplate)
        episode, number = policy_input.episode, len(policy_input.episode.turns) - 1
        told = self.template.follow_up(policy_input)
        noted: Mapping[str, Any] = next((one for one in episode.meta.get(TOOL_CALLS, ()) if one["turn"] == number), {})
        if why := noted.get("bad"):
            told = f"There was no action: {why}.\n\n{told}"
        answer: dict[str, Any] = {"role": "assistant", "content": episode.turns[-1].output.text}
        if noted and not self._offered:  # a call that was not asked for counts as its action
            answer["content"] = episode.turns[-1].action
        turn, items = self._items.get(id(episode), (-1, ()))
        calls = [ToolCall(**call) for call in noted.get("calls", ())] if self._offered else []
        if turn == number and (self._offered or not noted):
            answer["items"] = items
        if not calls:
            answer["content"] = answer["content"] or (NOTHING if self._offered else "")
            return [answer, {"role": "user", "content": told}]
        results = [(told, bool(why)), *[(NOT_EXECUTED, True)] * (len(calls) - 1)]
        answers = [
            {"role": "tool", "id": call.id, "content": text, "error": error}
            for call, (text, error) in zip(calls, results, strict=True)
        ]
        return [answer | {"calls": calls}, *answers]

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output for one input. Up to `concurrency` requests run at a time. Raises `ServerDown`."""
        body = self._body(self.messages(policy_input))
        try:
            answer, seconds = await self._threads.run(lambda call: self._answer(body, call))
            reply, logprobs = self._read(answer)
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
        if reply.reasoning:
            _note(policy_input, REASONING, text=reply.reasoning)
        if reply.usage:
            spent = {**reply.usage, "cut": int(reply.cut), "seconds": round(seconds, 3)}
            price = {} if self._prices is None else {"cost": self._prices.cost(reply.usage)}
            add_usage(policy_input.episode.meta.setdefault(USAGE, {}), {**spent, **price})
        self.keep_items(policy_input, reply.items)
        return PolicyOutput(self._action(reply, policy_input), completion=reply.text, cut=reply.cut)

    def _action(self, reply: Reply, policy_input: PolicyInput) -> str:
        """Return the action of a reply, and note its calls of tools."""
        if not self._offered and (not reply.calls or reply.text.strip()):
            return self.template.parse_action(reply.text, policy_input)
        self._unasked += not self._offered
        action, why = called(self._tools, *reply.calls[0][1:]) if reply.calls else (NO_ANSWER, NO_CALL)
        calls = {"calls": [call._asdict() for call in reply.calls]} if reply.calls else {}
        _note(policy_input, TOOL_CALLS, **calls, **({"bad": why} if why else {}))
        return action

    def _answer(self, body: Mapping[str, Any], call: Call) -> tuple[Answer, float]:
        """Return the answer to a request, and the seconds that it took."""
        begun = time.monotonic()
        probe = self._dialect.request(self.model, [{"role": "user", "content": PROBE}], self.temperature, 16, {})
        answer = self._server.complete(body, lambda answer: answer, self._key, self._tries, call, probe)[0]
        return answer, time.monotonic() - begun

    def _failed(self, policy_input: PolicyInput, kind: str, refused: Answer | None) -> PolicyOutput:
        """Return the output for a request that failed, and record it, unless the context is full in a later turn."""
        self.refusal = ("" if refused is None else reason_of(refused)) or self.refusal
        full = refused is not None and is_context_full(refused)
        if not full or not policy_input.episode.turns:
            _note(policy_input, FAILED_REQUESTS, failure=kind)
        if full:  # every further turn would fail as well
            return PolicyOutput(NO_ANSWER, truncated_by=CONTEXT)
        self._keep_logprobs(policy_input, [])
        return PolicyOutput(NO_ANSWER, completion=NO_ANSWER)

    def _keep_logprobs(self, policy_input: PolicyInput, logprobs: list[float]) -> None:
        if self._logprobs:
            policy_input.episode.meta.setdefault(LOGPROBS, []).append(logprobs)

    def _read(self, answer: Answer) -> tuple[Reply, list[float]]:
        """Return a reply, and its log-probabilities. Raises `MalformedAnswer`, and `ValueError` if it is not JSON."""
        try:
            reply = self._dialect.reply(json.loads(answer.body))
            return reply, numbers_in(reply.logprobs) if self._logprobs else []
        except (RecursionError, LookupError, TypeError, AttributeError):
            raise MalformedAnswer from None

    def _body(self, messages: list[Any]) -> dict[str, Any]:
        tools = self._tools if self._offered else {}
        body = self._dialect.request(self.model, messages, self.temperature, self.max_tokens, tools)
        if self._logprobs:
            body["logprobs"] = True
        if self._template_settings:
            body["chat_template_kwargs"] = self._template_settings
        if messages[-1]["role"] == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body


def _note(policy_input: PolicyInput, key: str, **what: Any) -> None:
    """Note something about the present turn in the meta data of the episode."""
    policy_input.episode.meta.setdefault(key, []).append({"turn": len(policy_input.episode.turns), **what})


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
