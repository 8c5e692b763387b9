"""The kernel's means of isolation, through the C library: Landlock and namespaces.

Landlock denies this process, and all it starts, access to files that are not listed. Namespaces give a program no
network, no other processes, and a file system with only the interpreter.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

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


# ---------------------------------------------------------------- Landlock
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


def restrict_files(allowed: Iterable[tuple[str, int]]) -> None:
    """Restrict this process to `allowed`: pairs of a path and rights over all below it. Missing paths are skipped.

    From version 4 on this also denies TCP; from 6 on, signals and abstract sockets to processes outside. The caller
    must set `no_new_privs` first. Raises `OSError` if the kernel refuses.
    """
    spoken = syscall(LANDLOCK_CREATE_RULESET, None, 0, _VERSION)
    handled = sum(rights for since, rights in _SINCE if spoken >= since)
    rules = _Rules(handled, _TCP if spoken >= 4 else 0, _SCOPES if spoken >= 6 else 0)
    size = 24 if spoken >= 6 else 16 if spoken >= 4 else 8
    ruleset = syscall(LANDLOCK_CREATE_RULESET, rules, size, 0)
    try:
        for path, rights in allowed:
            _allow(ruleset, path, rights & handled)
        syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
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
        syscall(LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(at)


# ---------------------------------------------------------------- namespaces
WORK = "/work"
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

_MOUNTS, _GROUPS, _NAMES, _USERS = 0x00020000, 0x08000000, 0x04000000, 0x10000000
_PROCESSES, _NETWORK = 0x20000000, 0x40000000
_OWN = _MOUNTS | _GROUPS | _NAMES | _PROCESSES | _NETWORK
_USER_INSIDE = 1000

_NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_ATTRIBUTES_READ_ONLY, _ATTRIBUTES_NO_DEVICES = 0b011, 0b111
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def enter_namespaces(as_root: bool) -> None:
    """Move this process, and those it will start, into namespaces of their own. Raises `OSError` if refused.

    Root creates them directly. An ordinary user creates a user namespace first, which gives it the right to.
    """
    _unshare(_OWN, as_root)


def leave_network(as_root: bool) -> None:
    """Move this process into a network namespace without devices. Raises `OSError` if refused."""
    _unshare(_NETWORK, as_root)


def _unshare(namespaces: int, as_root: bool) -> None:
    if as_root:
        unshare(namespaces)
        return
    user, group = os.geteuid(), os.getegid()
    unshare(_USERS | namespaces)
    Path("/proc/self/setgroups").write_text("deny", "ascii")
    Path("/proc/self/uid_map").write_text(f"{_USER_INSIDE} {user} 1", "ascii")
    Path("/proc/self/gid_map").write_text(f"{_USER_INSIDE} {group} 1", "ascii")


def change_root(paths: list[str], disk_mb: int, owner: int | None) -> None:
    """Give this process a file system of `paths`, read-only, three devices, and the writable folder `WORK`.

    `paths` contain no links, except that the last part may be one. `WORK` is in memory, holds at most `disk_mb`, and
    belongs to `owner`, or to this user. There is no `/proc`. Raises `OSError` if mounting is refused.
    """
    mount("none", "/", None, _PRIVATE | _RECURSIVE)  # do not change the machine's own mounts
    root = _free_folder(paths)
    mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path in paths:
        _show(path, root, _ATTRIBUTES_NO_DEVICES)
    for path in DEVICES:
        _show(path, root, _ATTRIBUTES_READ_ONLY)
    os.mkdir(f"{root}{WORK}")
    owned = "" if owner is None else f",uid={owner},gid={owner}"
    options = f"size={disk_mb}m,nr_inodes={512 * disk_mb},mode=700{owned}"
    mount("tmpfs", f"{root}{WORK}", "tmpfs", _NOSUID | _NODEV | _NOEXEC, options)
    os.symlink(WORK, f"{root}/tmp")  # where programs write temporary files
    _freeze(root, _ATTRIBUTES_NO_DEVICES, recursively=False)
    os.chdir(root)
    here = b"."
    syscall(_PIVOT_ROOT[os.uname().machine], here, here)
    detach(".")
    os.chdir("/")


def _free_folder(paths: list[str]) -> str:
    """Return a folder of this machine on which the new root can be mounted without hiding any of `paths`."""
    for folder in ("/mnt", "/srv", "/media", "/tmp", "/run", "/home"):
        if os.path.isdir(folder) and not any(path.startswith(f"{folder}/") for path in paths):
            return folder
    raise FileNotFoundError("no folder to mount the sandbox's root on")


def _show(path: str, root: str, attributes: int) -> None:
    """Make `path` visible below `root`: links as links, everything else as a read-only mount."""
    place = f"{root}{path}"
    if os.path.lexists(place) or not os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), place)
        return
    if os.path.isdir(path):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
    mount(path, place, None, _BIND | _RECURSIVE)
    _freeze(place, attributes, recursively=True)


def _freeze(place: str, attributes: int, recursively: bool) -> None:
    wanted = _MountAttributes(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursively else 0
    syscall(MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), flags, wanted, ctypes.sizeof(wanted))
