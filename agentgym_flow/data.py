"""Official data on disk: the registry maps a name to a path on this machine and the SHA-256 of the content.

Logs and task keys contain names and digests, never paths. The registry is one JSON file in the user's data folder, or
in the folder named by the environment variable `AGENTGYM_FLOW_HOME`.

A store is a folder that this package created from many gigabytes of official data. Hashing it at every start would take
too long, so its digest is computed at creation and written to its `store.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from agentgym_flow._util.files import file_digest, files_below, state_of, write_atomically
from agentgym_flow._util.sharing import once
from agentgym_flow.errors import BadData, BadSetting, UnknownData, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_ANNOUNCED = {"alfworld": ("ALFWORLD_DATA", "json_2.1.1")}
"""Data that can be found by the official package's environment variable: name -> the variable, a folder below it."""

FETCHED = "hub:"
"""The prefix of names of data that an environment downloads itself."""

_may_fetch: ContextVar[bool] = ContextVar("may_fetch", default=True)
_may_cache: ContextVar[bool] = ContextVar("may_cache", default=True)

_LONGEST_PATH = 4096  # bytes, on most systems

STATEMENT = "store.json"
"""The file that describes a store: its kind, format and digest, and the size of every file in it."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Official data: its name and its path on this machine."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class RegisteredData(DataSet):
    """Data with an entry in the registry.

    Attributes:
        sha256: its `content_digest` when it was added.
        state: a digest of the names, sizes and modification times of its files when it was added.
    """

    sha256: str
    state: str


def home() -> Path:
    """Return the folder of the registry: `AGENTGYM_FLOW_HOME`, or the user's data folder.

    Raises `BadData` if neither is known.
    """
    chosen = os.environ.get("AGENTGYM_FLOW_HOME")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "share") / "agentgym_flow"
    except RuntimeError:
        raise BadData("this user has no home folder; choose one: export AGENTGYM_FLOW_HOME=...") from None


def content_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, or of a folder's relative file names and contents in sorted order.

    For a store, returns the digest in its `store.json`. An unchanged file is read only once per process.

    Raises `BadData` if the path does not exist or cannot be read.
    """
    root = Path(path)
    try:
        if root.is_file():
            return file_digest(root)
        if not root.is_dir():
            raise BadData(f"there is no file or folder at {root}")
        statement = read_statement(root)
        if statement is not None:
            return str(statement["digest"])
        return digest_of_files({file.relative_to(root).as_posix(): file_digest(file) for file in files_below(root)})
    except OSError as error:
        raise BadData(f"cannot read {root}: {error.strerror}") from error


def digest_of_files(digests: Mapping[str, str]) -> str:
    """Return one SHA-256 for files, given as name -> digest; their order does not matter."""
    total = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        total.update(name.encode("utf-8", "surrogateescape") + b"\0" + digest.encode() + b"\n")
    return total.hexdigest()


def digests_line(digests: Mapping[str, str]) -> str:
    """Return a line for reports with the SHA-256 that logs and tracks hold, given as split -> SHA-256."""
    if len(set(digests.values())) == 1:
        return f"SHA-256 in logs and tracks: {next(iter(digests.values()))[:16]}..."
    return "SHA-256 in logs and tracks: " + ", ".join(f"{split} {found[:16]}..." for split, found in digests.items())


def write_statement(folder: Path, kind: str, digest: str, facts: Mapping[str, Any]) -> None:
    """Make a folder a store: write its kind, the SHA-256 of its content, the sizes of its files, and other facts."""
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files_below(folder)}
    sizes.pop(STATEMENT, None)
    page = {"agentgym_flow": kind, **facts, "digest": digest, "files": dict(sorted(sizes.items()))}
    with write_atomically(folder / STATEMENT) as partial:
        partial.write_text(json.dumps(page, indent=1) + "\n", "utf-8")


