"""The kernel's resource limits for a program."""

from __future__ import annotations

import math
import sys

from agentgym_flow.sandbox.keeper.order import Order

if sys.platform != "win32":  # there this module can be imported, but nothing is run
    import resource

_MB = 1 << 20
_OPEN_FILES = 64
_STACK_MB = 8
_OWN_PROCESSES = 2  # the outer process and the guard, which count as well unless the program is another user's
_THREADS = 64


def limit_processes_and_files(order: Order) -> None:
    """Set every limit but memory; each applies to each process of the program."""
    whole_seconds = math.ceil(order.cpu_seconds) + 1  # in case the guard, which is more exact, is slow
    writable = order.disk_mb * _MB
    limits = {
        resource.RLIMIT_CPU: whole_seconds,
        resource.RLIMIT_FSIZE: writable,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: _STACK_MB * _MB,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if order.walls.namespaces or order.walls.stranger:  # otherwise all processes of the user would count
        own = 0 if order.walls.stranger else _OWN_PROCESSES
        limits[resource.RLIMIT_NPROC] = own + (_THREADS if order.processes == 1 else order.processes)
    for kind, most in limits.items():
        _lower(kind, most)


def limit_memory(order: Order) -> None:
    """Set the limit of memory; after the others, because a low limit would stop the preparations."""
    _lower(resource.RLIMIT_AS, order.memory_mb * _MB)


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))
