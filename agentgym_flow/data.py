"""Official data on disk: a name stands for a path on this machine and the SHA-256 of what lies there.

A store is a folder that this package made from official data of many gigabytes. Its digest was taken of the content
when it was made and stands in its `store.json`, because reading it all again would take too long at every start.

Logs and task keys carry names and digests, never paths. The registry is one JSON file in the user's data folder, or
in the folder that the environment variable `AGENTGYM_FLOW_HOME` names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from agentgym_flow._util.file_state import file_digest, files_below, state_of
from agentgym_flow._util.files import whole
from agentgym_flow._util.sharing import once
from agentgym_flow.errors import BadData, BadSetting, UnknownData, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_ANNOUNCED = {"alfworld": ("ALFWORLD_DATA", "json_2.1.1")}
"""Data that the original's own environment variable can announce: name -> the variable, and the part that is meant."""

FETCHED = "hub:"
"""The beginning of the name of data that an environment gets by itself, and of which no path is known."""

_may_fetch: ContextVar[bool] = ContextVar("may_fetch", default=True)
_may_cache: ContextVar[bool] = ContextVar("may_cache", default=True)

_LONGEST_PATH = 4096  # bytes, on most systems

STATEMENT = "store.json"
"""The file in which a store says what it is: its kind, format and digest, and the size of every file in it."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Official data: its name, and where it is on this machine."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class RegisteredData(DataSet):
    """Data with an entry in the registry.

    Attributes:
        sha256: the `content_digest` when it was added.
        state: a digest of the names, sizes and times of its files then.
    """

    sha256: str
    state: str


def home() -> Path:
    """Return the folder of the registry: `AGENTGYM_FLOW_HOME`, or the user's data folder.

    Raises `BadData` when neither is known.
    """
    chosen = os.environ.get("AGENTGYM_FLOW_HOME")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "share") / "agentgym_flow"
    except RuntimeError:
        remedy = "export AGENTGYM_FLOW_HOME=..."
        raise BadData(f"this user has no home folder; name one for the registry: {remedy}") from None


def content_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, or of a folder's relative file names and their contents in sorted order.

    Of a store it is the digest that the store states. Each file is read once per process while it is unchanged.

    Raises `BadData` when nothing is there or it cannot be read.
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
    """Return the SHA-256 of files by their names and digests; the order does not matter."""
    total = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        total.update(name.encode("utf-8", "surrogateescape") + b"\0" + digest.encode() + b"\n")
    return total.hexdigest()


def write_statement(folder: Path, kind: str, digest: str, facts: Mapping[str, Any]) -> None:
    """Make a folder a store: state its kind, the SHA-256 of its content, the sizes of its files, and more facts."""
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files_below(folder)}
    sizes.pop(STATEMENT, None)
    page = {"agentgym_flow": kind, **facts, "digest": digest, "files": dict(sorted(sizes.items()))}
    with whole(folder / STATEMENT) as partial:
        partial.write_text(json.dumps(page, indent=1) + "\n", "utf-8")


def read_statement(folder: Path) -> dict[str, Any] | None:
    """Return what a store states; None for any other folder.

    The sizes of its files are compared, their contents are not. Raises `BadData` when the statement is damaged, or a
    file is missing or has another size.
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
        if "agentgym_flow" not in page:  # somebody else's file of that name
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
    """What a folder must state so that it can be opened as a store of one kind.

    Attributes:
        kind: what the statement calls the kind.
        format: the version that is read.
        facts: what the statement has besides, name -> type.
        name: what messages call such a folder.
        command: makes one.
        error: what is raised for a folder that is none.
    """

    kind: str
    format: int
    facts: Mapping[str, type]
    name: str
    command: str
    error: type[BadData] = BadData

    @property
    def remedy(self) -> str:
        """What to do about a damaged one."""
        return f"make it again with: {self.command}"

    def statement(self, folder: Path) -> dict[str, Any]:
        """Return what a folder states. Raises `error` unless it is an undamaged store of this kind and version."""
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
    """A store that is open; `reopened` makes it again from its pickle."""

    KIND: ClassVar[StoreKind]
    digest: str

    def __init__(self, folder: str) -> None: ...


@lru_cache(maxsize=16)
def reopened(store: type[OpenStore], folder: str, digest: str) -> OpenStore:
    """Open the store of a pickle, which must still be the same; all pickles of a process give one store.

    Raises the error of the store's kind when the folder is no such store any more, or another one.
    """
    found = store(folder)
    if found.digest != digest:
        raise store.KIND.error(
            f"the {store.KIND.name} at {folder} is not the one that was pickled; it was replaced since"
        )
    return found


