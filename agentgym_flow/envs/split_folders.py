"""Data whose splits are folders: ALFWorld's games, Boxoban's levels. Which split a file is of, or why that is unclear.

| given | is |
|---|---|
| a folder with folders named like splits | each split has its folder |
| any other folder, or a file | of the split that the nearest name says |
| what no name says anything of | of the split `test` |

The nearest name is the file's own, or else that of its folder or a folder above; of a link it is the link's own, or
else its target's. A name says a split by its words: `boxoban_train`, `unfiltered-valid.txt`. What could be read in two
ways is refused. So no file is ever in two splits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from agentgym_flow._util.file_state import files_below
from agentgym_flow.envs.published_splits import cut_at_digits, part_in, words_of
from agentgym_flow.errors import BadData

_UP = 3
"""The number of parent folders that can name the split: ALFWorld's games are in SPLIT/TASK/TRIAL/."""

_TRIAL = "trial_"
"""The prefix of ALFWorld's trial folders, whose names are ids and not words."""


class SplitFolder(NamedTuple):
    """The location of a split.

    Attributes:
        path: its folder, or its only file.
        top: the folder to which names of files are relative: the one with all splits, if there is one.
        files: all files below `path`, or `path` itself.
    """

    path: Path
    top: Path
    files: tuple[Path, ...]


def find_split(place: Path, split: str, names: Mapping[str, str], is_data: Callable[[Path], bool]) -> SplitFolder:
    """Return the location of a split of the data at `place`.

    Args:
        place: the file or folder.
        split: our name of the split.
        names: possible names of folders -> our names of the splits.
        is_data: whether a file below `place` is a data file; the names of other files are ignored.

    Raises `BadData` if the data have no such split or are ambiguous; the message says what was found.
    """
    inside = split_folders(place, names)
    if inside:
        if split not in inside:
            wanted = " or ".join(name for name, own in names.items() if own == split)
            has = ", ".join(folder.name for folder in inside.values())
            raise BadData(f"{place} has no folder {wanted} for the split {split!r}; it has {has}")
        return SplitFolder(inside[split], place, _all_files(inside[split], names))
    files = _all_files(place, names)
    found, source = _split_of(place, filter(is_data, files), names)
    if found == split:
        top = place.parent if place.is_file() else place
        return SplitFolder(place, source.parent if source in (place, *place.parents) else top, files)
    if source is None:
        wanted = next((name for name, one in names.items() if one == split), split)
        remedy = f"ask for split='test', or put it into a folder {wanted} if that is what it is"
        raise BadData(f"{place} has no split in its name, so it belongs to 'test' and not to {split!r}: {remedy}")
    advice = "name the folder that has all splits"
    raise BadData(f"{place} belongs to the split {found!r} by the name {source.name}, not to {split!r}; {advice}")


def splits_of(place: Path, names: Mapping[str, str], is_data: Callable[[Path], bool]) -> tuple[str, ...]:
    """Return our names of the splits of the data at `place`. Arguments and errors are those of `find_split`."""
    if inside := split_folders(place, names):
        return tuple(inside)
    return (_split_of(place, filter(is_data, _all_files(place, names)), names)[0],)


def split_folders(place: Path, names: Mapping[str, str]) -> dict[str, Path]:
    """Return split -> its folder in `place`; empty if there are none.

    Raises `BadData` if a split has two folders, or two splits share one folder.
    """
    found: dict[str, Path] = {}
    real: dict[str, Path] = {}
    for name, split in names.items():
        folder = place / name
        if not folder.is_dir():
            continue
        if split in found:
            raise BadData(f"{place} has two folders of the split {split!r}, {found[split].name} and {name}; leave one")
        same = real.setdefault(os.path.realpath(folder), folder)
        if same != folder:
            raise BadData(f"{place}: {same.name} and {name} are one folder; each split needs its own")
        found[split] = folder
    return found


_Named = tuple[str, Path | None]
"""A split, and the file or folder that is named after it; `"test"` and None if there is none."""


def _split_of(place: Path, files: Iterable[Path], names: Mapping[str, str]) -> _Named:
    """Return the split of all files at `place` by their names. Raises `BadData` if the names contradict each other."""
    known: dict[Path, _Named] = {}

    def named(path: Path, more: int) -> _Named:
        """Return the split in the name of a path or its folders, up to `more` folders above `place`."""
        if path not in known:
            split = next((split for one in _with_target(path) if (split := _split_in(one, names))), None)
            if split:
                known[path] = split, path
            elif more and path != path.parent:
                known[path] = named(path.parent, more - (path == place or path in place.parents))
            else:
                known[path] = "test", None
        return known[path]

    by_split: dict[str, Path] = {}
    last = named(place, _UP)
    for file in files:
        last = named(file, _UP)
        by_split.setdefault(last[0], file)
    if len(by_split) > 1:
        found = ", ".join(f"{split} ({file.relative_to(place)})" for split, file in by_split.items())
        raise BadData(f"{place} has files of several splits by name: {found}; put each split into a folder of its own")
    return last


def _with_target(path: Path) -> tuple[Path, ...]:
    """Return a path and, for a link, its target with the parent folders that can name a split."""
    if not path.is_symlink():
        return (path,)
    target = path.resolve()
    return (path, target, *list(target.parents)[:_UP])


def _split_in(path: Path, names: Mapping[str, str]) -> str:
    """Return the split in the words of a name (without the suffix of a file); empty if there is none.

    Raises `BadData` if there are several.
    """
    name = path.name if path.is_dir() else path.stem
    if name.startswith(_TRIAL):
        return ""
    return names.get(name) or _split_in_words(name, tuple(names.items()))


@lru_cache(maxsize=1 << 14)
def _split_in_words(name: str, names: tuple[tuple[str, str], ...]) -> str:
    text = "".join(f"_{word}_" for word in cut_at_digits(words_of(name)))
    found = set()
    for known, split in sorted(names, key=lambda one: -len(one[0])):
        words = "".join(f"_{word}_" for word in known.split("_"))
        if words in text:
            found.add(split)
            text = text.replace(words, "__")
    if part := part_in(name, filter(None, text.split("_"))):
        found.add({"dev": "valid"}.get(part, part))
    if len(found) > 1:
        raise BadData(f"the name {name!r} contains several splits, {' and '.join(sorted(found))}; use one of them")
    return found.pop() if found else ""


def _all_files(place: Path, names: Mapping[str, str]) -> tuple[Path, ...]:
    if place.is_file():
        return (place,)
    files = files_below(place)
    _check_no_splits_below(place, files, tuple(names))
    return files


@lru_cache(maxsize=64)
def _check_no_splits_below(folder: Path, files: tuple[Path, ...], names: tuple[str, ...]) -> None:
    """Raise `BadData` if files are in folders named like splits: a copy of the data in itself, or a parent folder."""
    nested: dict[str, None] = {}
    for file in files:
        parts = file.relative_to(folder).parts[:-1]
        deep = next((number for number, part in enumerate(parts) if part in names), None)
        if deep == 0:
            raise BadData(f"{folder} is one split's folder, and has a folder {parts[0]} in it; move one of them away")
        if deep is not None:
            nested[str(folder.joinpath(*parts[:deep]))] = None
    if nested:
        raise BadData(f"{folder} has splits in folders below it; choose one of: {', '.join(sorted(nested))}")
