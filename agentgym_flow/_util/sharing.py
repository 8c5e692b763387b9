"""What all threads of a process share: locks that survive a fork, and things that are made once."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Lock:
    """A lock that the same thread may take again, and that is free in a forked child.

    A fork copies locks in their present state, but only the thread that forks: a lock that another one held would be
    held for ever. What the lock guards must not mind: the other thread may have been in the middle of it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Be free, whoever holds it."""
        self._lock = threading.RLock()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):  # there is no fork elsewhere
    os.register_at_fork(after_in_child=_renew_all)


def once(most: int = 1) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for functions that make something large: all who ask for the same get the same.

    Unlike with `lru_cache` alone, threads that ask at the same time wait for the one that makes it.

    Args:
        most: of so many different arguments, which must be hashable, the latest are kept.
    """

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        lock, kept = Lock(), lru_cache(maxsize=most)(make)

        @wraps(make)
        def made(*args: Any, **kwargs: Any) -> T:
            with lock:
                return kept(*args, **kwargs)

        return made

    return decorate