def registered() -> list[RegisteredData]:
    """Return the registered data sets by name. Raises `BadData` when the registry file cannot be read."""
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
    """Register `path` under `name`, replacing an older entry; returns the data set with its digest.

    Raises `BadData` when the name is not a plain word or nothing readable is at `path`.
    """
    if not _NAME.fullmatch(name):
        raise BadData(f"{name!r} cannot name a data set: use letters, digits, '.', '_' and '-', at most 64")
    place = located(name, path).path
    found = RegisteredData(name, place, content_digest(place), _state(place))
    rows = {d.name: {"path": str(d.path), "sha256": d.sha256, "state": d.state} for d in [*registered(), found]}
    with whole((home() / "data.json").resolve()) as partial:  # the registry may be a link into somebody's settings
        partial.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    return found


def place(name: str) -> Path | None:
    """Return where the data of this name is: as registered, or as the original's own environment variable says.

    Raises `BadData` when the registry cannot be read.
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
    """Return the data set for a registered name or a path; a bare path is named by its last part.

    A file's name is without its ending, such as `.jsonl` or `.jsonl.gz`. Content is read only where the files of
    registered data have other sizes or times than when they were added. A `DataSet` comes back unchanged.

    Raises:
        UnknownData: neither a registered name nor an existing path; an empty word is neither.
        BadData: the content of a registered data set has changed since it was added.
        BadSetting: `data` can name no file: it is of another type, too long, or has a null character.
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
    # An empty word would be the current folder, and all of it would be read.
    if str(data) and os.path.exists(data):
        found = located("", data)
        name = found.path.name
        return replace(found, name=name if found.path.is_dir() else Path(name.removesuffix(".gz")).stem)
    variable = f", or set {_ANNOUNCED[data][0]}" if data in _ANNOUNCED else ""
    raise UnknownData.among(
        data, known, f"It is no path either. Register data with: agentgym-flow data add {data} PATH{variable}"
    )


def located(name: str, path: str | os.PathLike[str]) -> DataSet:
    """Return the data at a path under a name. Raises `BadData` when nothing is there."""
    # Links keep their names: the Hub's cache links names to files that have none.
    place = Path(os.path.abspath(path))
    if not place.exists():
        raise BadData(f"there is no file or folder at {os.fspath(path)}")
    return DataSet(name, place)


@once(64)  # once per process: what an environment reads, it hashes again when it has changed
def _check_unchanged(entry: RegisteredData) -> None:
    if _state(entry.path) != entry.state:
        check_content(entry)


def check_content(entry: RegisteredData) -> None:
    """Read all content of a registered data set. Raises `BadData` when it is not what it was when it was added."""
    if content_digest(entry.path) != entry.sha256:
        raise BadData(
            f"data set {entry.name!r} at {entry.path} has changed since it was added; "
            f"run: agentgym-flow data add {entry.name} {entry.path}"
        )


def _state(path: Path) -> str:
    """Return a digest of the names, sizes and times of all files of a data set; nothing is read."""
    try:
        files = [path] if path.is_file() else list(files_below(path))
        return digest_of_files({str(file.relative_to(path)): str(state_of(file)[:2]) for file in files})
    except OSError as error:
        raise BadData(f"cannot read {path}: {error.strerror}") from error


def check_path(name: str, path: object) -> str:
    """Return `path` as text. Raises `BadSetting` naming the argument when it can name no file or folder."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    try:
        if isinstance(text, str) and "\0" not in text and len(os.fsencode(text)) < _LONGEST_PATH:
            return text
    except UnicodeError:  # half a surrogate pair
        pass
    raise BadSetting(f"{name} must be a path or the name of registered data, got {shown(path)}")


@contextmanager
def no_fetching() -> Iterator[None]:
    """Within the block no data are downloaded by an environment itself: for settings that somebody else chose."""
    before = _may_fetch.set(False)
    try:
        yield
    finally:
        _may_fetch.reset(before)


@contextmanager
def no_cache() -> Iterator[None]:
    """Within the block nothing comes from a cache on disk, or goes there: what is found must be the data's own."""
    before = _may_cache.set(False)
    try:
        yield
    finally:
        _may_cache.reset(before)


def may_cache() -> bool:
    """Return whether a cache on disk may be used here."""
    return _may_cache.get()


def check_fetching(name: str) -> None:
    """Raise `BadData` where the data set `name` must not be downloaded."""
    if not _may_fetch.get():
        raise BadData(
            f"{name!r} would be downloaded, which is not allowed here: name a copy (--data), or allow it (--fetch)"
        )
