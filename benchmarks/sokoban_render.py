"""RGB frames: ours against gym-sokoban's `rgb_array`, of the same boards.

Needs the extra `sokoban`. Launch: `python benchmarks/sokoban_render.py [--repetitions 7]`.

`env.render()` is timed on both sides, ours through `gym.make`; the last columns are a batch of 256 boards in one call
of `rgb_frame`. Figures are frames of 16-pixel tiles per second of CPU time (`time.process_time`), medians of
repetitions in which the contestants take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs.sokoban.codes import level_codes
from agentgym_flow.envs.sokoban.gym_sokoban import GymSokobanBoard
from agentgym_flow.envs.sokoban.render import rgb_frame

CASES = (((6, 6), 1), ((7, 7), 2), ((10, 10), 4))
BATCH = 256


def per_second(draw: Callable[[], object], calls: int) -> float:
    """Return calls of `draw` per second of CPU time."""
    draw()
    start = time.process_time()
    for _ in range(calls):
        draw()
    return calls / (time.process_time() - start)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7, help="repetitions of every figure (default 7)")
    repetitions = parser.parse_args().repetitions
    print("| board | gym-sokoban | ours, `env.render()` | ratio | ours, batch of 256 | ratio |")
    print("|---|---|---|---|---|---|")
    for size, boxes in CASES:
        env = gym.make("agentgym_flow/SokobanGrid-v0", size=size, boxes=boxes, render_mode="rgb_array")
        env.reset(seed=0)
        level = env.unwrapped.game.level
        room = GymSokobanBoard(level).room
        boards = np.tile(level_codes(level).reshape(size), (BATCH, 1, 1))
        rates: dict[str, list[float]] = {"peer": [], "single": [], "batch": []}
        for _ in range(repetitions):
            rates["peer"].append(per_second(lambda room=room: room.render("rgb_array"), 60))
            rates["single"].append(per_second(env.render, 3000))
            rates["batch"].append(BATCH * per_second(lambda boards=boards: rgb_frame(boards), 30))
        peer, single, batch = (statistics.median(values) for values in rates.values())
        name = f"{size[0]}x{size[1]}, {boxes} box{'es' if boxes > 1 else ''}"
        ours = f"{single:,.0f}/s | {single / peer:,.0f}x | {batch:,.0f}/s | {batch / peer:,.0f}x"
        print(f"| {name} | {peer:,.0f}/s | {ours} |")


if __name__ == "__main__":
    main()
