"""A filter for system calls: the kernel runs it before every call, and it cannot be removed.

It is a small program in classic BPF: load a word of the call, compare, jump or return. It refuses the calls listed in
`syscalls` and allows all others.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from agentgym_flow.sandbox.keeper import kernel, syscalls

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
    calls = syscalls.numbers(machine)
    refused = [
        *syscalls.REFUSED,
        *({} if own_root else syscalls.REFUSED_WITHOUT_OWN_ROOT),
        *({} if processes else syscalls.NEW_PROCESS),
    ]
    clone = _answer_if(_ANY_BIT, _NEW_NAMESPACES, _REFUSE)
    clone += [(_RETURN, 0, 0, _ALLOW)] if processes else _answer_unless(_ANY_BIT, [_CLONE_THREAD], _REFUSE)
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, syscalls.ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),  # calls in the convention of another architecture have other numbers
        (_LOAD, 0, 0, _NUMBER),
        *_answer_if(_EQUAL, calls["clone3"], _ABSENT),
        *_answer_if(_GREATER, syscalls.NEWEST, _ABSENT),  # also x32 on x86, whose numbers start at 2^30
        *(step for name in refused if name in calls for step in _answer_if(_EQUAL, calls[name], _REFUSE)),
        *_for_call(calls["clone"], clone),
        *_for_call(calls["socketpair"], _answer_unless(_EQUAL, syscalls.STREAMS, _REFUSE), _SECOND_ARGUMENT),
        *_for_call(calls["fcntl"], _answer_for(syscalls.SIGNAL_OWNER, _REFUSE), _SECOND_ARGUMENT),
        *_for_call(calls["ioctl"], _answer_for(syscalls.HARMFUL, _REFUSE), _SECOND_ARGUMENT),
    ]
    if pid is not None:
        for name in syscalls.ON_ITSELF:
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
