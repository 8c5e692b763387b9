"""A manager in another process, as a `Flow`: retries, for HTTP and for Ray.

Every call can be repeated, so calls without an answer are retried with back-off until the deadline, and so are those
for which the manager's disk has no space. If the manager is restarted on its journal meanwhile, or space is freed,
callers only notice that the call took longer.
"""

from __future__ import annotations

import inspect
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import DiskFull, FlowDown

P = ParamSpec("P")
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts; they double each time and vary randomly, so that callers do not retry in step."""


class NoAnswer(Exception):
    """An attempt failed and is to be retried; the text says why."""


def _remote(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls `method` of the manager."""
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        del bound.arguments["self"]
        answer: T = self._call(method.__name__, bound.arguments)
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
        self._random = random.Random()  # independent of all other random draws

    def close(self) -> None:
        """Make calls that are between two attempts raise `FlowDown`."""
        self._closed.set()

    @abstractmethod
    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a call. Raises `NoAnswer` if it is to be retried."""

    def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                return self._attempt(name, arguments)
            except (NoAnswer, DiskFull) as error:
                left = began + self.deadline - time.monotonic()
                if left <= 0 or self._closed.wait(min(left, pause * (0.5 + self._random.random()))):
                    raise error if isinstance(error, DiskFull) else FlowDown(self._down(str(error))) from None
                pause = min(2 * pause, LONGEST_PAUSE)

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
    fail = _remote(Flow.fail)
    give_back = _remote(Flow.give_back)
    fetch = _remote(Flow.fetch)
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
