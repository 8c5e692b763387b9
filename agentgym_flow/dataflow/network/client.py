"""Clients of a manager in another process: retries for HTTP and for Ray, calls over HTTP, and the tokens they need.

Every call can be repeated, so calls without an answer are retried with back-off until the deadline, and so are those
for which the manager's disk has no space. If the manager is restarted on its journal meanwhile, or space is freed,
callers only notice that the call took longer.

There is one token for trainers and one for workers, which allows playing and committing episodes, but not training.
Each is in a file that only its owner can read, or in the environment; never in the arguments of a command, which all
users of a machine can see.
"""

from __future__ import annotations

import inspect
import itertools
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlencode

import msgspec

from agentgym_flow._util.endpoint import Endpoint, pause_after
from agentgym_flow._util.http import TryFailed, check_token, server_address
from agentgym_flow.dataflow import network
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import BadSetting, DiskFull, FlowDown

P = ParamSpec("P")
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts, see `pause_after`."""

ANSWER = 60.0
"""Seconds without a byte after which an attempt fails, in addition to those that the call waits."""

VARIABLE = "AGENTGYM_FLOW_TOKEN"
"""The environment variable with the token."""

WORKERS = ".worker"
"""The suffix of the file with the token of workers, beside that of trainers."""


class NoAnswer(Exception):
    """An attempt failed and is to be retried; the text says why."""


def _remote(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls `method` of the manager."""
    _, *names = inspect.signature(method).parameters
    defaults = {
        one: it.default for one, it in inspect.signature(method).parameters.items() if it.default is not it.empty
    }

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        answer: T = self._call(method.__name__, {one: arguments[one] for one in names})
        return answer

    return call


