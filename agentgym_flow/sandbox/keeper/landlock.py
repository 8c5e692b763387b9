"""Landlock: the kernel denies this process, and all it starts, access to files that are not listed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from agentgym_flow.sandbox.keeper import kernel

_VERSION = 1  # a flag that asks for the version instead of creating a ruleset
_PATH_BENEATH = 1

# Rights over files, and the version of Landlock that introduced them.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 15
_SINCE = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, IOCTL))
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | IOCTL
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals

READ = READ_FILE | READ_DIR
ANYTHING = (1 << 16) - 1


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Path(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Return the kernel's version of Landlock. Raises `OSError` if it has none."""
    return kernel.syscall(kernel.LANDLOCK_CREATE_RULESET, None, 0, _VERSION)


def restrict(allowed: Iterable[tuple[str, int]]) -> None:
    """Restrict this process to `allowed`: pairs of a path and rights over all below it. Missing paths are skipped.

    From version 4 on this also denies TCP; from 6 on, signals and abstract sockets to processes outside. The caller
    must set `no_new_privs` first. Raises `OSError` if the kernel refuses.
    """
    spoken = version()
    handled = sum(rights for since, rights in _SINCE if spoken >= since)
    rules = _Rules(handled, _TCP if spoken >= 4 else 0, _SCOPES if spoken >= 6 else 0)
    size = 24 if spoken >= 6 else 16 if spoken >= 4 else 8
    ruleset = kernel.syscall(kernel.LANDLOCK_CREATE_RULESET, rules, size, 0)
    try:
        for path, rights in allowed:
            _allow(ruleset, path, rights & handled)
        kernel.syscall(kernel.LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        of_folder = os.path.isdir(path)
        rule = _Path(rights if of_folder else rights & _OF_FILES, at)
        kernel.syscall(kernel.LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(at)
