"""The keeper: the small process from which sandboxes are forked; and what callers ask it to run.

It starts without the rest of this package (see `agentgym_flow.sandbox.job`), so modules here import only the standard
library and this folder. The sandboxes of tests get only `wire.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

RUN, TRY = b"run", b"try"  # the kinds of requests: run a program, or try to build a wall


@dataclass(frozen=True)
class Walls:
    """Which of the kernel's means isolate a program."""

    namespaces: bool
    landlock: bool
    seccomp: bool
    stranger: bool  # it runs as a user of its own


@dataclass(frozen=True)
class Order:
    """One program to run."""

    walls: Walls
    interpreter: str
    arguments: list[str]
    readable: list[str]
    executable: list[str]
    files: dict[str, str]
    stdin: str
    cpu_seconds: float
    wall_seconds: float
    memory_mb: int
    disk_mb: int
    processes: int