def read_statement(folder: Path) -> dict[str, Any] | None:
    """Return the content of a store's `store.json`; None for a folder that is not a store.

    The sizes of the files are compared, but not their contents. Raises `BadData` if the statement is damaged, or a file
    is missing or has another size.
    """
    file = folder / STATEMENT
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise BadData(f"cannot read {file}: {error}") from error
    try:
        page = json.loads(text)
        if "agentgym_flow" not in page:  # an unrelated file with this name
            return None
        sound = re.fullmatch("[0-9a-f]{64}", page["digest"]) and isinstance(page["agentgym_flow"], str)
        sizes = dict(page["files"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadData(f"{file} is damaged ({error}); make the store again") from None
    if not sound:
        raise BadData(f"{file} is damaged; make the store again")
    for name, size in sizes.items():
        if not (folder / name).is_file():
            raise BadData(f"{folder / name} is missing; make the store again")
        if (folder / name).stat().st_size != size:
            raise BadData(f"{folder / name} is not the file that {file} states; make the store again")
    return dict(page)


class StoreKind(NamedTuple):
    """A kind of store, and how to check and describe its folders.

    Attributes:
        kind: the kind in the statement.
        format: the supported format version.
        facts: other required entries of the statement, name -> type.
        name: the name of such a folder in messages.
        command: the command that creates one.
        error: the error raised for a folder that is not a valid store of this kind.
    """

    kind: str
    format: int
    facts: Mapping[str, type]
    name: str
    command: str
    error: type[BadData] = BadData

    @property
    def remedy(self) -> str:
        """The advice for a damaged store."""
        return f"make it again with: {self.command}"

    def statement(self, folder: Path) -> dict[str, Any]:
        """Return the statement of a folder. Raises `error` unless it is an undamaged store of this kind and format."""
        try:
            statement = read_statement(folder)
        except BadData as error:
            raise self.error(str(error)) from error
        if statement is None or statement["agentgym_flow"] != self.kind:
            raise self.error(f"there is no {self.name} at {folder}; make one with: {self.command}")
        if statement.get("format") != self.format:
            found = f"has format {statement.get('format')!r}, this version reads {self.format}"
            raise self.error(f"the {self.name} at {folder} {found}; {self.remedy}")
        if not all(isinstance(statement.get(name), fact) for name, fact in self.facts.items()):
            raise self.error(f"{folder / STATEMENT} is damaged; {self.remedy}")
        return statement


class OpenStore(Protocol):
    """A store that is open and can be pickled; `reopened` restores it."""

    KIND: ClassVar[StoreKind]
    digest: str

    def __init__(self, folder: str) -> None: ...


@lru_cache(maxsize=16)
def reopened(store: type[OpenStore], folder: str, digest: str) -> OpenStore:
    """Open the store of a pickle. Within a process, all pickles of a store give the same object.

    Raises the error of the store's kind if the folder is no longer a store or has another digest.
    """
    found = store(folder)
    if found.digest != digest:
        raise store.KIND.error(
            f"the {store.KIND.name} at {folder} is not the one that was pickled; it was replaced since"
        )
    return found


def registered() -> list[RegisteredData]:
    """Return the registered data sets, sorted by name. Raises `BadData` if the registry file cannot be read."""
    file = home() / "data.json"
    if not file.exists():
        return []
    try:
        rows = json.loads(file.read_text("utf-8"))
        return [
            RegisteredData(name, Path(row["path"]), row["sha256"], row.get("state", ""))
            for name, row in sorted(rows.items())
        ]
    except OSError as error:
        raise BadData(f"cannot read the data registry {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadData(f"the data registry {file} is damaged ({error}); delete it and add the data again") from None


def add(name: str, path: str | os.PathLike[str]) -> RegisteredData:
    """Register `path` under `name`, replacing an existing entry, and return the data set with its digest.

    Raises `BadData` if the name has other characters than letters, digits, `.`, `_` and `-`, or `path` is not readable.
    """
    if not _NAME.fullmatch(name):
        raise BadData(f"{name!r} cannot name a data set: use letters, digits, '.', '_' and '-', at most 64")
    place = located(name, path).path
    found = RegisteredData(name, place, content_digest(place), _state(place))
    rows = {d.name: {"path": str(d.path), "sha256": d.sha256, "state": d.state} for d in [*registered(), found]}
    file = (home() / "data.json").resolve()  # keep a symbolic link, for example into dotfiles
    with write_atomically(file) as partial:
        partial.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    return found


def place(name: str) -> Path | None:
    """Return the path of the data with this name, from the registry or the official package's environment variable.

    Returns None if neither has it. Raises `BadData` if the registry cannot be read.
    """
    for entry in registered():
        if entry.name == name:
            return entry.path
    variable, part = _ANNOUNCED.get(name, ("", ""))
    root = os.environ.get(variable, "")
    if not root or not Path(root).is_dir():
        return None
    path = Path(root) / part
    return (path if path.is_dir() else Path(root)).resolve()


def resolve(data: str | os.PathLike[str] | DataSet) -> DataSet:
    """Return the data set for a registered name or a path. A `DataSet` is returned unchanged.

    The name of an unregistered path is its last part, for files without the suffix (`.jsonl`, `.jsonl.gz`). Registered
    data is read again only if the sizes or times of its files have changed since it was added.

    Raises:
        UnknownData: `data` is neither a registered name nor an existing path; an empty string is neither.
        BadData: the content of a registered data set has changed since it was added.
        BadSetting: `data` has the wrong type, is too long for a path, or contains a null character.
    """
    if isinstance(data, DataSet):
        return data
    check_path("data", data)
    known = {d.name: d for d in registered()}
    if str(data) in known:
        entry = known[str(data)]
        _check_unchanged(entry)
        return entry
    announced = place(str(data))
    if announced is not None:
        return DataSet(str(data), announced)
    # An empty string would be the current folder, which would be read completely.
    if str(data) and os.path.exists(data):
        found = located("", data)
        name = found.path.name
        return replace(found, name=name if found.path.is_dir() else Path(name.removesuffix(".gz")).stem)
    advised = data if _NAME.fullmatch(str(data)) else "NAME"
    variable = f", or set {_ANNOUNCED[data][0]}" if data in _ANNOUNCED else ""
    raise UnknownData.among(
        data, known, f"No such path exists. Register data with: agentgym-flow data add {advised} PATH{variable}"
    )


def located(name: str, path: str | os.PathLike[str]) -> DataSet:
    """Return the data at a path as a data set with this name. Raises `BadData` if the path does not exist."""
    # Links are not resolved: in the Hub's cache, only the links have meaningful names.
    place = Path(os.path.abspath(path))
    if not place.exists():
        raise BadData(f"there is no file or folder at {os.fspath(path)}")
    return DataSet(name, place)


@once(64)  # once per process: an environment hashes the files that it reads, so it notices later changes
def _check_unchanged(entry: RegisteredData) -> None:
    if _state(entry.path) != entry.state:
        check_content(entry)


def check_content(entry: RegisteredData) -> None:
    """Read a registered data set completely. Raises `BadData` if its content has changed since it was added."""
    if content_digest(entry.path) != entry.sha256:
        raise BadData(
            f"data set {entry.name!r} at {entry.path} has changed since it was added; "
            f"run: agentgym-flow data add {entry.name} {shlex.quote(str(entry.path))}"
        )


def _state(path: Path) -> str:
    """Return a digest of the names, sizes and times of all files of a data set, without reading them."""
    try:
        files = [path] if path.is_file() else list(files_below(path))
        return digest_of_files({str(file.relative_to(path)): str(state_of(file)[:2]) for file in files})
    except OSError as error:
        raise BadData(f"cannot read {path}: {error.strerror}") from error


def check_path(name: str, path: object) -> str:
    """Return `path` as text. Raises `BadSetting` with the name of the argument if it cannot be a path."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    try:
        if isinstance(text, str) and "\0" not in text and len(os.fsencode(text)) < _LONGEST_PATH:
            return text
    except UnicodeError:  # half a surrogate pair
        pass
    raise BadSetting(f"{name} must be a path or the name of registered data, got {shown(path)}")


@contextmanager
def no_fetching() -> Iterator[None]:
    """Forbid environments to download data within the block, for settings from an untrusted source."""
    before = _may_fetch.set(False)
    try:
        yield
    finally:
        _may_fetch.reset(before)


@contextmanager
def no_cache() -> Iterator[None]:
    """Disable caches on disk within the block, so that results are computed from the data itself."""
    before = _may_cache.set(False)
    try:
        yield
    finally:
        _may_cache.reset(before)


def may_cache() -> bool:
    """Return whether caches on disk may be used."""
    return _may_cache.get()


def check_fetching(name: str) -> None:
    """Raise `BadData` if the data set `name` must not be downloaded here."""
    if not _may_fetch.get():
        raise BadData(
            f"{name!r} would be downloaded, which is not allowed here: name a copy (--data), or allow it (--fetch)"
        )
