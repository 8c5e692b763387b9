"""System calls that are missing in Python's standard library, made through the C library."""

from __future__ import annotations

import ctypes
import os
import sys

# The functions of this process itself, which Windows does not offer; no program is run there.
_libc = ctypes.CDLL(None if sys.platform != "win32" else "msvcrt", use_errno=True)

Argument = int | bytes | None | ctypes.Structure

# System calls since Linux 5.1 have the same number on every architecture.
MOUNT_SETATTR = 442
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38


def syscall(number: int, *arguments: Argument) -> int:
    """Return the result of system call `number`. Raises `OSError` with the kernel's reason if it fails."""
    return _check(_libc.syscall(ctypes.c_long(number), *map(_as_argument, arguments)), f"system call {number}")


def prctl(option: int, *arguments: Argument) -> int:
    """Return the result of `prctl`. Raises `OSError` with the kernel's reason if it fails."""
    rest = (*arguments, 0, 0, 0, 0)[:4]  # unused arguments must be 0
    return _check(_libc.prctl(ctypes.c_int(option), *map(_as_argument, rest)), f"prctl {option}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces. Raises `OSError` if that is not allowed."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """Mount `source` on `target`. Raises `OSError` naming the target."""
    encoded = None if kind is None else os.fsencode(kind)
    done = _libc.mount(os.fsencode(source), os.fsencode(target), encoded, ctypes.c_ulong(flags), os.fsencode(options))
    _check(done, f"mount on {target}")


def detach(target: str) -> None:
    """Unmount `target` and everything below it. Raises `OSError`."""
    mnt_detach = 2
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(mnt_detach)), f"unmount {target}")


def drop_rights() -> None:
    """Drop every capability of this process. Raises `OSError`."""
    version_3, this_process, three_words_twice = 0x20080522, 0, ctypes.c_uint32 * 6
    header = (ctypes.c_uint32 * 2)(version_3, this_process)
    _check(_libc.capset(header, three_words_twice()), "give up capabilities")


def _as_argument(argument: Argument) -> object:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    return ctypes.byref(argument) if isinstance(argument, ctypes.Structure) else argument


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
