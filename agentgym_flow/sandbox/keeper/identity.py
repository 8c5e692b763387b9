"""The user that a program runs as: if the keeper is root, one that owns nothing on the machine."""

from __future__ import annotations

import os
from pathlib import Path

from agentgym_flow.sandbox.keeper import kernel

_FIRST, _COUNT = 2_100_000_000, 1 << 22  # above the ids of people, directories and containers; one for each pid
_NOBODY = 65534


def stranger(pid: int) -> int | None:
    """Return a user id for the process `pid` alone, or `None` if this process cannot become another user.

    With ids of their own, concurrent programs cannot reach each other, and their processes are counted separately. On
    machines with few ids (a container), it is that of nobody.
    """
    if os.geteuid() != 0:
        return None
    for user in (_FIRST + pid % _COUNT, _NOBODY):
        if _is_mapped(user, "uid_map") and _is_mapped(user, "gid_map"):
            return user
    return None


def _is_mapped(number: int, table: str) -> bool:
    rows = [[int(word) for word in line.split()] for line in Path("/proc/self", table).read_text("ascii").splitlines()]
    return any(first <= number < first + count for first, _, count in rows)


def become(user: int | None) -> None:
    """Become `user` for good, or stay the present user if None, and drop all capabilities. Raises `OSError`."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_rights()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)  # `exec` does not bring them back
