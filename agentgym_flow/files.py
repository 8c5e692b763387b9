"""Files that come whole or not at all: written under another name first, and renamed when all is there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def partial_of(path: Path) -> Path:
    """Return the name under which `path` is written until it is whole; the folder is made if it is not there.

    Raises `OSError` when `path` is something other than a file: renaming would put a file in place of a device or of a
    link (`/dev/stdout` is one).
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file in it", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is a device or a pipe; name a file", str(path))
    if path.is_symlink():
        raise OSError(errno.EINVAL, "is a link; name the file itself", str(path))
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is a file, not a folder", str(path)) from None
    return path.with_name(path.name + ".partial")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let every `OSError` within name `path`: a full disk names nothing, and nobody knows the partial file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the name to write a file under; it gets the name `path` when the block ends, and is removed on an error.

    The name is the process's own, so that two programs can write one file: the later one wins, whole. Raises `OSError`
    naming `path` when it cannot be written; see `partial_of` for what is refused.
    """
    partial = partial_of(path).with_suffix(f".{os.getpid()}.partial")
    try:
        with naming(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
