"""The embedded Sokoban tasks: three splits, disjoint by construction. Each task depends only on its index.

A hash of the walls, targets and boxes decides the split of a board. It is equal for all rotations and reflections, so
two splits never share a level, even rotated, mirrored or with another start of the player.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256

from agentgym_flow.core import SPLITS, Stream, check_split, seasonal
from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.level import Level
from agentgym_flow.envs.sokoban.packed import COUNTS, PackedLevels, packed_levels
from agentgym_flow.errors import UnknownTask

_NUM_TASKS = dict(COUNTS)

QUICKSTART = LevelSettings(size=(6, 6), boxes=1, min_pushes=3)
"""The levels of the quickstart: small, but never solved by one or two pushes."""


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

    Every season has its own levels; `""` selects the standard levels, which are read from `packed` if available.

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


def standard_levels(settings: LevelSettings, split: str, season: str = "") -> PackedLevels | None:
    """Return the levels of a split from the package; None if they are generated."""
    return None if season else packed_levels(settings, split)


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
    return generate(settings, stream, _accept(settings.size, split))


@lru_cache(maxsize=64)
def _accept(size: tuple[int, int], split: str) -> Callable[[bytes], bool]:
    """Return a predicate that is true of the boards of a split."""
    height, width = size
    return lambda cells: split_of(height, width, cells) == split


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
