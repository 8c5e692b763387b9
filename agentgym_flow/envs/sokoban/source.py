"""The levels of all Sokoban environments (text, grid and vector), selected by the same arguments."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, cast

from agentgym_flow import data as registry
from agentgym_flow._util.file_state import file_digest, per_state
from agentgym_flow.core import SPLITS, Flag, check_positive, check_season, check_split, task_identity
from agentgym_flow.data import digest_of_files, digests_line
from agentgym_flow.envs.sokoban import tasks
from agentgym_flow.envs.sokoban.boxoban import all_level_files, is_level_file, level_files, read_levels
from agentgym_flow.envs.sokoban.generator import LevelSettings, default_max_steps
from agentgym_flow.envs.sokoban.level import SOLVED_ALREADY, Level
from agentgym_flow.envs.sokoban.packed import PackedLevels
from agentgym_flow.envs.split_folders import find_split, split_folders, splits_of
from agentgym_flow.errors import BadData, BadLevel, BadSetting, shown

ENV_ID = "agentgym_flow/Sokoban-v0"
"""The id of the text environment. All Sokoban environments have its task keys and draw the same tasks."""

GOAL = "Push every box onto a target. Boxes can be pushed one at a time and never pulled."
"""The instruction, the same for every task."""

_NAMES = {split: split for split in SPLITS}

DEFAULT_SIZE = (6, 6)
DEFAULT_BOXES = 1
DEFAULT_MIN_PUSHES = 1


class LevelSource:
    """The levels of one split and their task keys. Immutable, so copies of an environment share it.

    The levels are generated (`size`, `boxes`, `min_pushes`), or a single `level`, or read from `data`.

    Args:
        size: rows and columns of generated levels; one integer for a square.
        boxes: the number of boxes of generated levels.
        min_pushes: the minimum number of pushes that a generated level needs.
        level: the text of a single level (XSB or LLM symbols), which is the only task of every split.
        data: a file or folder of levels in Boxoban's format, or the name of registered data; `split_folders` finds its
            splits.
        skip_damaged: leave out the levels of `data` that cannot be played instead of raising, and warn how many there
            are; task numbers do not count them.
        split: `"train"`, `"valid"` or `"test"`.
        season: the seed of a season of generated test levels; `""` for the standard levels.

    Attributes:
        split: the split.
        season: the season.
        num_tasks: the number of levels in the split.
        settings: the arguments that create the same source again, JSON-serialisable and without paths.
        data: name -> SHA-256 of the official data in use.
        skipped: a sentence with the location of each level that was left out.

    Raises:
        BadSetting: an argument has an invalid value, or contradicts another argument.
        BadLevel: `level` or a level in `data` cannot be played.
        UnknownSplit: `split` is not a split.
        UnknownData: `data` is neither a path nor a registered name.
        BadData: `data` is missing, cannot be read, or has no such split.
    """

    def __init__(
        self,
        *,
        size: int | Sequence[int] = DEFAULT_SIZE,
        boxes: int = DEFAULT_BOXES,
        min_pushes: int = DEFAULT_MIN_PUSHES,
        level: str | None = None,
        data: str | os.PathLike[str] | None = None,
        skip_damaged: bool = False,
        split: str = "train",
        season: str = "",
    ) -> None:
        self.split = check_split(split, {})
        fixed = "level" if level is not None else "data" if data is not None else ""
        self.season = check_season(season, self.split, fixed)
        self.data: dict[str, str] = {}
        self._generated: LevelSettings | None = None
        self._levels: tuple[Level, ...] = ()
        self.skipped: tuple[str, ...] = ()
        Flag().check("skip_damaged", skip_damaged)
        if skip_damaged and data is None:
            raise BadSetting("skip_damaged is for level files (data=); leave it out")
        if level is None and data is None:
            # NumPy integers become plain integers, because settings are written to logs.
            boxes, min_pushes = check_positive("boxes", boxes), check_positive("min_pushes", min_pushes)
            self._generated = LevelSettings(size=_pair(size), boxes=boxes, min_pushes=min_pushes)
            self.num_tasks: int = tasks.num_tasks(self.split)
            self.settings: dict[str, Any] = {"size": list(_pair(size)), "boxes": boxes, "min_pushes": min_pushes}
            return
        _check_alone(level=level, data=data, size=_pair(size), boxes=boxes, min_pushes=min_pushes)
        if level is not None:
            self._levels = (Level.parse(level),)
            if self._levels[0].is_solved:
                raise BadLevel(f"level: {SOLVED_ALREADY}")
            self.settings = {"level": self._levels[0].xsb()}
        elif data is not None:
            found = registry.resolve(data)
            (self._levels, self.skipped), digest = _levels_on_disk(found.path, self.split, skip_damaged)
            if self.skipped:
                which = "`agentgym-flow data check --env sokoban` names them all"
                counted = f"{len(self.skipped)} damaged levels are skipped, the first: {self.skipped[0]}; {which}."
                warnings.warn(counted, stacklevel=3)
            self.data = {found.name: digest}
            self.settings = {}
        self.num_tasks = len(self._levels)

    def __copy__(self) -> LevelSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LevelSource:
        return self

    def level(self, task: int) -> Level:
        """Return the level of a task."""
        if self._generated is None:
            return self._levels[task]
        return tasks.task_level(self._generated, self.split, task, self.season)

    @property
    def packed(self) -> PackedLevels | None:
        """The levels of the split if they are stored in the package, otherwise None."""
        return None if self._generated is None else tasks.standard_levels(self._generated, self.split, self.season)

    def task_type(self, task: int) -> str:
        """Return the shape of a level: rows, columns and boxes, such as `"10x10, 4 boxes"`."""
        if self._generated is not None:
            (height, width), boxes = self._generated.size, self._generated.boxes
        else:
            level = self._levels[task]
            height, width, boxes = level.height, level.width, len(level.boxes)
        return f"{height}x{width}, {boxes} {'box' if boxes == 1 else 'boxes'}"

    def task_key(self, level: Level) -> str:
        """Return the task key of a level, which is equal in all Sokoban environments."""
        return task_identity(ENV_ID, self.settings, self.data, level.xsb())

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of all levels. Raises `BadSetting` if levels have different sizes."""
        if self._generated is not None:
            height, width = self._generated.size
            return height, width
        shapes = {(level.height, level.width) for level in self._levels}
        if len(shapes) > 1:
            sizes = ", ".join(f"{height}x{width}" for height, width in sorted(shapes))
            raise BadSetting(f"a grid observation needs levels of one size, the data has {sizes}; use the text face")
        return shapes.pop()

    @property
    def default_max_steps(self) -> int:
        """The default step budget of the largest level."""
        if self._generated is not None:
            return default_max_steps(*self.shape)
        return max(default_max_steps(*shape) for shape in {(lv.height, lv.width) for lv in self._levels})


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    """Return `size` as (rows, columns)."""
    try:
        sides = [
            operator.index(cast("SupportsIndex", side))
            for side in (size if isinstance(size, Sequence) else (size, size))
        ]
    except TypeError:
        sides = []
    if len(sides) != 2 or isinstance(size, str):
        raise BadSetting(f"size must be an integer or a pair (rows, columns), got {shown(size)}")
    return sides[0], sides[1]


