"""A filter for system calls: the kernel runs it before every call, and it cannot be removed.

It is a small program in classic BPF: load a word of the call, compare, jump or return. It refuses the calls listed here
and allows all others. `syscalls.json` has their numbers, with a column for each architecture; a number is null if the
architecture lacks the call. `tests/sandbox/test_sandbox_filter.py` compares them with the system's headers.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from agentgym_flow.sandbox.keeper import kernel

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


_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE, _ABSENT = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in the record of a call
_CLONE_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020000

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _answer_if(test: int, value: int, answer: int) -> list[Instruction]:
    """Return `answer` when the loaded word passes `test`; go on otherwise."""
    return [(test, 0, 1, value), (_RETURN, 0, 0, answer)]


def _answer_unless(test: int, values: Iterable[int], answer: int) -> list[Instruction]:
    """Return `answer` unless the loaded word passes `test` with one of `values`, and allow the call when it does."""
    allowed = [step for value in values for step in _answer_if(test, value, _ALLOW)]
    return [*allowed, (_RETURN, 0, 0, answer)]


def _answer_for(values: Iterable[int], answer: int) -> list[Instruction]:
    """Return `answer` if the loaded word is one of `values`, and allow the call otherwise."""
    return [*(step for value in values for step in _answer_if(_EQUAL, value, answer)), (_RETURN, 0, 0, _ALLOW)]


def _for_call(number: int, block: list[Instruction], argument: int = _FIRST_ARGUMENT) -> list[Instruction]:
    """Run `block`, which returns, with `argument` loaded if the call is `number`; skip it otherwise."""
    return [(_EQUAL, 0, len(block) + 1, number), (_LOAD, 0, 0, argument), *block]


def program(machine: str, own_root: bool, processes: bool, pid: int | None) -> bytes:
    """Return the filter.

    Args:
        machine: the architecture, as `os.uname().machine` names it.
        own_root: the program has a file system of its own, so it may also change modes and times.
        processes: it may start processes, not only threads.
        pid: the program's own process, the only one that it may send signals to; `None` does not restrict signals.
    """
    calls = numbers(machine)
    refused = [
        *REFUSED,
        *({} if own_root else REFUSED_WITHOUT_OWN_ROOT),
        *({} if processes else NEW_PROCESS),
    ]
    clone = _answer_if(_ANY_BIT, _NEW_NAMESPACES, _REFUSE)
    clone += [(_RETURN, 0, 0, _ALLOW)] if processes else _answer_unless(_ANY_BIT, [_CLONE_THREAD], _REFUSE)
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),  # calls in the convention of another architecture have other numbers
        (_LOAD, 0, 0, _NUMBER),
        *_answer_if(_EQUAL, calls["clone3"], _ABSENT),
        *_answer_if(_GREATER, NEWEST, _ABSENT),  # also x32 on x86, whose numbers start at 2^30
        *(step for name in refused if name in calls for step in _answer_if(_EQUAL, calls[name], _REFUSE)),
        *_for_call(calls["clone"], clone),
        *_for_call(calls["socketpair"], _answer_unless(_EQUAL, STREAMS, _REFUSE), _SECOND_ARGUMENT),
        *_for_call(calls["fcntl"], _answer_for(SIGNAL_OWNER, _REFUSE), _SECOND_ARGUMENT),
        *_for_call(calls["ioctl"], _answer_for(HARMFUL, _REFUSE), _SECOND_ARGUMENT),
    ]
    if pid is not None:
        for name in ON_ITSELF:
            steps += _for_call(calls[name], _answer_unless(_EQUAL, [pid], _REFUSE))
        steps += _for_call(calls["prlimit64"], _answer_unless(_EQUAL, [0, pid], _REFUSE))
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def install(own_root: bool, processes: bool, pid: int | None) -> None:
    """Install the filter of `program` in this process for good. Raises `OSError` if the kernel or machine has none.

    The caller must set `no_new_privs` first.
    """
    code = program(os.uname().machine, own_root, processes, pid)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_mode = 2
    header = _Program(len(code) // 8, ctypes.addressof(buffer))
    kernel.prctl(kernel.PR_SET_SECCOMP, filter_mode, header)