class RemoteFlow(ABC):
    """Implements `agentgym_flow.dataflow.records.Flow`; subclasses make single attempts at a call.

    Args:
        place: names the manager in errors.
        deadline: seconds for which a call is retried.

    Attributes:
        deadline: as given; a new value applies to calls under way as well.
    """

    def __init__(self, place: str, *, deadline: float = 600.0) -> None:
        self.place, self.deadline = place, deadline
        self._closed = threading.Event()

    def close(self) -> None:
        """Make calls that are between two attempts raise `FlowDown`."""
        self._closed.set()

    @abstractmethod
    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a call. Raises `NoAnswer` if it is to be retried."""

    def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        began = time.monotonic()
        for tried in itertools.count():
            try:
                return self._attempt(name, arguments)
            except (NoAnswer, DiskFull) as error:
                left = began + self.deadline - time.monotonic()
                if left <= 0 or self._closed.wait(min(left, pause_after(tried, FIRST_PAUSE, LONGEST_PAUSE))):
                    raise error if isinstance(error, DiskFull) else FlowDown(self._down(str(error))) from None
        raise AssertionError("endless")

    def _down(self, what: str) -> str:
        if self._closed.is_set():
            return f"the connection to {self.place} was closed"
        return (
            f"{self.place} gave no answer for {self.deadline:g} seconds ({what}): restart it with its journal, or "
            "check the connection from this machine"
        )

    describe = _remote(Flow.describe)
    lease = _remote(Flow.lease)
    renew = _remote(Flow.renew)
    commit = _remote(Flow.commit)
    exchange = _remote(Flow.exchange)
    fail = _remote(Flow.fail)
    give_back = _remote(Flow.give_back)
    fetch = _remote(Flow.fetch)
    loaded = _remote(Flow.loaded)
    newest = _remote(Flow.newest)
    open = _remote(Flow.open)
    publish = _remote(Flow.publish)
    admit = _remote(Flow.admit)
    arrivals = _remote(Flow.arrivals)
    reject = _remote(Flow.reject)
    ack = _remote(Flow.ack)
    keep = _remote(Flow.keep)
    finish = _remote(Flow.finish)
    beat = _remote(Flow.beat)
    status = _remote(Flow.status)


class HttpFlow(RemoteFlow):
    """Implements `agentgym_flow.dataflow.records.Flow` over HTTP. Thread-safe; connections are kept open.

    Args:
        url: the address of the manager or of a relay, such as `http://127.0.0.1:8300`.
        token: its token.
        deadline: seconds for which a call is retried.

    Raises:
        BadSetting: the address or the token is invalid.
    """

    def __init__(self, url: str, token: str, *, deadline: float = 600.0) -> None:
        address = server_address(url, "http://127.0.0.1:8300", "pass the token as a separate setting")
        if address.path:
            raise BadSetting(f"{url!r:.100} is not the address of a manager, such as http://127.0.0.1:8300")
        self.url = url.rstrip("/")
        super().__init__(f"the manager at {self.url}", deadline=deadline)
        headers = {"Authorization": f"Bearer {check_token(token)}"}
        self._endpoint = Endpoint(address, headers=headers)

    def close(self) -> None:
        """Close the connections; calls between two attempts raise `FlowDown`."""
        super().close()
        self._endpoint.close()

    # ---------------------------------------------------------------- inside
    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        call = network.CALLS[name]
        path = network.VERSION + name
        if "reason" in arguments:  # the text of any error may have half a character, which no message can
            arguments = {**arguments, "reason": arguments["reason"].encode("utf-8", "backslashreplace").decode()}
        if call.raw is None:
            body = network.dumped(arguments)
        else:
            body = arguments[call.raw]
            others = {one: value for one, value in arguments.items() if one != call.raw}
            path += "?" + urlencode({one: msgspec.json.encode(value) for one, value in others.items()})
        return self._answer(call, path, body, ANSWER + arguments.get("wait", 0.0))

    def _answer(self, call: network.RemoteCall, path: str, body: bytes, patience: float) -> Any:
        status, answer = self._post(call, path, body, patience)
        if status == 200 and call.result is bytes:
            return answer
        try:
            if status == 200:
                return network.loaded(answer, call.read_result, "the answer")
            refused = network.refusal_in(answer)
            if status == 422:
                network.raise_error(refused)
        except network.Malformed as error:
            raise NoAnswer(f"HTTP {status}, {error}") from None
        if status >= 500 or refused.get("error") == "Corrupted":
            raise NoAnswer(f"HTTP {status}")
        advice = "; take the token of this manager" if status == 401 else ""
        raise BadSetting(f"{self.url} refused {call.name} with HTTP {status}: {refused.get('message')!s:.300}{advice}")

    def _post(self, call: network.RemoteCall, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
        """Make one attempt; return status and body of the answer, after checking its checksum, except of weights."""
        headers = {} if call.raw else {network.CHECKSUM: network.checksum_of(body)}
        try:
            answer = self._endpoint.send(path, body, headers, idle=patience, large=call.result is bytes)
        except TryFailed as error:
            raise NoAnswer(str(error)) from None
        if answer.status == 200 and call.result is bytes:
            return answer.status, answer.body
        if answer.status == 404:  # perhaps of a manager of another version, whose headers differ
            return answer.status, answer.body
        if answer.headers.get(network.CHECKSUM.lower()) != network.checksum_of(answer.body):
            raise NoAnswer(f"HTTP {answer.status}, and the answer does not match its checksum")
        return answer.status, answer.body


# ---------------------------------------------------------------- tokens
def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def token_in(file: Path) -> str:
    """Return the token in a file; if it is missing, create it with a new token, readable only by its owner.

    Raises `BadSetting` if others may read the file, or it has no token.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(file)
    token = new_token()
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(token + "\n")
    return token


def tokens_in(file: Path) -> tuple[str, str]:
    """Return the token of trainers, which is in `file`, and that of workers, beside it; see `token_in`."""
    return token_in(file), token_in(workers_file(file))


def workers_file(file: Path) -> Path:
    """Return the file with the token of workers, if that of trainers is in `file`."""
    return file.with_name(file.name + WORKERS)


def read_token(file: Path | None = None) -> str:
    """Return the token in a file, or in the environment if `file` is None.

    Raises `BadSetting` if there is none, or others may read the file.
    """
    if file is None:
        if not (token := os.environ.get(VARIABLE, "")):
            raise BadSetting(f"the manager's token is missing: name its file with --token-file, or set {VARIABLE}")
        return check_token(token)
    with file.open(encoding="utf-8", errors="replace") as opened:
        if os.name == "posix" and os.fstat(opened.fileno()).st_mode & 0o077:
            raise BadSetting(f"other users can read or change {file}: run chmod 600 {file}")
        return check_token(opened.read(4096).strip())
