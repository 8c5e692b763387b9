"""Which system calls a program in the sandbox is refused, with their numbers on each architecture.

`syscalls.json` has the tables, with a column for each architecture; a number is null if the architecture lacks the
call. `tests/sandbox/test_sandbox_filter.py` compares them with the system's headers.
"""

from __future__ import annotations

import json
from pathlib import Path

Table = dict[str, list[int | None]]

# Names as in `os.uname().machine`, in the order of the columns, with the kernel's number of each architecture.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWEST = 450  # later system calls fail as on an older kernel, which does not have them

_FILE = json.loads(Path(__file__).with_name("syscalls.json").read_text("ascii"))
# Always refused: a program that reads, computes and writes into its own folder does not need them.
REFUSED: Table = {name: row for group in _FILE["refused"].values() for name, row in group.items()}
# Changes to files by name that Landlock does not cover. In a root of its own, a program can reach nothing with them.
REFUSED_WITHOUT_OWN_ROOT: Table = _FILE["refused_without_own_root"]
NEW_PROCESS: Table = _FILE["new_process"]
# Calls whose first argument is a process: a program may name only itself.
ON_ITSELF: Table = _FILE["on_itself"]
# Calls that are refused for some arguments. Those of `clone3` are in memory, which a filter cannot read.
BY_ARGUMENT: Table = _FILE["by_argument"]

# Second arguments of calls with many uses. Event loops need `socketpair` for streams; pairs of datagram sockets are
# refused, because they can be connected elsewhere.
STREAMS = tuple(1 | flags for flags in (0, 0x800, 0x80000, 0x80800))
SIGNAL_OWNER = (8, 10, 15)  # of `fcntl`: make the kernel send signals for the program
# Of `ioctl`: the same; type into a terminal; change flags of read-only files.
HARMFUL = (0x8901, 0x8902, 0x5412, 0x541C, 0x40086602, 0x401C5820)


def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that `machine` has, as `os.uname().machine` names it. Raises `OSError`."""
    if machine not in ARCHITECTURES:
        raise OSError(f"the filter for system calls knows {', '.join(ARCHITECTURES)}, not {machine}")
    column = list(ARCHITECTURES).index(machine)
    every = REFUSED | REFUSED_WITHOUT_OWN_ROOT | NEW_PROCESS | ON_ITSELF | BY_ARGUMENT
    return {name: number for name, row in every.items() if (number := row[column]) is not None}
