"""Confine this process itself: for trusted code that works on untrusted data.

Unlike a program in the sandbox, the process keeps its memory. It and the processes it starts lose, for good, the
network and write access to all folders but one. They can still read files, because Python reads its modules when they
are needed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from agentgym_flow.errors import SandboxFailed
from agentgym_flow.sandbox.box import default

CONFINEMENTS = ("network", "landlock", "seccomp")
"""The walls: no network devices (a network namespace); no writing elsewhere and no TCP (Landlock); no sockets, tracing
or mounting (a filter for system calls)."""


def confine(folder: str) -> tuple[str, ...]:
    """Confine this process to writing in `folder` and to no network; return the walls in force, of `CONFINEMENTS`.

    If the kernel lacks a wall, the others are built. The process ends with its parent. Programs can be run in
    `default()` afterwards: its keeper is started first, outside the walls. Does nothing on systems other than Linux.
    """
    if sys.platform != "linux":
        return ()
    from agentgym_flow.sandbox.keeper import kernel, landlock, namespaces, seccomp

    with suppress(SandboxFailed):  # running a program will raise it
        default().link.start()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    devices = [(path, landlock.READ_FILE | landlock.WRITE_FILE) for path in namespaces.DEVICES]
    allowed = [("/", landlock.READ | landlock.EXECUTE), (folder, landlock.ANYTHING), *devices]

    def no_new_rights() -> None:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict(allowed)

    walls: dict[str, Callable[[], None]] = {
        "network": lambda: namespaces.leave_network(as_root=os.geteuid() == 0),
        "landlock": no_new_rights,
        "seccomp": lambda: seccomp.install(own_root=True, processes=True, pid=None),
    }
    standing = []
    for name, build in walls.items():
        try:
            build()
        except OSError:
            continue
        standing.append(name)
    return tuple(standing)
