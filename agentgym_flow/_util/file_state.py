"""Caches of file and folder contents in this process, valid until the files change.

A file or folder counts as unchanged while its size, times and inode are the same. Files modified less than two seconds
ago are read again each time, because a coarse clock can give two quick writes the same time.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from agentgym_flow.errors import BadData

P = ParamSpec("P")
T = TypeVar("T")

FileState: TypeAlias = tuple[int, int, int, int]
"""Size in bytes, time of the last modification and of the last status change in nanoseconds, inode."""

JUNK = "__MACOSX"
"""A folder that macOS adds to archives. It is ignored, as are files and folders whose names begin with a dot."""

_SETTLED = 2_000_000_000  # nanoseconds


def state_of(path: str | os.PathLike[str]) -> FileState:
    """Return the state of a file or folder. Raises `OSError` if it does not exist."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def per_state(
    compute: Callable[Concatenate[tuple[Path, ...], P], T],
) -> Callable[Concatenate[tuple[Path, ...], P], T]:
    """Cache `compute`, a function of the contents of files, until one of the files changes.

    Its first argument is the files; the others must be hashable.
    """
    kept: dict[Any, tuple[list[FileState], T]] = {}

    @wraps(compute)
    def computed(files: tuple[Path, ...], /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = files, args, tuple(sorted(kwargs.items()))
        states = list(map(state_of, files))
        known = kept.get(key)
        if known is not None and known[0] == states:
            return known[1]
        value = compute(files, *args, **kwargs)
        if _is_settled(states) and list(map(state_of, files)) == states:
            kept[key] = states, value
        return value

    return computed


def _is_settled(states: Iterable[FileState]) -> bool:
    return max((max(state[1:3]) for state in states), default=0) + _SETTLED < time.time_ns()


@per_state
def _digest(files: tuple[Path, ...]) -> str:
    with files[0].open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file. Raises `OSError` if it cannot be read."""
    return _digest((path,))


# ---------------------------------------------------------------- folders
_trees: dict[Path, tuple[dict[str, FileState], tuple[Path, ...]]] = {}


def files_below(root: Path) -> tuple[Path, ...]:
    """Return all files below a folder except hidden ones and `JUNK`. A folder reached by several links counts once.

    Raises `BadData` if a folder cannot be read, or a link leads to nothing: a file must not be missed.
    """
    known = _trees.get(root)
    with suppress(OSError):  # a folder is gone
        if known is not None and all(state_of(folder) == state for folder, state in known[0].items()):
            return known[1]
    folders, files = _walk(root)
    if _is_settled(folders.values()):
        _trees[root] = folders, files
    return files


def _walk(root: Path) -> tuple[dict[str, FileState], tuple[Path, ...]]:
    folders: dict[str, FileState] = {}
    files: list[Path] = []
    seen: set[str] = set()
    for folder, subfolders, names in os.walk(root, onerror=_refuse, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link, perhaps to a folder above
            subfolders.clear()
            continue
        seen.add(real)
        folders[folder] = state_of(folder)
        # Sorted, so that every machine follows the same one of two links to a folder.
        subfolders[:] = sorted(name for name in subfolders if not is_junk(name))
        files += (path for name in names if not is_junk(name) and is_real_file(path := Path(folder, name)))
    return folders, tuple(files)


def _refuse(error: OSError) -> None:
    raise BadData(f"{error.filename}: cannot be read ({error.strerror})") from error


def is_real_file(path: Path) -> bool:
    """Return whether a path in a listing is a file. Raises `BadData` for a link that leads to nothing."""
    if path.is_symlink() and not path.exists():
        raise BadData(f"{path} is a link to nothing; fetch the file that it names, or remove the link")
    return path.is_file()


def is_junk(name: str) -> bool:
    """Return whether a file or folder of this name is ignored: hidden, or added by macOS."""
    return name.startswith(".") or name == JUNK
