"""A backend for models behind the OpenAI chat-completions protocol: vLLM, llama.cpp, hosted servers."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

from agentgym_flow._util.endpoint import PATIENCE, Tries, Unanswered
from agentgym_flow._util.http import Answer, Call, TryFailed, check_seconds
from agentgym_flow._util.openai_access import (
    KEY_VARIABLE,
    ChatEndpoint,
    check_patience,
    check_temperature,
    checked_url,
    key_in,
)
from agentgym_flow._util.sharing import Lock
from agentgym_flow._util.values import is_number
from agentgym_flow.core import AnswerStore, Stream, canonical, check_integer, check_positive, stable_hash
from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.envs.canvas.operators.calls import (
    Messages,
    Model,
    OpCall,
    OperatorFailed,
    OpResult,
    RunCode,
    Value,
    in_sandbox,
    without_thoughts,
)
from agentgym_flow.envs.canvas.workflow import unknown_operator
from agentgym_flow.errors import BadSetting, ExecutorFailed, shown

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
            model, it has failed `IN_A_ROW` requests without ever answering, or it was silent longer than its patience.
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
        if (choices := found["choices"]) == []:
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


class Price(NamedTuple):
    """The price of a model per million tokens, in any currency.

    Attributes:
        read: the price of prompts.
        written: the price of completions.
    """

    read: float
    written: float


class Usage(NamedTuple):
    """The usage of a backend in this process.

    Attributes:
        calls: the calls of operators.
        failures: the calls that failed.
        requests: the requests, including retries.
        read: the tokens of prompts, as counted by the server.
        written: the tokens of completions, as counted by the server.
        cost: the cost in the currency of the prices; None without prices.
    """

    calls: int = 0
    failures: int = 0
    requests: int = 0
    read: int = 0
    written: int = 0
    cost: float | None = None

    def since(self, before: Usage) -> Usage:
        """Return the usage since `before`."""
        cost = None if self.cost is None else self.cost - (before.cost or 0.0)
        calls, failures, requests, read, written = (now - then for now, then in zip(self[:5], before[:5], strict=True))
        return Usage(calls, failures, requests, read, written, cost)


class OpenAIBackend:
    """Executes operators with one or several models. Safe in threads and after a fork.

    A failure is a result with the status `"error"` or `"timeout"`: no answer after all tries, or a reply that is empty,
    truncated at `max_tokens` or not in the requested form. If there is no server, if it rejects the key or the model,
    or if it fails `IN_A_ROW` requests before its first answer, `ExecutorFailed` is raised. If a server stops
    answering, requests wait for it first, see `wait_for`.

    There are no implicit defaults for models or servers. Each request has a seed derived from the call, so servers that
    respect seeds give reproducible results; for others, use `replay.ResponseRecorder`.

    Copies within a process are the backend itself. A pickle contains the settings but never the key.

    Args:
        model: the model's name on its server.
        url: the base URL of the server, usually ending in `/v1`; or a list of URLs, which take requests in turn
            (servers that are down are skipped while another one is up); or, for models on different servers, a mapping
            from each model to its URLs.
        models: name of an operator -> its model; `model` is for all others.
        key_variable: the environment variable with the key, read at each request; unset for servers without keys.
        temperature: the sampling temperature; 0 is greedy. Not sent if None, or to servers that reject it with status
            400, which then sample at their default.
        max_tokens: the maximum length of a completion in tokens; sent as `max_completion_tokens` to servers that reject
            `max_tokens` with status 400. None: not sent.
        request: further fields of every request, such as `{"top_p": 0.9}`. Fields that are None are not sent, so
            `{"seed": None}` is for servers that reject seeds.
        timeout: the time limit of one try in seconds.
        deadline: the time limit of one call of an operator in seconds, including all requests, retries and pauses.
        retries: the maximum number of retries after transient failures (timeout, 408, 429, 5xx, an invalid answer).
        backoff: the first pause between tries in seconds. Pauses double up to 8 s and vary randomly; a server can ask
            for longer ones with Retry-After.
        concurrency: the maximum number of concurrent requests to a server, from all backends and threads of the
            process.
        price: the price of all models. None: every result has the cost 0, and `usage.cost` is None.
        run_code: runs programs for Programmer, Test and Revise; by default the sandbox of this package.
        repairs: the maximum number of attempts to repair a program that fails.

    Raises `BadSetting` if a setting is invalid; the message names it.
    """

    def __init__(
        self,
        model: str,
        url: str | Sequence[str] | Mapping[str, str | Sequence[str]],
        *,
        models: Mapping[str, str] | None = None,
        key_variable: str = KEY_VARIABLE,
        temperature: float | None = 0.0,
        max_tokens: int | None = 2048,
        request: Mapping[str, Any] | None = None,
        timeout: float = 120.0,
        deadline: float = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        concurrency: int = 32,
        price: Price | tuple[float, float] | None = None,
        run_code: RunCode = in_sandbox,
        repairs: int = 2,
    ) -> None:
        self._settings = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        for setting, text in {"model": model, "key_variable": key_variable}.items():
            if not isinstance(text, str) or not text:
                raise BadSetting(f"{setting} must be a text that is not empty, got {text!r:.60}")
        for setting, seconds in {"timeout": timeout, "deadline": deadline, "backoff": backoff}.items():
            check_seconds(setting, seconds)
        retries, repairs = check_integer("retries", retries, 0), check_integer("repairs", repairs, 0)
        if temperature is not None:
            check_temperature(temperature)
        if max_tokens is not None:
            check_positive("max_tokens", max_tokens)
        self.model, self.models = model, _checked_models(models)
        self._urls = _checked_urls(url, {model, *self.models.values()})
        self._turns = {name: itertools.count() for name in self._urls}
        self._fields = {"temperature": temperature, "max_tokens": max_tokens, **_checked_fields(request or {})}
        self._tries = Tries(retries, deadline, backoff, timeout, check_positive("concurrency", concurrency))
        self._price = _checked_price(price)
        self._key_variable, self.deadline = key_variable, deadline
        self._run_code, self._repairs = run_code, repairs
        self._usage = Usage(cost=None if price is None else 0.0)
        self._lock = Lock()
        self._asked: set[Call] = set()
        self._kept: AnswerStore | None = None

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.model!r}, {', '.join(self.urls)})"

    def __getstate__(self) -> dict[str, Any]:
        return self._settings

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __deepcopy__(self, memo: object) -> Self:
        return self  # clones of an environment share the backend

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        return self._usage

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all its servers."""
        return tuple(dict.fromkeys(url for urls in self._urls.values() for url in urls))

    def wait_for(self, patience: float) -> None:
        """Set how many seconds all callers in this process wait for servers that stopped answering.

        Raises `BadSetting` unless it is a number of at least 0.
        """
        for url in self.urls:
            server_at(url).patience = check_patience(patience)

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers from `store` if it has them, and add every new one to it; None to stop."""
        self._kept = store

    def run(self, call: OpCall) -> OpResult:
        """Return the result of the call; its `text` is the last reply, or the reason of the failure.

        Raises `ExecutorFailed`, exceptions of `run_code`, `KeyboardInterrupt`, and `CancelledError` after `cancel`.
        """
        status: Literal["ok", "error", "timeout"]
        value: Value | None
        started, talk, failed = time.monotonic(), _CallConversation(self, call), True
        operator = OPERATORS[call.operator]
        model = Model(
            call, talk.ask, self._run_code, self._repairs, instruction=operator.instruction, form=operator.form
        )
        try:
            value = operator.run(model, call.inputs)
            status, text, failed = "ok", talk.reply, False
        except OperatorFailed as failure:
            value, status, text = None, failure.status, str(failure)
        finally:
            self._count(talk, failed)
        return OpResult(status, value, text, talk.read + talk.written, self._cost(talk), time.monotonic() - started)

    def cancel(self) -> None:
        """Cancel all active requests: their calls raise `concurrent.futures.CancelledError`.

        Ends waiting in other threads at the end of a program. Later calls work as before.
        """
        with self._lock:
            asked = list(self._asked)
        for one in asked:
            one.cancel()

    def _cost(self, talk: _CallConversation) -> float:
        price = self._price or Price(0.0, 0.0)
        return (talk.read * price.read + talk.written * price.written) / 1e6

    def _count(self, talk: _CallConversation, failed: bool) -> None:
        with self._lock:
            old = self._usage
            self._usage = Usage(
                old.calls + 1,
                old.failures + failed,
                old.requests + talk.requests,
                old.read + talk.read,
                old.written + talk.written,
                None if old.cost is None else old.cost + self._cost(talk),
            )

    def _complete(self, messages: Messages, seed: int, seconds: float, model: str) -> ModelReply:
        """Return the completion of a conversation. Raises `ServerFailed`."""
        fields = {name: value for name, value in {"seed": seed, **self._fields}.items() if value is not None}
        request = {"model": model, "messages": messages, **fields}
        if self._kept is None:
            return self._said(request, seconds)
        name = stable_hash([model, messages, fields])
        if (known := self._kept.take(name)) is not None:
            return ModelReply(*known)
        said = self._said(request, seconds)
        self._kept.add(name, list(said))
        return said

    def _said(self, request: Mapping[str, Any], seconds: float) -> ModelReply:
        """Return the reply of the next server in turn, skipping those that are down. Raises `ServerFailed`."""
        urls, end, tries = self._urls[request["model"]], time.monotonic() + seconds, 0
        first = next(self._turns[request["model"]])
        for number in range(first, first + len(urls)):
            try:
                said = self._said_at(urls[number % len(urls)], request, end - time.monotonic())
                return said._replace(tries=said.tries + tries)
            except ServerFailed as error:
                tries += error.tries
                if not error.lasting or number == first + len(urls) - 1 or time.monotonic() >= end:
                    error.tries = tries
                    raise
        raise AssertionError("a model has a server")

    def _said_at(self, url: str, request: Mapping[str, Any], seconds: float) -> ModelReply:
        call, tries = Call(), replace(self._tries, deadline=seconds)
        with self._lock:
            self._asked.add(call)
        try:
            return ask_model(server_at(url), request, key_in(self._key_variable), tries, call)
        finally:
            with self._lock:
                self._asked.discard(call)


class _CallConversation:
    """The requests of one call of an operator, with their usage."""

    def __init__(self, backend: OpenAIBackend, call: OpCall) -> None:
        self._backend = backend
        self._end = time.monotonic() + backend.deadline
        self._seeds = Stream("canvas request", call.digest)
        self._model = backend.models.get(call.operator, backend.model)
        self.reply = ""
        self.requests = self.read = self.written = 0

    def ask(self, messages: Messages) -> str:
        """Return the reply to a conversation. Raises `OperatorFailed`."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise OperatorFailed("the deadline was over before the last request", "timeout")
        try:
            said = self._backend._complete(messages, self._seeds.below(1 << 31), left, self._model)
        except ServerFailed as error:
            self.requests += error.tries
            if error.lasting:
                # Without the address, because logs may contain the message.
                advice = "check that the server runs, its URL, the name of the model and the key"
                raise ExecutorFailed(f"executor {self._model!r}: {error}; {advice}") from None
            raise OperatorFailed(str(error), error.status) from None
        self.requests += said.tries
        self._end += said.waited
        self.read += said.read
        self.written += said.written
        if said.ended == "length":
            raise OperatorFailed("the reply was cut off: it reached max_tokens, or the end of the model's context")
        if said.ended == "content_filter":
            raise OperatorFailed("the server's filter withheld the reply")
        self.reply = without_thoughts(said.text)
        return self.reply


