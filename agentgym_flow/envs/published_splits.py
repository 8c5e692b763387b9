"""The rule by which all environments turn the files of a published data set into splits.

A published set has some of the parts `train`, `dev` and `test`. A single file is the part that its name contains, or
else `test`.

| split | contents |
|---|---|
| `test` | the part `test`, or else `dev` |
| `valid` | the part `dev` if there is a `test`, else a tenth of `train`, at most 500 items, drawn by digests of ids |
| `train` | the part `train` without the items of the other two splits |

`valid` does not contain items of `test`. The environment defines which items are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from agentgym_flow._util.file_state import FileState, is_junk, state_of
from agentgym_flow._util.records import SUFFIXES
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import SPLITS, stable_hash
from agentgym_flow.errors import BadData

T = TypeVar("T")

PARTS = ("test", "dev", "train")
"""The parts of a set."""

HELD_OUT, MOST_HELD_OUT = 10, 500
"""If a set has no part for `valid`, it gets one in `HELD_OUT` items of `train`, at most `MOST_HELD_OUT`."""

PART_WORDS = {
    "train": ("train", "training", "trainset"),
    "dev": ("dev", "valid", "validation", "val", "eval", "devset"),
    "test": ("test", "testset"),
}
"""The words that name the parts of a set."""

ALONE = "a file alone is a test split, unless a word of its name, or of its folder's, is train"
"""A remark on the split of a single file, for messages."""

_WORD = re.compile("[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+|[A-Z]|[0-9]+")
_SHARD = re.compile(r"-\d+-of-0*(\d+)")

Stamp: TypeAlias = tuple[str, Path, FileState]
"""A part, its file, and the state of the file: a changed file has another stamp."""


class Splits(Generic[T]):
    """The splits of a set, each computed on first use. Thread-safe.

    Args:
        there: the parts of the set.
        read: returns the items of a part; called at most once per part.
        name: returns the id of an item, which decides whether the item is held out.
        without: returns the first items except those that are also among the second items, in order.
    """

    def __init__(
        self,
        there: Collection[str],
        read: Callable[[str], Sequence[T]],
        name: Callable[[T], str],
        without: Callable[[Sequence[T], Sequence[T]], Sequence[T]],
    ) -> None:
        self._there, self._read, self._name, self._without = frozenset(there), read, name, without
        self._parts: dict[str, Sequence[T]] = {}
        self._splits: dict[str, tuple[T, ...]] = {}
        self._lock = Lock()

    def __getitem__(self, split: str) -> tuple[T, ...]:
        """Return the items of a split in the order of their part; empty if the set has none."""
        with self._lock:
            if split not in self._splits:
                self._splits[split] = tuple(self._made(split))
            return self._splits[split]

    def shared(self, split: str) -> int:
        """Return the number of items that were removed from a split because another split has them."""
        with self._lock:
            if split == "train":
                return len(self._part("train")) - len(self["train"]) - (0 if self._has_both else len(self["valid"]))
            return len(self._part("dev")) - len(self["valid"]) if split == "valid" and self._has_both else 0

    @property
    def sizes(self) -> dict[str, int]:
        """Split -> its number of items; computes all splits."""
        return {split: len(self[split]) for split in SPLITS}

    @property
    def _has_both(self) -> bool:
        return self._there >= {"test", "dev"}

    def _part(self, part: str) -> Sequence[T]:
        if part not in self._parts:
            self._parts[part] = self._read(part) if part in self._there else ()
        return self._parts[part]

    def _made(self, split: str) -> Sequence[T]:
        if split == "test":
            return self._part("test" if "test" in self._there else "dev")
        test = self["test"]
        if split == "valid":
            if self._has_both:
                return self._without(self._part("dev"), test)
            return self._held_out(self._without(self._part("train"), test))
        return self._without(self._part("train"), [*test, *self["valid"]])

    def _held_out(self, items: Sequence[T]) -> Sequence[T]:
        """Return the held-out items in their order. Adding or removing other items hardly changes the selection."""
        count = min(len(items) // HELD_OUT, MOST_HELD_OUT)
        by_digest = sorted(items, key=lambda item: stable_hash(["held out", self._name(item)]))
        drawn = {self._name(item) for item in by_digest[:count]}
        return [item for item in items if self._name(item) in drawn]


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: runs of letters and digits, split before capitals (`gsm8kTrain`)."""
    return [word.lower() for word in _WORD.findall(name)]


