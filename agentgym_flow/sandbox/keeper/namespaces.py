"""Namespaces for a program: no network, no other processes, and a file system with only the interpreter."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from agentgym_flow.sandbox.keeper import kernel

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


def enter(as_root: bool) -> None:
    """Move this process, and those it will start, into namespaces of their own. Raises `OSError` if refused.

    Root creates them directly. An ordinary user creates a user namespace first, which gives it the right to.
    """
    _unshare(_OWN, as_root)


def leave_network(as_root: bool) -> None:
    """Move this process into a network namespace without devices. Raises `OSError` if refused."""
    _unshare(_NETWORK, as_root)


def _unshare(namespaces: int, as_root: bool) -> None:
    if as_root:
        kernel.unshare(namespaces)
        return
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(_USERS | namespaces)
    Path("/proc/self/setgroups").write_text("deny", "ascii")
    Path("/proc/self/uid_map").write_text(f"{_USER_INSIDE} {user} 1", "ascii")
    Path("/proc/self/gid_map").write_text(f"{_USER_INSIDE} {group} 1", "ascii")


def change_root(paths: list[str], disk_mb: int, owner: int | None) -> None:
    """Give this process a file system of `paths`, read-only, three devices, and the writable folder `WORK`.

    `paths` contain no links, except that the last part may be one. `WORK` is in memory, holds at most `disk_mb`, and
    belongs to `owner`, or to this user. There is no `/proc`. Raises `OSError` if mounting is refused.
    """
    kernel.mount("none", "/", None, _PRIVATE | _RECURSIVE)  # do not change the machine's own mounts
    root = _free_folder(paths)
    kernel.mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path in paths:
        _show(path, root, _ATTRIBUTES_NO_DEVICES)
    for path in DEVICES:
        _show(path, root, _ATTRIBUTES_READ_ONLY)
    os.mkdir(f"{root}{WORK}")
    owned = "" if owner is None else f",uid={owner},gid={owner}"
    options = f"size={disk_mb}m,nr_inodes={512 * disk_mb},mode=700{owned}"
    kernel.mount("tmpfs", f"{root}{WORK}", "tmpfs", _NOSUID | _NODEV | _NOEXEC, options)
    os.symlink(WORK, f"{root}/tmp")  # where programs write temporary files
    _freeze(root, _ATTRIBUTES_NO_DEVICES, recursively=False)
    os.chdir(root)
    here = b"."
    kernel.syscall(_PIVOT_ROOT[os.uname().machine], here, here)
    kernel.detach(".")
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
    kernel.mount(path, place, None, _BIND | _RECURSIVE)
    _freeze(place, attributes, recursively=True)


def _freeze(place: str, attributes: int, recursively: bool) -> None:
    wanted = _MountAttributes(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursively else 0
    kernel.syscall(kernel.MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), flags, wanted, ctypes.sizeof(wanted))
