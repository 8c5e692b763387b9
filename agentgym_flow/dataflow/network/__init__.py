"""Calls between machines: those of `Flow` at a manager, as JSON, checked against the types that the protocol declares.

Arguments are one JSON object, an answer is one JSON value, records are lists. Weights, which are bytes, are the whole
body instead. Only JSON is parsed, and errors are re-raised only if their class is in a fixed table, so messages cannot
name code.

Each call that waits inside the manager needs a thread, so 1,000 idle workers would need 1,000. `Switchboard` therefore
makes calls without waiting at first. If there is no result, at most `WAITING` calls of a kind wait inside the manager,
for a short while each. The others queue, without a thread, until it is their turn or their time is up. When results
arrive, the calls inside return at once and the queue moves on.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, get_type_hints

import msgspec

from agentgym_flow import errors
from agentgym_flow._util.values import typed
from agentgym_flow.dataflow.records import Flow

LARGEST_INTEGER = 2**63 - 1
"""The largest integer, as in SQLite."""

JSON_BODY = 1 << 20
"""The most bytes of a request, for most calls."""

LARGE_BODY = 64 << 20
"""The most bytes of a request with episodes, slots or a setup."""

WEIGHTS_BODY = 16 << 30
"""The most bytes of a message with weights, by default."""

DIGEST = "Content-Digest"
"""The header with the SHA-256 of a body, as RFC 9530 has it."""

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
    """

    name: str
    arguments: type[msgspec.Struct]
    raw: str | None
    result: Any
    limit: int | None


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
    limit = LARGE_BODY if name in ("commit", "admit", "ack", "open") else JSON_BODY
    arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True)
    return RemoteCall(name, arguments, raw, result, None if raw else limit)


CALLS: Mapping[str, RemoteCall] = {
    name: _call(name, method) for name, method in vars(Flow).items() if not name.startswith("_") and callable(method)
}
"""All calls of the protocol, by name."""

WORKER_CALLS = frozenset({"describe", "lease", "renew", "commit", "fail", "give_back", "fetch", "loaded", "status"})
"""The calls that the token of workers allows."""


def digest_of(body: bytes) -> str:
    """Return the value of the digest header for a body."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode('ascii')}:"


def dumped(value: Any) -> bytes:
    """Return `value` as JSON. Raises `BadSetting` if it is not plain data."""
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (ValueError, TypeError, RecursionError) as error:
        raise errors.BadSetting(f"what is sent to a manager must be plain data ({error})") from None


def loaded(body: bytes) -> Any:
    """Return the value of a JSON text. Raises `Malformed`, also for values that SQLite or UTF-8 cannot hold."""
    try:
        value = msgspec.json.decode(body)
        _check_integers(value)
    except RecursionError:
        raise Malformed("the JSON is nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    return value


def _check_integers(value: Any) -> None:
    if isinstance(value, int) and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        raise Malformed("an integer has more than 64 bits")
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _check_integers(one)


def arguments_of(call: RemoteCall, given: Any) -> dict[str, Any]:
    """Return the arguments of a call, except the raw one, from a JSON object. Raises `Malformed`."""
    return msgspec.structs.asdict(read(call.arguments, given, call.name))


def read(hint: Any, value: Any, place: str) -> Any:
    """Return a JSON value as the type `hint`; `place` names it in errors. Raises `Malformed`."""
    return typed(value, hint, Malformed, place)


def error_of(error: errors.AgentGymFlowError) -> dict[str, str]:
    """Return an error as plain data, with the nearest base class in the table."""
    name = next((one.__name__ for one in type(error).__mro__ if one.__name__ in ERRORS), "BadSetting")
    return {"error": name, "message": str(error)}


def raise_error(given: Any) -> NoReturn:
    """Raise the error that a manager has sent. Raises `Malformed` if it is not in the table."""
    if isinstance(given, dict) and isinstance(message := given.get("message"), str):
        kind = ERRORS.get(str(given.get("error")))
        if kind is not None:
            raise kind(message)
    raise Malformed("the error is not one of a manager")


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


class Switchboard:
    """Makes calls on a flow for the coroutines of one event loop.

    Args:
        flow: the manager; thread-safe.
        is_ending: whether the server is stopping; waiting calls then return at once, perhaps without a result.
    """

    def __init__(self, flow: Flow, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._flow, self._is_ending = flow, is_ending
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="flow")
        self._waiters = ThreadPoolExecutor(WAITING * len(KINDS), thread_name_prefix="flow-waiting")
        self._lines = {kind: asyncio.Semaphore(WAITING) for kind in KINDS}

    async def call(
        self, name: str, arguments: dict[str, Any], gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Any:
        """Return the answer of a call.

        Args:
            name: of the method.
            arguments: its arguments.
            gone: whether the client has disconnected; its leases are then given back at once.

        Raises whatever the manager raises.
        """
        wait = arguments.get("wait", 0.0)
        answer = await self._now(name, {**arguments, "wait": 0.0} if name in KINDS else arguments)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(wait, LONGEST_WAIT)
        while name in KINDS and not answer and (left := end - loop.time()) > 0:
            if self._is_ending() or (gone is not None and await gone()):
                break
            answer = await self._in_line(name, arguments, left)
        if name == "lease" and answer and gone is not None and await gone():
            held = [lease.held for lease in answer]
            await self._now("give_back", {"worker": arguments["worker"], "held": held})
        return answer

    def close(self) -> None:
        """End the threads when their calls are done."""
        for pool in (self._threads, self._waiters):
            pool.shutdown(wait=False)

    async def _now(self, name: str, arguments: dict[str, Any]) -> Any:
        work = partial(getattr(self._flow, name), **arguments)
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
