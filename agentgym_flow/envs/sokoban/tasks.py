"""The tasks of all Sokoban environments (text, grid and vector), selected by the same arguments.

They are generated, or a single level, or read from files (`official`). The generated tasks have three splits, disjoint
by construction, and each task depends only on its index. A hash of the walls, targets and boxes decides the split of a
board. It is equal for all rotations and reflections, so two splits never share a level, even rotated, mirrored or with
another start of the player.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from agentgym_flow.core import SPLITS, Flag, Stream, check_positive, check_season, check_split, seasonal, task_identity
from agentgym_flow.envs.sokoban.generator import (
    COUNTS,
    FILES,
    FOLDER,
    LevelSettings,
    PackedLevels,
    default_max_steps,
    generate,
    pack,
    standard_levels,
)
from agentgym_flow.envs.sokoban.level import SOLVED_ALREADY, Level
from agentgym_flow.errors import BadLevel, BadSetting, UnknownTask, shown

if TYPE_CHECKING:
    from pathlib import Path

ENV_ID = "agentgym_flow/Sokoban-v0"
"""The id of the text environment. All Sokoban environments have its task keys and draw the same tasks."""

GOAL = "Push every box onto a target. Boxes can be pushed one at a time and never pulled."
"""The instruction, the same for every task."""

DEFAULT_SIZE = (6, 6)
DEFAULT_BOXES = 1
DEFAULT_MIN_PUSHES = 1

QUICKSTART = LevelSettings(size=(6, 6), boxes=1, min_pushes=3)
"""The levels of the quickstart: small, but never solved by one or two pushes."""

_NUM_TASKS = dict(COUNTS)


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
            self.num_tasks: int = _NUM_TASKS[self.split]
            self.settings: dict[str, Any] = {"size": list(_pair(size)), "boxes": boxes, "min_pushes": min_pushes}
            return
        _check_alone(level=level, data=data, size=_pair(size), boxes=boxes, min_pushes=min_pushes)
        if level is not None:
            self._levels = (Level.parse(level),)
            if self._levels[0].is_solved:
                raise BadLevel(f"level: {SOLVED_ALREADY}")
            self.settings = {"level": self._levels[0].xsb()}
        elif data is not None:
            from agentgym_flow import data as registry  # imported when used, because the usual levels are generated
            from agentgym_flow.envs.sokoban.official import levels_on_disk

            found = registry.resolve(data)
            (self._levels, self.skipped), digest = levels_on_disk(found.path, self.split, skip_damaged)
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
        return task_level(self._generated, self.split, task, self.season)

    @property
    def packed(self) -> PackedLevels | None:
        """The levels of the split if they are stored in the package, otherwise None."""
        return None if self._generated is None else standard_levels(self._generated, self.split, self.season)

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


# ---------------------------------------------------------------- the generated tasks
def num_tasks(split: str) -> int:
    """Return the number of tasks in a split. Raises `UnknownSplit`."""
    return _NUM_TASKS[check_split(split, {})]


@lru_cache(maxsize=64)
def _symmetries(height: int, width: int) -> tuple[bytes, tuple[slice, ...]]:
    """Return the source index of every cell of all symmetric boards, concatenated, and the slice of each board.

    A square board has eight symmetries. For other boards only the four with more columns than rows are returned, so
    that a board and its transpose have the same ones.
    """
    flat = [[row * width + column for column in range(width)] for row in range(height)]
    turned = [list(row) for row in zip(*flat, strict=True)]
    grids = [flat, turned] if height == width else [flat if height < width else turned]
    order = bytearray()
    for grid in grids:
        for rows in (grid, grid[::-1]):
            for seen in (rows, [row[::-1] for row in rows]):
                order += bytes(cell for row in seen for cell in row)
    size = height * width
    return bytes(order), tuple(slice(start, start + size) for start in range(0, len(order), size))


def board_hash(height: int, width: int, cells: bytes) -> bytes:
    """Return the SHA-256 of a board's canonical form, which is equal for all symmetries and omits the player.

    The canonical form is the smallest of the symmetric boards, as its sides and bit codes.
    """
    order, boards = _symmetries(height, width)
    images = order.translate(cells.ljust(256, b"\0"))
    return sha256(bytes(sorted((height, width))) + min([images[board] for board in boards])).digest()


def split_of(height: int, width: int, cells: bytes) -> str:
    """Return the split that a board belongs to."""
    return SPLITS[int.from_bytes(board_hash(height, width, cells), "big") % len(SPLITS)]


@lru_cache(maxsize=16_384)
def task_level(settings: LevelSettings, split: str, task: int, season: str = "") -> Level:
    """Return the level of a task, without computing any other level.

    Every season has its own levels; `""` selects the standard levels, which are read from the package if available.

    Raises:
        UnknownSplit: the split does not exist.
        UnknownTask: `task` is not an index of the split.
        BadSetting: no level satisfies the settings.
        BadData: the levels in the package are damaged.
    """
    count = num_tasks(split)
    if not 0 <= task < count:
        raise UnknownTask(f"split {split!r} has tasks 0 to {count - 1}, got {task}")
    kept = standard_levels(settings, split, season)
    return generated_level(settings, split, task, season) if kept is None else kept.level(task)


def generated_level(settings: LevelSettings, split: str, task: int, season: str = "") -> Level:
    """Compute the level of an existing task from its index. Raises `BadSetting` like `task_level`."""
    stream = Stream(
        "agentgym_flow/Sokoban-v0",
        *settings.size,
        settings.boxes,
        settings.min_pushes,
        settings.move_limit,
        seasonal(split, season),
        task,
    )
    return generate(settings, stream, lambda cells: split_of(*settings.size, cells) == split)


def manifest_digest(settings: LevelSettings, split: str) -> str:
    """Return the SHA-256, in hex, of the XSB texts of all tasks of a split, each followed by a blank line."""
    digest = sha256()
    for task in range(num_tasks(split)):
        digest.update(task_level(settings, split, task).xsb().encode("ascii") + b"\n\n")
    return digest.hexdigest()


MANIFEST: dict[LevelSettings, dict[str, str]] = {
    LevelSettings(): {
        "train": "158fb0e64b9e10f52f8e682c66683baee23c3942298153b43a8d7d662b89e311",
        "valid": "924e2a362f45a52a5ac35af18e8143f0d2bc07cc434935eb8f67d0221d7448dd",
        "test": "f38e9fa2d2e16d1fde73b5f7c6e01a2ef17dccc10d760ab75c8bf98ed41176f0",
    },
    QUICKSTART: {
        "train": "ffeb1958a957ea6918e7bd4abf6604d4125463571be5fd7ebf4779d035474fcc",
        "valid": "b69791cbc1817d7a8be46fcd9a4b62b78d4837641d9b19c417c105dfa6bc6a4a",
        "test": "637c3745c76b864e990313348ea3527bb114820b417805d77a5a418ead6f48e1",
    },
}
"""The recorded digests. If one changes, the tasks of published results have changed, and the id needs a new version."""


def write_packed(folder: Path) -> None:
    """Generate all standard levels in some minutes, write their files and print the SHA-256 for `generator.FILES`."""
    for settings, (name, _) in FILES.items():
        content = pack(
            generated_level(settings, split, task) for split, count in COUNTS.items() for task in range(count)
        )
        (folder / name).write_bytes(content)
        sys.stdout.write(f"{sha256(content).hexdigest()}  {name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    from pathlib import Path

    write_packed(Path(__file__).with_name(FOLDER))


_LEVELS_OF_FILE = 1000  # as in Boxoban's repository


def export_levels(
    folder: str | os.PathLike[str],
    source: LevelSource,
    count: int | None = None,
    progress: Callable[[range], Iterable[int]] = iter,
) -> list[Path]:
    """Write the levels of a split to `FOLDER/SPLIT/000.txt`, `001.txt`, ...; return the files.

    Args:
        folder: the folder, which is created if it does not exist.
        source: the levels.
        count: the number of levels to export, from the first on; None for all.
        progress: wraps the range of task numbers, for example in a progress bar.

    Raises:
        BadSetting: the split has fewer than `count` levels.
        OSError: a file cannot be written; the error has its name.
    """
    from pathlib import Path  # imported when used, like all of official data

    from agentgym_flow.envs.sokoban.official import write_levels

    total = source.num_tasks if count is None else count
    if total > source.num_tasks:
        raise BadSetting(f"split {source.split!r} has {source.num_tasks} tasks, so {total} cannot be exported")
    levels = [source.level(task) for task in progress(range(total))]
    files = []
    for start in range(0, total, _LEVELS_OF_FILE):
        files.append(Path(folder) / source.split / f"{start // _LEVELS_OF_FILE:03d}.txt")
        write_levels(files[-1], levels[start : start + _LEVELS_OF_FILE])
    return files
