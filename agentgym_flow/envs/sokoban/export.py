"""Export generated levels as files for other tools, in the layout of Boxoban."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from agentgym_flow.envs.sokoban.boxoban import write_levels
from agentgym_flow.envs.sokoban.source import LevelSource
from agentgym_flow.errors import BadSetting

LEVELS_OF_FILE = 1000
"""The number of levels in a file, as in Boxoban."""


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
    total = source.num_tasks if count is None else count
    if total > source.num_tasks:
        raise BadSetting(f"split {source.split!r} has {source.num_tasks} tasks, so {total} cannot be exported")
    levels = [source.level(task) for task in progress(range(total))]
    files = []
    for start in range(0, total, LEVELS_OF_FILE):
        files.append(Path(folder) / source.split / f"{start // LEVELS_OF_FILE:03d}.txt")
        write_levels(files[-1], levels[start : start + LEVELS_OF_FILE])
    return files
