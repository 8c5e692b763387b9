"""Atomic output: files and folders are written under a temporary name and renamed once they are complete."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from agentgym_flow._util.signals import signals_go_to


def check_new(path: Path, *, replace: bool = False, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Check that a new file may have this name, before the work that produces it.

    Args:
        path: where the file will be.
        replace: allow an existing file, which will be replaced.
        inputs: files and folders that the work reads. `path` must not be one of them, by any name or link, nor lie in
            one.

    Raises `FileExistsError` if the file exists, `OSError` if it is one of the inputs, and whatever `partial_of` raises.
    """
    partial_of(path)
    for read in inputs:
        if _is_within(path, Path(read)):
            raise OSError(errno.EINVAL, f"is the input {read}, or in it; name another file", str(path))
    if path.exists() and not replace:
        raise FileExistsError(errno.EEXIST, "already exists; name another file, or replace it (--force)", str(path))


def _is_within(path: Path, other: Path) -> bool:
    try:
        if path.exists() and other.exists() and path.samefile(other):  # also by another name (hard links)
            return True
        return path.resolve().is_relative_to(other.resolve())
    except OSError:  # the name is invalid, so it is not an input
        return False


def partial_of(path: Path) -> Path:
    """Return the temporary name under which `path` is written, and create its folder if it is missing.

    The name contains the process id, so no other program writes to the same partial file.

    Raises `OSError` if `path` is not a regular file: renaming would replace a device or a link (`/dev/stdout` is one)
    by a file.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file in it", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is a device or a pipe; name a file", str(path))
    if path.is_symlink():
        raise OSError(errno.EINVAL, "is a link; name the file itself", str(path))
    try:
        with named_in_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is a file, not a folder", str(path)) from None
    return path.with_name(f"{path.name}.{os.getpid()}.partial")


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Name `path` in every `OSError` raised inside: users do not know the partial file, and a full disk has no name."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write a file to; it is renamed to `path` after the block, or removed on an error.

    If two programs write one file, the later one wins as a whole. Raises `OSError` naming `path` if it cannot be
    written, and whatever `partial_of` raises.
    """
    partial = partial_of(path)
    try:
        with named_in_errors(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def write_folder_atomically(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder to fill; it is renamed to `path` after the block, or removed on an error.

    Raises `FileExistsError` if `path` exists and is not an empty folder, and `OSError` naming `path` if it cannot be
    written. With `replace`, an existing folder stays until the block ends, and is then removed.
    """
    if not (replace and path.is_dir() and not path.is_symlink()):
        check_free(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with named_in_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            older = path.with_name(f"{path.name}.{os.getpid()}.older")
            if replace and path.is_dir():
                path.rename(older)
            _rename_folder(partial, path)
            shutil.rmtree(older, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # it exists only if it was not renamed


def partial_folder(path: Path) -> Path:
    """Return where `resumed_folder` fills the folder `path`."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def resumed_folder(path: Path) -> Iterator[Path]:
    """Yield the folder `<path>.partial` to fill, with everything that an earlier attempt left in it.

    It is renamed to `path` after the block, and kept for the next attempt on an error. Raises like
    `write_folder_atomically`. The caller must ensure that no other process fills the same folder.
    """
    check_free(path)
    partial = partial_folder(path)
    with named_in_errors(path):
        partial.mkdir(parents=True, exist_ok=True)
        yield partial
        _rename_folder(partial, path)


def check_free(path: Path) -> None:
    """Raise `FileExistsError` if `path` exists and is not an empty folder."""
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise FileExistsError(errno.EEXIST, "already exists; remove it or name another folder", str(path))


def _rename_folder(partial: Path, path: Path) -> None:
    if path.is_dir():
        path.rmdir()  # fails unless it is empty; some systems cannot rename over a folder
    partial.rename(path)


class LineWriter:
    """Writes lines of ASCII to a partial file and renames it at the end; gzip for names ending in `.gz`.

    A context manager. An error in the block removes the partial file. Ctrl-C keeps the lines written so far, if any,
    under the final name; a second Ctrl-C is ignored meanwhile. An `OSError` of the file itself (a full disk, a missing
    folder) propagates, and nothing is kept.

    Args:
        path: where the file will be.
        keep_finished: keep the lines after other errors too, if they took long to produce.
        replace: replace a file that exists at the end. Otherwise that file and the partial file, which the message
            names, both stay, and `FileExistsError` is raised.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_finished: bool = False, replace: bool = True) -> None:
        self.path = Path(path)
        self._keep_finished = keep_finished
        self._replace = replace
        self._written = 0
        self._failed = False
        self._partial: Path | None = None
        self._file: IO[bytes] | None = None
        self._raw: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._partial = partial_of(self.path)
        with named_in_errors(self.path):
            self._raw = self._partial.open("wb")
        self._file = self._raw
        if self.path.suffix == ".gz":
            try:
                # Without name and time in the gzip header, equal episodes give equal bytes.
                zipped = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, mtime=0)
            except OSError as error:  # opening may write the header
                self.__exit__(type(error), error, None)
                raise
            self._file = cast("IO[bytes]", zipped)
        return self

    def write_lines(self, lines: Iterable[str]) -> None:
        """Append lines that belong together: either all or none of them are kept."""
        assert self._file is not None, "LineWriter is a context manager: use it in a with statement"
        text = "".join(f"{line}\n" for line in lines).encode("ascii")
        try:
            with named_in_errors(self.path):
                self._file.write(text)
        except OSError:
            self._failed = True  # the file may end in the middle of a line
            raise
        self._written += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cut_short = self._written > 0 and (self._keep_finished or isinstance(error, KeyboardInterrupt))
        keep = not self._failed and (kind is None or cut_short)
        assert self._partial is not None  # __enter__ chose it
        taken = False
        with signals_go_to(signal.SIG_IGN):  # a second Ctrl-C must not lose what the first one keeps
            try:
                with named_in_errors(self.path):
                    self._close(sync=keep)
                    taken = keep and not self._rename()
            finally:
                if not taken:
                    self._partial.unlink(missing_ok=True)  # after a hard link, or if it could not be renamed
        if taken:
            problem = f"was written by another program meanwhile; the new contents are in {self._partial.name}"
            raise FileExistsError(errno.EEXIST, problem, str(self.path))

    def _rename(self) -> bool:
        """Rename the partial file; return whether that worked."""
        assert self._partial is not None  # __enter__ chose it
        if not self._replace:
            try:
                os.link(self._partial, self.path)  # checks and renames in one step, if the file system has links
            except FileExistsError:
                return False
            except OSError:
                if self.path.exists():
                    return False
            else:
                return True
        self._partial.replace(self.path)
        return True

    def _close(self, sync: bool) -> None:
        assert self._file is not None
        assert self._raw is not None
        try:
            if self._file is not self._raw:
                self._file.close()
            self._raw.flush()
            if sync:
                os.fsync(self._raw.fileno())
        finally:
            self._raw.close()
