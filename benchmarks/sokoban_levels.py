"""Level generation: our generator against gym-sokoban's `generate_room`, in one process, turn and turn about.

Needs the extra `sokoban`. Launch: `python benchmarks/sokoban_levels.py [--repetitions 5]`.

Both sides make levels of the same size, number of boxes and length of the room's random walk. Figures are levels per
second of CPU time (`time.process_time`), so other jobs on the machine disturb them little; each is the median of
several repetitions. A call of `generate_room` that fails counts with its time, because its user must call again, but
yields no level.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gym_sokoban.envs.room_utils import generate_room

from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.tasks import task_level
from agentgym_flow.seeding import Stream


class Case(NamedTuple):
    """One row: the settings, and how many levels each side makes in one repetition."""

    settings: LevelSettings
    ours: int
    theirs: int


CASES = (
    Case(LevelSettings((6, 6), 1), 2000, 200),
    Case(LevelSettings((7, 7), 2), 500, 40),
    Case(LevelSettings((10, 10), 4), 20, 3),
)


def levels_per_second(make: Callable[[int], bool], indices: range) -> float:
    """Return successful calls of `make` per second of CPU time."""
    start = time.process_time()
    made = sum(make(index) for index in indices)
    return made / (time.process_time() - start)


def gym_sokoban_level(settings: LevelSettings, index: int) -> bool:
    """Make one level with gym-sokoban's defaults, seeded; False if it gave up."""
    random.seed(index)
    np.random.seed(index)  # noqa: NPY002 - gym-sokoban draws from the global state
    try:
        generate_room(dim=settings.size, num_steps=int(1.7 * sum(settings.size)), num_boxes=settings.boxes)
    except (RuntimeError, RuntimeWarning):
        return False
    return True


def our_level(settings: LevelSettings, index: int) -> bool:
    """Make one level with our generator."""
    generate(settings, Stream("benchmark", index))
    return True


def our_task(settings: LevelSettings, index: int) -> bool:
    """Make one task of the train split, whose boards must also hash to that split."""
    task_level.__wrapped__(settings, "train", index)
    return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions of every figure (default 5)")
    repetitions = parser.parse_args().repetitions
    print("| board | gym-sokoban | ours | ratio | ours, tasks of a split | ratio |")
    print("|---|---|---|---|---|---|")
    for settings, ours, theirs in CASES:
        rates: dict[str, list[float]] = {"theirs": [], "level": [], "task": []}
        for repetition in range(repetitions):
            few = range(repetition * theirs, (repetition + 1) * theirs)
            many = range(repetition * ours, (repetition + 1) * ours)
            rates["theirs"].append(levels_per_second(lambda index, s=settings: gym_sokoban_level(s, index), few))
            rates["level"].append(levels_per_second(lambda index, s=settings: our_level(s, index), many))
            rates["task"].append(levels_per_second(lambda index, s=settings: our_task(s, index), many))
        peer, level, task = (statistics.median(values) for values in rates.values())
        name = f"{settings.size[0]}x{settings.size[1]}, {settings.boxes} box{'es' if settings.boxes > 1 else ''}"
        figures = f"{peer:,.2f}/s | {level:,.0f}/s | {level / peer:.0f}x | {task:,.0f}/s | {task / peer:.0f}x"
        print(f"| {name} | {figures} |")


if __name__ == "__main__":
    main()
