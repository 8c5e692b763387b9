"""Calls between machines: those of `Flow` at a manager, in MessagePack, read as the types that the protocol declares.

Arguments are one map, an answer is one value, records are arrays. Weights, which are bytes, are the whole body instead;
the other arguments are then JSON in the address. Refusals and errors are JSON too, which other versions of the package
can read. No other format is parsed, and errors are re-raised only if their class is in a fixed table, so messages
cannot name code.

Each call that waits inside the manager needs a thread, so 1,000 idle workers would need 1,000. `Switchboard` therefore
makes calls without waiting at first. If there is no result, at most `WAITING` calls of a kind wait inside the manager,
for a short while each. The others queue, without a thread, until it is their turn or their time is up. When results
arrive, the calls inside return at once and the queue moves on. Calls that are answered in less time than a thread needs
to take over are made in the event loop itself, unless another call holds the manager's lock, because that one may write
to the disk or answer with many episodes, or it is time to tidy the journal, which waits for the disk.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, get_type_hints

import msgspec

from agentgym_flow import errors
from agentgym_flow._util.values import typed
from agentgym_flow.dataflow.records import Exchanged, Flow

VERSION = "/v4/"
"""What the path of every call begins with: another one for each change of the messages."""

SMALL_BODY = 1 << 20
"""The most bytes of a request, for most calls."""

LARGE_BODY = 64 << 20
"""The most bytes of a request with episodes, slots or a setup."""

WEIGHTS_BODY = 16 << 30
"""The most bytes of a message with weights, by default."""

CHECKSUM = "Content-CRC32"
"""The header with the checksum of a body. It shows damage on the way; against forgery, only encryption would help."""

ERRORS: Mapping[str, type[errors.AgentGymFlowError]] = {
    one.__name__: one
    for one in (
        errors.BadData,
        errors.BadResume,
        errors.BadSetting,
        errors.DiskFull,
        errors.FlowDown,
        errors.Forged,
        errors.NoWorkers,
        errors.PutAside,
        errors.RunsFinished,
        errors.Superseded,
        errors.UnknownName,
        errors.UnknownOption,
    )
}
"""The errors that the manager sends to its clients."""


class Malformed(Exception):
    """A message does not fit the call; the text says why."""


@dataclass(frozen=True)
class RemoteCall:
    """One call of `Flow`.

    Attributes:
        name: of the method.
        arguments: their names and types, without the raw one.
        raw: the parameter that is sent as the body itself, if there is one.
        result: the type of the answer.
        limit: the most bytes of a request; None: as many as weights may have.
        read_arguments: reads `arguments`.
        read_result: reads `result`.
    """

    name: str
    arguments: type[msgspec.Struct]
    raw: str | None
    result: Any
    limit: int | None
    read_arguments: msgspec.msgpack.Decoder[Any] = field(init=False)
    read_result: msgspec.msgpack.Decoder[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "read_arguments", msgspec.msgpack.Decoder(self.arguments))
        object.__setattr__(self, "read_result", msgspec.msgpack.Decoder(self.result))


def _call(name: str, method: Callable[..., Any]) -> RemoteCall:
    hints = get_type_hints(method, include_extras=True)
    result = hints.pop("return")
    raw = next((one for one, hint in hints.items() if hint is bytes), None)
    parameters = inspect.signature(method).parameters
    fields = [
        (one, hint) if parameters[one].default is inspect.Parameter.empty else (one, hint, parameters[one].default)
        for one, hint in hints.items()
        if one != raw
    ]
    limit = LARGE_BODY if name in ("commit", "exchange", "admit", "ack", "open") else SMALL_BODY
    arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True)
    return RemoteCall(name, arguments, raw, result, None if raw else limit)


CALLS: Mapping[str, RemoteCall] = {
    name: _call(name, method) for name, method in vars(Flow).items() if not name.startswith("_") and callable(method)
}
"""All calls of the protocol, by name."""

WORKER_CALLS = frozenset(
    {"describe", "lease", "renew", "commit", "exchange", "fail", "give_back", "fetch", "loaded", "newest", "status"}
)
"""The calls that the token of workers allows."""


def checksum_of(body: bytes | memoryview) -> str:
    """Return the value of the header `CHECKSUM` for a body; it takes half of the time of a digest."""
    return f"{zlib.crc32(body):08x}"


def dumped(value: Any) -> bytes:
    """Return `value` in MessagePack. Raises `BadSetting` if it is not plain data."""
    try:
        return msgspec.msgpack.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise errors.BadSetting(f"what is sent to a manager must be plain data ({error})") from None


def loaded(body: bytes | memoryview, decoder: msgspec.msgpack.Decoder[Any] | None = None, place: str = "") -> Any:
    """Return the value of a message, as the type of `decoder`; `place` names it in errors. Raises `Malformed`."""
    try:
        return msgspec.msgpack.decode(body) if decoder is None else decoder.decode(body)
    except msgspec.ValidationError as error:
        if decoder is not None:
            typed(loaded(body), decoder.type, Malformed, place)  # a better explanation
        raise Malformed(f"{place}: {error}") from None
    except RecursionError:
        raise Malformed("the message is nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"not MessagePack: {error}") from None


def arguments_of(call: RemoteCall, body: bytes | memoryview, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a call from the body and the query of its request. Raises `Malformed`."""
    if call.raw is None:
        return msgspec.structs.asdict(loaded(body, call.read_arguments, call.name))
    try:
        given = {one: msgspec.json.decode(text) for one, text in texts.items()}
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the arguments in the address are not JSON: {error}") from None
    return {**msgspec.structs.asdict(typed(given, call.arguments, Malformed, call.name)), call.raw: body}


