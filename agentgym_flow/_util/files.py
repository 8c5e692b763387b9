"""Files that come whole or not at all: written under another name first, and renamed when all is there."""

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
    """Refuse a name that a new file cannot or must not have, before the work whose result it is for.

    Args:
        path: where the file will be.
        replace: a file that is there already may be replaced.
        inputs: files that are read for it; it must be none of them, under whatever name or link, nor lie in one.

    Raises `FileExistsError` if something is there, `OSError` if it is one of the inputs, and as `partial_of`.
    """
    partial_of(path)
    for read in inputs:
        if _is_within(path, Path(read)):
            raise OSError(errno.EINVAL, f"is the input {read}, or in it; name another file", str(path))
    if path.exists() and not replace:
        raise FileExistsError(errno.EEXIST, "is there already; name another file, or replace it (--force)", str(path))


def _is_within(path: Path, other: Path) -> bool:
    try:
        if path.exists() and other.exists() and path.samefile(other):  # also under another name (hard links)
            return True
        return path.resolve().is_relative_to(other.resolve())
    except OSError:  # a name that no file can have is not the input
        return False


def partial_of(path: Path) -> Path:
    """Return the name under which `path` is written until it is whole; the folder is made if it is not there.

    The name is the process's own, so that no program writes into the half of another one.

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
    return path.with_name(f"{path.name}.{os.getpid()}.partial")


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

    When two programs write one file, the later one wins, whole. Raises `OSError` naming `path` when it cannot be
    written; see `partial_of` for what is refused.
    """
    partial = partial_of(path)
    try:
        with naming(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give an empty folder to fill; it gets the name `path` when the block ends, and is removed on an error.

    Raises `FileExistsError` when something is at `path`, an empty folder aside, and `OSError` naming `path` when it
    cannot be written. With `replace`, a folder that is there stays until the block ends, and is then removed.
    """
    if not (replace and path.is_dir() and not path.is_symlink()):
        check_free(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            older = path.with_name(f"{path.name}.{os.getpid()}.older")
            if replace and path.is_dir():
                path.rename(older)
            _rename_folder(partial, path)
            shutil.rmtree(older, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # it is there only if it could not get its name


def partial_folder(path: Path) -> Path:
    """Return where `resumed_folder` fills the folder `path`."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def resumed_folder(path: Path) -> Iterator[Path]:
    """Give the folder `<path>.partial` to fill, with all that an earlier attempt left in it.

    It gets the name `path` when the block ends, and on an error it stays for the next attempt. Raises as `whole_folder`
    does; that no other process fills the same folder is for the caller to see to.
    """
    check_free(path)
    partial = partial_folder(path)
    with naming(path):
        partial.mkdir(parents=True, exist_ok=True)
        yield partial
        _rename_folder(partial, path)


def check_free(path: Path) -> None:
    """Raise `FileExistsError` when something is at `path`, an empty folder aside."""
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise FileExistsError(errno.EEXIST, "is there already; remove it or name another folder", str(path))


def _rename_folder(partial: Path, path: Path) -> None:
    if path.is_dir():
        path.rmdir()  # empty, or this fails; not every system renames over a folder
    partial.rename(path)


class LineWriter:
    """Writes lines of ASCII into a partial file and gives it its name when all is written; gzip for a `.gz`.

    A context manager. When it is left by an error, the partial file is removed; when it is left by Ctrl-C, the lines
    written so far, if there are any, are kept under the file's name, and a second one is ignored meanwhile. `OSError`
    of the file itself (a full disk, a missing folder) passes through, and nothing is kept.

    Args:
        path: where the file will be.
        keep_finished: also keep them when something else than the file fails: for lines that took long to come by.
        replace: a file that is there in the end is replaced. Otherwise it and the partial file, which the message
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
        with naming(self.path):
            self._raw = self._partial.open("wb")
        self._file = self._raw
        if self.path.suffix == ".gz":
            try:
                # No name and no time in the gzip header: equal episodes, equal bytes.
                zipped = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, mtime=0)
            except OSError as error:  # it may write its header at once
                self.__exit__(type(error), error, None)
                raise
            self._file = cast("IO[bytes]", zipped)
        return self

    def write_lines(self, lines: Iterable[str]) -> None:
        """Append `lines`, which belong together: all of them are kept or none."""
        assert self._file is not None, "a writer is a context manager: use it in a with statement"
        text = "".join(f"{line}\n" for line in lines).encode("ascii")
        try:
            with naming(self.path):
                self._file.write(text)
        except OSError:
            self._failed = True  # perhaps in the middle of a line
            raise
        self._written += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cut_short = self._written > 0 and (self._keep_finished or isinstance(error, KeyboardInterrupt))
        keep = not self._failed and (kind is None or cut_short)
        assert self._partial is not None  # __enter__ chose it
        taken = False
        with signals_go_to(signal.SIG_IGN):  # a second one must not take what the first one left
            try:
                with naming(self.path):
                    self._close(sync=keep)
                    taken = keep and not self._rename()
            finally:
                if not taken:
                    self._partial.unlink(missing_ok=True)  # the other name, or what could not get it
        if taken:
            told = f"was written by another program meanwhile; what was to be in it is in {self._partial.name}"
            raise FileExistsError(errno.EEXIST, told, str(self.path))

    def _rename(self) -> bool:
        """Give the partial file its name; return whether it has got it."""
        assert self._partial is not None  # __enter__ chose it
        if not self._replace:
            try:
                os.link(self._partial, self.path)  # in one step with the check, where the file system has links
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