def cut_at_digits(words: Iterable[str]) -> list[str]:
    """Return the words split between letters and digits: `train2` becomes `train` and `2`."""
    return [piece for word in words for piece in re.findall("[a-z]+|[0-9]+", word)]


def part_in(name: str, words: Iterable[str]) -> str:
    """Return the part in `PARTS` that the words of a name contain; empty if there is none.

    Raises `BadData` if there are several.
    """
    words = cut_at_digits(words)
    found = [part for part, known in PART_WORDS.items() if not set(known).isdisjoint(words)]
    if len(found) > 1:
        raise BadData(f"the name {name!r} is of several parts, {' and '.join(found)}; give it one of them.")
    return found[0] if found else ""


def part_of_alone(file: Path, said: Callable[[Path], str]) -> str:
    """Return the part of a single file: from its name, from the name of its folder, or else `test`.

    Args:
        file: the file. The names of a link and its folder are checked before those of the target.
        said: returns the part that the name of a file or folder contains; empty if there is none.
    """
    place = file.absolute()
    target = place.resolve()
    return next((part for one in (place, place.parent, target, target.parent) if (part := said(one))), "test")


def without_shard(name: str) -> str:
    """Return the name of a file without the suffix `-00000-of-00001` of the Hugging Face Hub.

    Raises `BadData` if the part has several files.
    """
    shard = _SHARD.search(name)
    if shard is None:
        return name
    if shard[1] != "1":
        raise BadData(f"{name} is one of {shard[1]} files of its part; join them into one file.")
    return name[: shard.start()] + name[shard.end() :]


def stamps_of(files: Mapping[str, Path]) -> tuple[Stamp, ...]:
    """Return the stamps of the parts of a set, as a cache key for their contents.

    Raises `BadData` if two parts are links to one file.
    """
    real: dict[Path, Path] = {}
    for file in files.values():
        if (same := real.setdefault(file.resolve(), file)) != file:
            raise BadData(f"{same} and {file.name} are one file; each part of a set needs its own.")
    return tuple((part, file, state_of(file)) for part, file in files.items())


def folders_with(place: Path, has: Callable[[Path], bool]) -> str:
    """Return a sentence for messages with the folders in `place` that are sets; empty if there are none."""
    found = [folder.name for folder in sorted(place.iterdir()) if folder.is_dir() and not is_junk(folder.name)]
    sets = [name for name in found if has(place / name)]
    return f" But folders in it have: name one of {', '.join(sets)}." if sets else ""


def unused_files(place: Path, used: Iterable[Path]) -> tuple[str, ...]:
    """Return the names of the record files in a folder that belong to no part; empty if `place` is a file."""
    names = sorted(file.name for file in place.iterdir() if file not in set(used)) if place.is_dir() else []
    return tuple(name for name in names if not is_junk(name) and name.removesuffix(".gz").lower().endswith(SUFFIXES))


UNUSED = "not read, because their names are of no part of the set: {}"
"""The remark on such files."""


def missing(place: object, items: str, split: str, sizes: Mapping[str, int], remark: str) -> BadData:
    """Return the error for a split that a set does not have.

    Args:
        place: the path of the set.
        items: the kind of its items, such as `"questions"`.
        split: the missing split.
        sizes: split -> its number of items.
        remark: the reason why the set has these splits.
    """
    has = ", ".join(name for name, size in sizes.items() if size)
    return BadData(f"{place} has no {items} for the split {split!r}: {remark}. It has: {has}.")