def _checked_fields(more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additional fields of requests. Raises `BadSetting`."""
    for name in more:
        if name in ("model", "messages", "stream", "n"):
            raise BadSetting(f"request cannot hold {name!r}, which the backend sets or does not read")
    try:
        canonical(more)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"request must be plain data that JSON can hold: {error}") from None
    return dict(more)


def _checked_models(models: Mapping[str, str] | None) -> dict[str, str]:
    """Return the models of operators. Raises `BadSetting`."""
    by_operator = {} if models is None else models
    if not isinstance(by_operator, Mapping) or not all(isinstance(name, str) and name for name in by_operator.values()):
        raise BadSetting(f"models maps names of operators to names of models, got {shown(models)}")
    for operator in by_operator:
        if operator not in OPERATORS:
            raise BadSetting(f"models: {unknown_operator(str(operator), tuple(OPERATORS))}")
    return dict(by_operator)


def _checked_urls(
    urls: str | Sequence[str] | Mapping[str, str | Sequence[str]], models: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return model -> the URLs of its servers. Raises `BadSetting`."""
    by_model = urls if isinstance(urls, Mapping) else dict.fromkeys(models, urls)
    if set(by_model) != set(models):
        one = sorted(map(str, set(by_model) ^ set(models)))[0]
        said = "has no URL" if one in models else "has a URL but is not used"
        raise BadSetting(f"model {one!r:.60} {said}; the models are {', '.join(sorted(models))}")
    found = {}
    for model, given in by_model.items():
        several = [given] if isinstance(given, str) else given
        if not isinstance(several, Sequence) or not several:
            raise BadSetting(f"a URL is a text, and several are a list, got {shown(given)}")
        found[model] = tuple(dict.fromkeys(checked_url(url) for url in several))
    return found


def _checked_price(price: Price | tuple[float, float] | None) -> Price | None:
    if price is None:
        return None
    if not isinstance(price, tuple | list) or len(price) != 2 or not all(is_number(p) and p >= 0 for p in price):
        raise BadSetting(f"price is two numbers of at least 0 per million tokens, read and written, got {price!r:.60}")
    return Price(*price)
