"""A server of chat completions: a concurrency limit for all callers of the process, retries, pauses and deadlines.

One thread with an event loop waits for all requests of a process. There, a request can be cancelled at any moment,
whereas timeouts of blocking clients apply to each chunk of an answer. The client's own retries are off: they would
occupy a slot during every pause, ignore the deadline, and use the global random state.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agentgym_flow._util.openai_access import CHAT, PATIENCE, PROBE, Dialect, RequestTiming, openai_package
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import Stream
from agentgym_flow.retrieval.exchange import seconds_of
from agentgym_flow.retrieval.remote import AGAIN, CONTACT, pause_after

if TYPE_CHECKING:
    import openai

MOST_ANSWER = 16 << 20
"""The maximum size of an answer in bytes."""

IN_A_ROW = 10
"""The number of failed requests after which a server that has never answered counts as down."""

_LASTING = (401, 403, 404)

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


@dataclass(frozen=True)
class Patience:
    """The limits of a request.

    Attributes:
        timeout: the time limit of one try in seconds.
        retries: the maximum number of further tries.
        backoff: the first pause between tries in seconds; see `retrieval.remote.pause_after`.
        concurrency: the maximum number of concurrent requests to the server, from all callers of the process.
    """

    timeout: float
    retries: int
    backoff: float
    concurrency: int


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

    def __init__(self, text: str, status: Literal["error", "timeout"], tries: int, lasting: bool = False) -> None:
        super().__init__(text)
        self.status, self.tries, self.lasting = status, tries, lasting


class Gate:
    """Limits the number of concurrent requests, first come first served. Used in one event loop, so without locks."""

    def __init__(self) -> None:
        self.under_way = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def place(self, most: int) -> AsyncIterator[None]:
        """Wait until fewer than `most` requests are active, and occupy a slot."""
        if self._waiting or self.under_way >= most:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((most, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # admitted at the same moment
                    self.under_way -= 1
                self._admit()
                raise
        else:
            self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            most, turn = self._waiting[0]
            if not turn.done():
                if self.under_way >= most:
                    return
                self.under_way += 1
                turn.set_result(None)
            self._waiting.popleft()


class Server:
    """A server, shared by all its callers in this process; created by `server_at`.

    Attributes:
        patience: the seconds since its last answer for which requests wait for a server that stopped answering, beyond
            their tries and deadline; 0 to disable.
    """

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.gate = Gate()
        self._loop = loop
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._numbers = itertools.count()
        self.patience = PATIENCE
        self._failed_in_a_row = 0
        self._probing = asyncio.Lock()
        self._dialect = Dialect()
        self._answered: RequestTiming | None = None  # the last answered request, in the time of the loop

    def start(self, request: Mapping[str, Any], key: str, patience: Patience, deadline: float) -> Future[ModelReply]:
        """Start a request, and return the future of its answer, or of `ServerFailed`, within `deadline` seconds.

        Cancel the future to abort the request.
        """
        return asyncio.run_coroutine_threadsafe(self._complete(request, key, patience, deadline), self._loop)

    async def _complete(self, request: Mapping[str, Any], key: str, patience: Patience, deadline: float) -> ModelReply:
        chance = Stream("canvas server", self.url, os.getpid(), next(self._numbers))
        start = self._loop.time()
        end = start + deadline
        last, tries = _TryFailure("no request could be sent, others are under way", "timeout"), 0
        failed: float | None = None  # when this request ran out of tries
        try:
            async with asyncio.timeout_at(end) as limit:
                while True:
                    async with self.gate.place(patience.concurrency):
                        tries, began = tries + 1, self._loop.time()
                        found = await self._try(request, key, patience.timeout)
                    now = self._loop.time()
                    if isinstance(found, ModelReply):
                        self._failed_in_a_row, self._answered = 0, RequestTiming(began, now)
                        return found._replace(tries=tries, waited=0.0 if failed is None else now - failed)
                    last = found
                    pause = max(found.least_pause, pause_after(min(tries - 1, 8), patience.backoff, chance))
                    absent = found.lasting and self._answered is None and now + pause >= start + CONTACT
                    if not found.passing or absent or tries > patience.retries or now + pause >= end:
                        if not self._is_outage(found, failed, began):
                            break
                        failed = failed or now
                        limit.reschedule(None)  # until there is an answer, or patience is over
                    await asyncio.sleep(pause)
                    if failed is not None:
                        await self._probe(failed, request, key, patience.timeout)
        except TimeoutError:
            last = last if last.status == "error" else last._replace(text=f"{last.text}; the deadline is over")
            raise self._failed(last._replace(status="timeout"), tries, deadline) from None
        raise self._failed(last, tries, deadline)

    async def _probe(self, failed: float, request: Mapping[str, Any], key: str, timeout: float) -> None:
        """Send a minimal request unless the server has answered since; distinguishes an outage from a bad request."""
        async with self._probing:
            if self._answered is not None and self._answered.sent >= failed:
                return
            sent = self._loop.time()
            limits = {name: 1 for name in ("max_tokens", "max_completion_tokens") if name in request}
            messages = [{"role": "user", "content": PROBE}]
            found = await self._try({"model": request["model"], "messages": messages, **limits}, key, timeout)
            if isinstance(found, ModelReply) or not (found.passing or found.lasting):
                self._answered = RequestTiming(sent, self._loop.time())

    def _is_outage(self, problem: _TryFailure, failed: float | None, began: float) -> bool:
        """Return whether to wait for the server: it has answered before, and the request did not cause the failure.

        The request is the cause if it failed again after the server has answered another one sent in the meantime.

        Args:
            problem: the outcome of the last try.
            failed: when the request ran out of tries; None for just now.
            began: when the last try began.
        """
        answered = self._answered
        if answered is None or not problem.passing:
            return False
        if failed is not None and failed <= answered.sent and answered.came <= began:
            return False
        return self._loop.time() - answered.came < self.patience

    def _failed(self, problem: _TryFailure, tries: int, deadline: float) -> ServerFailed:
        times = "1 try" if tries == 1 else f"{tries} tries"
        text = f"the model gave no usable answer after {times} within {round(deadline, 1):g} s; last: {problem.text}"
        self._failed_in_a_row += tries > 0  # without a slot, it was never sent
        if self._answered is None or not self.patience:
            down = self._failed_in_a_row >= IN_A_ROW
        else:
            down = problem.passing and self._loop.time() - self._answered.came >= self.patience
            text += "; it has answered no request for the whole of --patience" if down else ""
        return ServerFailed(text, problem.status, tries, problem.lasting or down)

    async def _try(self, request: Mapping[str, Any], key: str, timeout: float) -> ModelReply | _TryFailure:
        package = openai_package()
        try:
            async with asyncio.timeout(timeout):
                return _read(await self._dialect.send(partial(self._post, key), request))
        except TimeoutError:
            return _TryFailure(f"no answer in {timeout:g} s", "timeout")
        except _InvalidAnswer as error:
            return _TryFailure(str(error), "error")
        except package.APIStatusError as error:
            return _refused(error.status_code, error.response.headers.get("retry-after"))
        except package.APIConnectionError as error:
            cause = error.__cause__ or error
            nobody = any(kind.__name__ == "ConnectError" for kind in type(cause).__mro__)
            return _TryFailure(f"the connection failed ({type(cause).__name__})", "error", lasting=nobody)
        except package.OpenAIError as error:
            return _TryFailure(f"the client failed ({type(error).__name__})", "error", passing=False)
        except Exception as error:  # from the HTTP library of the client, which differs between versions
            return _TryFailure(f"the connection failed ({type(error).__name__})", "error")

    async def _post(self, key: str, request: Mapping[str, Any]) -> bytes:
        package, client = openai_package(), self._clients.get(key)
        if client is None:
            client = package.AsyncOpenAI(base_url=self.url, api_key=key, timeout=None, max_retries=0)
            self._clients[key] = client
        body = bytearray()
        # As a stream, because a stream can be aborted when it grows too long.
        kind = package.AsyncStream[object]
        async with await client.post(CHAT, cast_to=object, body=request, stream=True, stream_cls=kind) as answer:
            async for part in answer.response.aiter_bytes():
                body += part
                if len(body) > MOST_ANSWER:
                    raise _InvalidAnswer("the answer is too large")
        return bytes(body)


class _TryFailure(NamedTuple):
    text: str
    status: Literal["error", "timeout"]
    passing: bool = True  # another try may succeed
    least_pause: float = 0.0
    lasting: bool = False  # all requests fail in this way


class _InvalidAnswer(Exception):
    """An answer is not a chat completion."""


def _refused(status: int, retry_after: str | None) -> _TryFailure:
    hint = _HINTS.get(status, "")
    text = f"status {status}{f', {hint}' if hint else ''}"
    return _TryFailure(text, "error", status in AGAIN, seconds_of(retry_after) or 0.0, status in _LASTING)


def _read(body: bytes) -> ModelReply:
    """Parse an answer. Raises `_InvalidAnswer`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise _InvalidAnswer("the answer is not JSON") from None
    try:
        choices = answer["choices"]
        if isinstance(choices, list) and not choices:
            raise _InvalidAnswer("the answer has no choices")
        text, ended = choices[0]["message"].get("content"), choices[0].get("finish_reason")
        usage = answer.get("usage") or {}
        read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    except (KeyError, IndexError, TypeError, AttributeError):
        raise _InvalidAnswer("the answer is not a chat completion") from None
    counts = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in (read, written))
    if not isinstance(text, str | None) or not isinstance(ended, str | None) or not counts:
        raise _InvalidAnswer("the answer is not a chat completion")
    return ModelReply(text or "", ended or "", read, written)


_lock = Lock()
# After a fork, objects of the parent are kept but not used, because closing them would disturb the parent.
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_servers: dict[tuple[int, str], Server] = {}


def server_at(url: str) -> Server:
    """Return the server at `url`, which is shared within the process; a forked child has its own."""
    process, url = os.getpid(), url.rstrip("/")
    with _lock:
        loop = _loops.get(process)
        if loop is None:
            loop = _loops[process] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="canvas requests", daemon=True).start()
        found = _servers.get((process, url))
        if found is None:
            found = _servers[process, url] = Server(url, loop)
        return found
