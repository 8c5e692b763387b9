"""Who a program runs as: where the keeper is root, a user that nothing on the machine belongs to."""

from __future__ import annotations

import os
from pathlib import Path

from agentgym_flow.sandbox.keeper import kernel

_FIRST, _COUNT = 2_100_000_000, 1 << 22  # beyond what people, directories and containers get; as many as there are pids
_NOBODY = 65534


def stranger(pid: int) -> int | None:
    """Return a user id for the process `pid` alone, or `None` where this process cannot become another user.

    An id of its own keeps programs that run at the same time apart, and their processes are counted separately. Where
    the machine has few ids (a container), it is the one of nobody.
    """
    if os.geteuid() != 0:
        return None
    for user in (_FIRST + pid % _COUNT, _NOBODY):
        if _known(user, "uid_map") and _known(user, "gid_map"):
            return user
    return None


def _known(number: int, table: str) -> bool:
    rows = [[int(word) for word in line.split()] for line in Path("/proc/self", table).read_text("ascii").splitlines()]
    return any(first <= number < first + count for first, _, count in rows)


def become(user: int | None) -> None:
    """Take the identity `user` for good, or keep the present one; without any rights of root. Raises `OSError`."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_rights()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)  # becoming another program does not bring them back
