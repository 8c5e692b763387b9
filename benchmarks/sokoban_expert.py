"""The Sokoban expert on level files: how many levels it solves, and the time to plan a level from its start.

Launch: `python benchmarks/sokoban_expert.py [PATH...]`. Each PATH is a Boxoban or XSB file, or a folder of them. The
default is the Boxoban test samples (`AGENTGYM_FLOW_TEST_DATA`) or, if there are none, generated levels.

Figures are CPU time (`time.process_time`) from a new level to the complete plan, including the level's tables. A level
counts as solved only if playing the plan solves it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _timing import arguments, print_header, print_row

from agentgym_flow.envs.sokoban.level import ACTIONS, WALL, Level, offsets
from agentgym_flow.envs.sokoban.official import read_levels
from agentgym_flow.envs.sokoban.solver import deadlocks, solve
from agentgym_flow.envs.sokoban.tasks import LevelSource
from agentgym_flow.errors import SearchLimit

GENERATED = 50
"""Number of levels to generate if there are no files."""


class Outcome(NamedTuple):
    """One level: whether its plan was found and works, CPU milliseconds, and the plan's pushes and moves."""

    solved: bool
    milliseconds: float
    pushes: int
    moves: int


def play(level: Level, plan: Sequence[str]) -> tuple[bool, int]:
    """Play a plan by the rules; return whether it solves the level, and its pushes."""
    step_of = dict(zip(ACTIONS, offsets(level.width), strict=True))
    player, boxes, pushes = level.player, set(level.boxes), 0
    for word in plan:
        ahead, beyond = player + step_of[word], player + 2 * step_of[word]
        if ahead in boxes:
            if beyond in boxes or level.cells[beyond] & WALL:
                return False, pushes
            boxes.remove(ahead)
            boxes.add(beyond)
            pushes += 1
        elif level.cells[ahead] & WALL:
            return False, pushes
        player = ahead
    return boxes == set(level.targets), pushes


def outcome(level: Level) -> Outcome:
    """Solve and play one level."""
    deadlocks.cache_clear()
    start = time.process_time()
    try:
        plan = solve(level)
    except SearchLimit:
        plan = None
    milliseconds = (time.process_time() - start) * 1e3
    if plan is None:
        return Outcome(False, milliseconds, 0, 0)
    solved, pushes = play(level, plan)
    return Outcome(solved, milliseconds, pushes, len(plan))


def spread(values: Sequence[float], decimals: int) -> str:
    """Return median / 90 % / maximum as text."""
    ordered = sorted(values)
    points = (ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10], ordered[-1])
    return " / ".join(f"{point:.{decimals}f}" for point in points)


def samples() -> list[Path]:
    """Return the Boxoban sample files if `AGENTGYM_FLOW_TEST_DATA` is set."""
    folder = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    return sorted((Path(folder) / "boxoban").glob("*.txt")) if folder else []


def main() -> None:
    """Print one row for each path."""
    parser = arguments(__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="level file or folder")
    sets = {path.name: read_levels(path) for path in parser.parse_args().paths or samples()}
    if not sets:
        source = LevelSource(size=(10, 10), boxes=4, split="test")
        sets["generated, 10x10, 4 boxes"] = [source.level(task) for task in range(GENERATED)]
    print_header("levels", "solved", "CPU ms, median / p90 / max", "pushes", "moves")
    for name, levels in sets.items():
        outcomes = [outcome(level) for level in levels]
        solved = [o for o in outcomes if o.solved]
        figures = [
            spread([o.milliseconds for o in outcomes], 1),
            spread([o.pushes for o in solved], 0) if solved else "",
            spread([o.moves for o in solved], 0) if solved else "",
        ]
        print_row(name, f"{len(solved)} of {len(outcomes)}", *figures)


if __name__ == "__main__":
    main()
