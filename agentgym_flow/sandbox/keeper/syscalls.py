"""Which system calls a program in the sandbox is refused, with their numbers on each architecture.

`syscalls.json` has those that are always refused, because a program that reads, computes and writes into its own folder
does not need them, and those refused to programs without a root of their own: they change files by name and Landlock
does not cover them. A number is `None` if the architecture lacks the call. `tests/sandbox/test_sandbox_filter.py`
compares the tables with the system's headers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

Table = dict[str, tuple[int | None, int | None]]

# Names as in `os.uname().machine`, in the order of the columns, with the kernel's number of each architecture.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWEST = 450  # later system calls fail as on an older kernel, which does not have them

_FILE = json.loads(Path(__file__).with_name("syscalls.json").read_text("ascii"))
REFUSED: Table = {name: (x86, arm) for group in _FILE["refused"].values() for name, (x86, arm) in group.items()}
REFUSED_WITHOUT_OWN_ROOT: Table = {name: (x86, arm) for name, (x86, arm) in _FILE["refused_without_own_root"].items()}
NEW_PROCESS: Table = {"fork": (57, None), "vfork": (58, None)}
CLONE = {"clone": (56, 220)}
CLONE3 = {"clone3": (435, 435)}  # its arguments are in memory, which a filter cannot read

# Calls whose first argument is a process: a program may name only itself.
ON_ITSELF: Table = {"kill": (62, 129), "tgkill": (234, 131), "rt_tgsigqueueinfo": (297, 240)}
LIMITS = {"prlimit64": (302, 261)}

# Calls with many uses; the second argument decides. Event loops need pairs of stream sockets. Datagram pairs are
# refused, because they can be connected elsewhere.
SOCKETPAIR, STREAMS = {"socketpair": (53, 199)}, tuple(1 | flags for flags in (0, 0x800, 0x80000, 0x80800))
FCNTL, SIGNAL_OWNER = {"fcntl": (72, 25)}, (8, 10, 15)  # make the kernel send signals for the program
# The same; type into a terminal; change flags of read-only files.
IOCTL, HARMFUL = {"ioctl": (16, 29)}, (0x8901, 0x8902, 0x5412, 0x541C, 0x40086602, 0x401C5820)


class Numbers(NamedTuple):
    """The tables above for one architecture."""

    architecture: int
    refused: list[int]
    refused_without_own_root: list[int]
    new_process: list[int]
    clone: int
    clone3: int
    on_itself: list[int]
    limits: int
    socketpair: int
    fcntl: int
    ioctl: int


def numbers(machine: str) -> Numbers:
    """Return the numbers for `machine`, as `os.uname().machine` names it. Raises `OSError` for one not in the table."""
    if machine not in ARCHITECTURES:
        raise OSError(f"the filter for system calls knows {', '.join(ARCHITECTURES)}, not {machine}")
    column = list(ARCHITECTURES).index(machine)

    def of(table: Table) -> list[int]:
        return [number for row in table.values() if (number := row[column]) is not None]

    return Numbers(
        ARCHITECTURES[machine],
        of(REFUSED),
        of(REFUSED_WITHOUT_OWN_ROOT),
        of(NEW_PROCESS),
        CLONE["clone"][column],
        CLONE3["clone3"][column],
        of(ON_ITSELF),
        LIMITS["prlimit64"][column],
        SOCKETPAIR["socketpair"][column],
        FCNTL["fcntl"][column],
        IOCTL["ioctl"][column],
    )
