"""One server of chat completions as a process sees it: a limit that all its callers share, tries, pauses, deadlines.

All requests of a process are waited for in one thread, in an event loop: there a request can be given up at any moment,
whatever the server does, which no timeout of a blocking client can promise (they hold for each piece of an answer).
The client's own retries are off: they would keep a place at the server through every pause, know no deadline, and draw
from the process's global randomness.
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

from agentgym_flow._util.openai_access import CHAT, PATIENCE, PROBE, CompletionLimit, RequestTiming, openai_package
from agentgym_flow._util.sharing import Lock
from agentgym_flow.retrieval.exchange import seconds_of
from agentgym_flow.retrieval.remote import AGAIN, pause_after
from agentgym_flow.seeding import Stream

if TYPE_CHECKING:
    import openai

MOST_ANSWER = 16 << 20
"""Bytes that an answer may have."""

IN_A_ROW = 10
"""So many requests that fail for good are the server's fault and not theirs, if it has never answered one."""

_LASTING = (401, 403, 404)

_HINTS = {
    400: "it does not accept the request: a setting it does not know, or too long a prompt",
    401: "it asks for another key",
    403: "it does not admit this key",
    404: "it has no such model, or nothing at this address",
    413: "the request is too large for it",
    422: "it does not accept the request",
    429: "it has too much to do, or the account's quota is used up",
    503: "it has too much to do",
}


@dataclass(frozen=True)
class Patience:
    """How long a request is worth waiting for.

    Attributes:
        timeout: seconds for one try.
        retries: further tries after the first.
        backoff: seconds of the first pause between tries; see `retrieval.remote.pause_after`.
        concurrency: the request waits until fewer than so many are under way at the server, whoever sent them.
    """

    timeout: float
    retries: int
    backoff: float
    concurrency: int


class ModelReply(NamedTuple):
    """What a model said.

    Attributes:
        text: the text; empty when there was none.
        ended: why it ended, as the server says: `"stop"`, `"length"`, ...; empty when it does not.
        read: tokens of the prompt; 0 when the server does not say.
        written: tokens of the completion; the same.
        tries: how many requests it took.
        waited: seconds for which the request waited for a server that answered nobody.
    """

    text: str
    ended: str
    read: int
    written: int
    tries: int = 1
    waited: float = 0.0


class ServerFailed(Exception):
    """No usable answer came; the message says why, without a word of the server's.

    Attributes:
        status: `"timeout"` when there was no answer in time, else `"error"`.
        tries: how many requests were sent.
        lasting: whether all other requests would fail as well: no server is at the address, the key or the model is
            refused, or the server has never answered and failed `IN_A_ROW` requests, or had answered and then answered
            nothing for the length of its patience.
    """

    def __init__(self, text: str, status: Literal["error", "timeout"], tries: int, lasting: bool = False) -> None:
        super().__init__(text)
        self.status, self.tries, self.lasting = status, tries, lasting


