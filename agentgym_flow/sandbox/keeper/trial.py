"""Test which walls this machine can build, each in a process that ends right after."""

from __future__ import annotations

import os

from agentgym_flow.sandbox.keeper import identity, kernel, landlock, namespaces, seccomp, wire


def answer(control: int) -> None:
    """Build the wall that a message over `control` names; send back why that failed, or `None` if it worked."""
    message = wire.receive(control)
    if message is None:
        return
    try:
        _build(message["wall"], message["paths"])
        why = None
    except OSError as error:
        why = str(error)
    wire.send(control, {"why": why})


def _build(wall: str, paths: list[str]) -> None:
    user = identity.stranger(os.getpid())
    if wall == "namespaces":
        namespaces.enter(as_root=user is not None)
        namespaces.change_root(paths, disk_mb=1, owner=user)
    elif wall == "stranger":
        if user is None:
            raise OSError("only root can become another user")
        identity.become(user)
    else:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if wall == "landlock":
            landlock.restrict([])
        else:
            seccomp.install(own_root=False, processes=False, pid=os.getpid())
