"""Level generation: this package's generator and gym-sokoban's `generate_room`, in turns in one process.

Needs the extra `sokoban`. Launch: `python benchmarks/sokoban_levels.py [--repetitions 5]`.

Both make levels of the same size, number of boxes and length of the room's random walk. Figures are levels per second
of CPU time (`time.process_time`), so other jobs on the machine affect them little; each is the median of several
repetitions. A failed call of `generate_room` yields no level, but its time counts, because the user must call again.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from _timing import arguments, board_name, in_turns, print_header, print_row
from gym_sokoban.envs.room_utils import generate_room

from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.tasks import generated_level


class Case(NamedTuple):
    """One row: the settings, and how many levels each generator makes in one repetition."""

    settings: LevelSettings
    ours: int
    theirs: int


CASES = (
    Case(LevelSettings((6, 6), 1), 2000, 200),
    Case(LevelSettings((7, 7), 2), 500, 40),
    Case(LevelSettings((10, 10), 4), 20, 3),
)


def levels_per_second(make: Callable[[int], bool], count: int) -> Callable[[], float]:
    """Return a function that makes `count` calls of `make` and returns successes per second of CPU time."""
    indices = itertools.count()

    def measure() -> float:
        start = time.process_time()
        made = sum(make(index) for index in itertools.islice(indices, count))
        return made / (time.process_time() - start)

    return measure


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
    generated_level(settings, "train", index)
    return True


def main() -> None:
    """Print the table."""
    repetitions = arguments(__doc__, repetitions=5).parse_args().repetitions
    print_header("board", "gym-sokoban", "ours", "ratio", "ours, tasks of a split", "ratio")
    for settings, ours, theirs in CASES:
        rates = in_turns(
            {
                "theirs": levels_per_second(partial(gym_sokoban_level, settings), theirs),
                "level": levels_per_second(partial(our_level, settings), ours),
                "task": levels_per_second(partial(our_task, settings), ours),
            },
            repetitions,
        )
        peer, level, task = rates.values()
        name = board_name(settings.size, settings.boxes)
        print_row(
            name, f"{peer:,.2f}/s", f"{level:,.0f}/s", f"{level / peer:.0f}x", f"{task:,.0f}/s", f"{task / peer:.0f}x"
        )


if __name__ == "__main__":
    main()