def _check_alone(*, level: object, data: object, size: tuple[int, int], boxes: int, min_pushes: int) -> None:
    """Raise `BadSetting` if `level` or `data` is combined with the other, or with settings of generated levels."""
    if level is not None and data is not None:
        raise BadSetting("level and data were both given; choose one")
    given = "level" if level is not None else "data"
    for name, value, default in (
        ("size", size, DEFAULT_SIZE),
        ("boxes", boxes, DEFAULT_BOXES),
        ("min_pushes", min_pushes, DEFAULT_MIN_PUSHES),
    ):
        if value != default:
            raise BadSetting(f"{name} describes generated levels and has no effect with {given}=; leave it out")


_LevelsRead = tuple[tuple[Level, ...], tuple[str, ...]]
"""Levels, and a sentence for each damaged one."""


def _levels_on_disk(place: Path, split: str, skip_damaged: bool) -> tuple[_LevelsRead, str]:
    """Return the levels of a split in a file or folder, and the SHA-256 of their files.

    Raises `BadData` if the split is missing or ambiguous, and `BadLevel` if a file cannot be read.
    """
    if place.is_dir() and split_folders(place, _NAMES) and (loose := level_files(place, deep=False)):
        raise BadData(f"{place} has folders of splits, and levels of none of them beside: {loose[0].name}")
    where = find_split(place, split, _NAMES, is_level_file)
    files = all_level_files(where.path)
    if where.path.is_file():
        return _read(files, where.path, skip_damaged), file_digest(where.path)
    digests = {file.relative_to(where.path).as_posix(): file_digest(file) for file in files}
    return _read(files, where.path, skip_damaged), digest_of_files(digests)


def remarks(place: Path) -> Iterator[str]:
    """Yield a report of a file or folder, line by line: its damaged levels, its splits. Raises as `LevelSource`."""
    splits = {split: _levels_on_disk(place, split, True) for split in splits_of(place, _NAMES, is_level_file)}
    damaged = [problem for (_, problems), _ in splits.values() for problem in problems]
    yield from damaged
    if damaged:
        yield f"{len(damaged):,} damaged levels: fix or remove them, or skip them (skip_damaged=True)"
    yield "played as: " + ", ".join(f"{split} {len(levels):,}" for split, ((levels, _), _) in splits.items())
    yield digests_line({split: digest for split, (_, digest) in splits.items()})


@per_state
def _read(files: tuple[Path, ...], place: Path, skip_damaged: bool) -> _LevelsRead:
    skipped: list[str] = []
    levels = tuple(read_levels(place, skipped=skipped if skip_damaged else None))
    return levels, tuple(skipped)