def refusal(error: str, message: str) -> bytes:
    """Return the answer to a request that is refused."""
    return json.dumps({"error": error, "message": message}).encode("ascii")


def refusal_of(error: errors.AgentGymFlowError) -> bytes:
    """Return the answer for an error, with the nearest base class in the table."""
    name = next((one.__name__ for one in type(error).__mro__ if one.__name__ in ERRORS), "BadSetting")
    return refusal(name, str(error))


def refusal_in(body: bytes) -> dict[str, Any]:
    """Return what `refusal` has written. Raises `Malformed`."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Malformed("the answer is not one of a manager")
    return given


def raise_error(given: Mapping[str, Any]) -> NoReturn:
    """Raise the error that a manager has sent. Raises `Malformed` if it is not in the table."""
    kind, message = ERRORS.get(str(given.get("error"))), given.get("message")
    if kind is None or not isinstance(message, str):
        raise Malformed("the error is not one of a manager")
    raise kind(message)


# ---------------------------------------------------------------- calls that wait
AT_ONCE = 16
"""The most calls at a time that do not wait."""

WAITING = 8
"""The most calls of one kind at a time that wait inside the manager."""

TURN = 1.0
"""Seconds after which a waiting call makes room for the next one in the queue."""

LONGEST_WAIT = 60.0
"""The most seconds that a call may wait; clients that wait longer repeat it."""

KINDS = ("lease", "arrivals")
"""The calls that wait."""

QUICK = frozenset({"lease", "renew", "commit", "exchange", "fail", "give_back", "beat", "newest"})
"""The calls that a manager in this process answers at once, unless they wait: no weights, and no sync of the disk."""


class Switchboard:
    """Makes calls on a flow for the coroutines of one event loop.

    Args:
        flow: the manager; thread-safe. If it has a `lock`, as `Manager`, quick calls are made here while that can be
            acquired.
        is_ending: whether the server is stopping; waiting calls then return at once, perhaps without a result.
    """

    def __init__(self, flow: Flow, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._flow, self._is_ending = flow, is_ending
        self._lock = getattr(flow, "lock", None)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="flow")
        self._waiters = ThreadPoolExecutor(WAITING * len(KINDS), thread_name_prefix="flow-waiting")
        self._lines = {kind: asyncio.Semaphore(WAITING) for kind in KINDS}

    async def call(self, name: str, arguments: dict[str, Any], gone: Callable[[], Awaitable[object]]) -> Any:
        """Return the answer of a call.

        Args:
            name: of the method.
            arguments: its arguments.
            gone: returns when the client has disconnected; leases that it has waited for are then given back.

        Raises whatever the manager raises.
        """
        answer = await self._now(name, {**arguments, "wait": 0.0} if "wait" in arguments else arguments)
        if not arguments.get("wait"):
            return answer
        if name == "exchange":  # its episodes are committed now
            waits = {one: arguments[one] for one in ("worker", "count", "wait")}
            return answer if answer.leases else Exchanged(answer.verdicts, await self._wait("lease", waits, gone))
        return answer or await self._wait(name, arguments, gone)

    async def _wait(self, name: str, arguments: dict[str, Any], gone: Callable[[], Awaitable[object]]) -> Any:
        """Return the answer of a call once there is something to answer, or it has waited for long enough."""
        answer: Any = []
        loop = asyncio.get_running_loop()
        end = loop.time() + min(arguments["wait"], LONGEST_WAIT)
        leaving = asyncio.ensure_future(gone())
        try:
            while not answer and (left := end - loop.time()) > 0 and not leaving.done() and not self._is_ending():
                answer = await self._in_line(name, arguments, left)
        finally:
            left_early = not leaving.cancel()
        if name == "lease" and answer and left_early:
            held = [lease.held for lease in answer]
            await self._now("give_back", {"worker": arguments["worker"], "held": held})
        return answer

    def close(self) -> None:
        """End the threads when their calls are done."""
        for pool in (self._threads, self._waiters):
            pool.shutdown(wait=False)

    async def _now(self, name: str, arguments: dict[str, Any]) -> Any:
        work = partial(getattr(self._flow, name), **arguments)
        if name in QUICK and self._lock is not None and self._lock.acquire():
            try:
                return work()
            finally:
                self._lock.release()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _in_line(self, name: str, arguments: dict[str, Any], left: float) -> Any:
        line = self._lines[name]
        loop = asyncio.get_running_loop()
        end = loop.time() + left
        try:
            await asyncio.wait_for(line.acquire(), left)
        except TimeoutError:  # the manager must see that the caller is alive
            return await self._now(name, {**arguments, "wait": 0.0})
        try:
            wait = 0.0 if self._is_ending() else min(TURN, max(0.0, end - loop.time()))
            work = partial(getattr(self._flow, name), **{**arguments, "wait": wait})
            return await loop.run_in_executor(self._waiters, work)
        finally:
            line.release()