class Gate:
    """Counts what is under way, and lets one after the other in. All in one event loop, so there is nothing to lock."""

    def __init__(self) -> None:
        self.under_way = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def place(self, most: int) -> AsyncIterator[None]:
        """Wait until fewer than `most` are under way, and be one of them."""
        if self._waiting or self.under_way >= most:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((most, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # the turn came at the same moment
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
    """A server, for all who ask it in this process; get it from `server_at`.

    Attributes:
        patience: a server that had answered and answers nobody any more is waited for so many seconds from its last
            answer on, beyond the tries and the deadline of a request; 0: not at all.
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
        self._limit = CompletionLimit()
        self._answered: RequestTiming | None = None  # the last request that was answered, on the clock of the loop

    def start(self, request: Mapping[str, Any], key: str, patience: Patience, deadline: float) -> Future[ModelReply]:
        """Start a request, and return what its answer will be in, within `deadline` seconds.

        `ServerFailed` may come instead. Whoever does not wait any longer cancels it.
        """
        return asyncio.run_coroutine_threadsafe(self._complete(request, key, patience, deadline), self._loop)

    async def _complete(self, request: Mapping[str, Any], key: str, patience: Patience, deadline: float) -> ModelReply:
        chance = Stream("canvas server", self.url, os.getpid(), next(self._numbers))
        end = self._loop.time() + deadline
        last, tries = _Problem("no request could be sent, others are under way", "timeout"), 0
        failed: float | None = None  # when the tries of this request were over
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
                    if not found.passing or tries > patience.retries or now + pause >= end:
                        if not self._is_outage(found, failed, began):
                            break
                        failed = failed or now
                        limit.reschedule(None)  # until it is answered, or patience is over
                    await asyncio.sleep(pause)
                    if failed is not None:
                        await self._probe(failed, request, key, patience.timeout)
        except TimeoutError:
            last = last if last.status == "error" else last._replace(text=f"{last.text}; the deadline is over")
            raise self._failed(last._replace(status="timeout"), tries, deadline) from None
        raise self._failed(last, tries, deadline)

    async def _probe(self, failed: float, request: Mapping[str, Any], key: str, timeout: float) -> None:
        """Ask for next to nothing, unless the server has answered since: it tells an outage from a bad request."""
        async with self._probing:
            if self._answered is not None and self._answered.sent >= failed:
                return
            sent = self._loop.time()
            limits = {name: 1 for name in ("max_tokens", "max_completion_tokens") if name in request}
            messages = [{"role": "user", "content": PROBE}]
            found = await self._try({"model": request["model"], "messages": messages, **limits}, key, timeout)
            if isinstance(found, ModelReply) or not (found.passing or found.lasting):
                self._answered = RequestTiming(sent, self._loop.time())

    def _is_outage(self, problem: _Problem, failed: float | None, began: float) -> bool:
        """Return whether to wait for the server: it had answered, and the failure of a request is not the request's.

        It is the request's if one that was sent after its tries were over has been answered, and it failed again.

        Args:
            problem: what became of the last try of a request.
            failed: when its tries were over; None: just now.
            began: when the last one began.
        """
        answered = self._answered
        if answered is None or not problem.passing:
            return False
        if failed is not None and failed <= answered.sent and answered.came <= began:
            return False
        return self._loop.time() - answered.came < self.patience

    def _failed(self, problem: _Problem, tries: int, deadline: float) -> ServerFailed:
        times = "1 try" if tries == 1 else f"{tries} tries"
        text = f"the model gave no usable answer after {times} within {round(deadline, 1):g} s; last: {problem.text}"
        self._failed_in_a_row += tries > 0  # one that found no place was never sent
        if self._answered is None or not self.patience:
            down = self._failed_in_a_row >= IN_A_ROW
        else:
            down = problem.passing and self._loop.time() - self._answered.came >= self.patience
            text += "; it has answered nobody for the whole of --patience" if down else ""
        return ServerFailed(text, problem.status, tries, problem.lasting or down)

    async def _try(self, request: Mapping[str, Any], key: str, timeout: float) -> ModelReply | _Problem:
        package = openai_package()
        try:
            async with asyncio.timeout(timeout):
                return _read(await self._limit.send(partial(self._post, key), request))
        except TimeoutError:
            return _Problem(f"no answer in {timeout:g} s", "timeout")
        except _Unusable as error:
            return _Problem(str(error), "error")
        except package.APIStatusError as error:
            return _refused(error.status_code, error.response.headers.get("retry-after"))
        except package.APIConnectionError as error:
            cause = error.__cause__ or error
            nobody = any(kind.__name__ == "ConnectError" for kind in type(cause).__mro__)
            return _Problem(f"the connection failed ({type(cause).__name__})", "error", lasting=nobody)
        except package.OpenAIError as error:
            return _Problem(f"the client failed ({type(error).__name__})", "error", passing=False)
        except Exception as error:  # of the HTTP library below the client, which differs between its versions
            return _Problem(f"the connection failed ({type(error).__name__})", "error")

    async def _post(self, key: str, request: Mapping[str, Any]) -> bytes:
        package, client = openai_package(), self._clients.get(key)
        if client is None:
            client = package.AsyncOpenAI(base_url=self.url, api_key=key, timeout=None, max_retries=0)
            self._clients[key] = client
        body = bytearray()
        # As a stream, because a stream can be left when it grows too long.
        kind = package.AsyncStream[object]
        async with await client.post(CHAT, cast_to=object, body=request, stream=True, stream_cls=kind) as answer:
            async for part in answer.response.aiter_bytes():
                body += part
                if len(body) > MOST_ANSWER:
                    raise _Unusable("the answer is too large")
        return bytes(body)


class _Problem(NamedTuple):
    text: str
    status: Literal["error", "timeout"]
    passing: bool = True  # another try may succeed
    least_pause: float = 0.0
    lasting: bool = False  # whoever asks gets this


class _Unusable(Exception):
    """An answer is no chat completion."""


def _refused(status: int, retry_after: str | None) -> _Problem:
    hint = _HINTS.get(status, "")
    text = f"status {status}{f', {hint}' if hint else ''}"
    return _Problem(text, "error", status in AGAIN, seconds_of(retry_after) or 0.0, status in _LASTING)


def _read(body: bytes) -> ModelReply:
    """Return what an answer says. Raises `_Unusable`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise _Unusable("the answer is not JSON") from None
    try:
        choices = answer["choices"]
        if isinstance(choices, list) and not choices:
            raise _Unusable("the answer has no choices")
        text, ended = choices[0]["message"].get("content"), choices[0].get("finish_reason")
        usage = answer.get("usage") or {}
        read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    except (KeyError, IndexError, TypeError, AttributeError):
        raise _Unusable("the answer is no chat completion") from None
    counts = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in (read, written))
    if not isinstance(text, str | None) or not isinstance(ended, str | None) or not counts:
        raise _Unusable("the answer is no chat completion")
    return ModelReply(text or "", ended or "", read, written)


_lock = Lock()
# What belongs to other processes is kept after a fork, unused: closing it here would disturb them.
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_servers: dict[tuple[int, str], Server] = {}


def server_at(url: str) -> Server:
    """Return the server at `url`, the same one for all of this process; a forked child has its own."""
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
