"""Walls around a process of our own: for trusted code that works on data from strangers.

Unlike a program in the sandbox, the process goes on with all that is in its memory. What it loses for good, and with it
all that it starts: the network, and writing anywhere but in one folder. Reading stays, because Python reads its modules
when they are needed.
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
"""The walls: no network of its own kind (a network namespace), no writing elsewhere and no TCP (Landlock), and no
sockets, tracing or mounting (a filter for system calls)."""


def confine(folder: str) -> tuple[str, ...]:
    """Confine this process to writing in `folder` and to no network; return which walls stand, of `CONFINEMENTS`.

    Where the kernel lacks a wall, the others are raised. The process ends with its parent. Programs can be run in
    `default()` afterwards: its keeper is started before, outside the walls. Nothing is done on other systems than
    Linux.
    """
    if sys.platform != "linux":
        return ()
    from agentgym_flow.sandbox.keeper import kernel, landlock, namespaces, seccomp

    with suppress(SandboxFailed):  # then no program is run, and whoever asks for one gets an error
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
