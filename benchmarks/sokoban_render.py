"""RGB frames of the same boards: this package's and gym-sokoban's `rgb_array`.

Needs the extra `sokoban`. Launch: `python benchmarks/sokoban_render.py [--repetitions 7]`.

Both packages are timed through `env.render()`, ours with an environment from `gym.make`. The last columns are a batch
of 256 boards in one call of `rgb_frame`. Figures are frames of 16-pixel tiles per second of CPU time
(`time.process_time`), medians of repetitions in which the contestants take turns.
"""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
from _timing import arguments, board_name, in_turns, per_second, print_header, print_row

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs.sokoban.game import GymSokobanBoard
from agentgym_flow.envs.sokoban.level import cell_codes, rgb_frame

CASES = (((6, 6), 1), ((7, 7), 2), ((10, 10), 4))
BATCH = 256


def main() -> None:
    """Print the table."""
    repetitions = arguments(__doc__, repetitions=7).parse_args().repetitions
    print_header("board", "gym-sokoban", "ours, `env.render()`", "ratio", "ours, batch of 256", "ratio")
    for size, boxes in CASES:
        env = gym.make("agentgym_flow/SokobanGrid-v0", size=size, boxes=boxes, render_mode="rgb_array")
        env.reset(seed=0)
        level = env.unwrapped.game.level
        room = GymSokobanBoard(level).room
        boards = np.tile(cell_codes(level.cells, level.player).reshape(size), (BATCH, 1, 1))
        rates = in_turns(
            {
                "peer": partial(per_second, partial(room.render, "rgb_array"), 60),
                "single": partial(per_second, env.render, 3000),
                "batch": partial(per_second, partial(rgb_frame, boards), 30),
            },
            repetitions,
        )
        peer, single, batch = rates["peer"], rates["single"], BATCH * rates["batch"]
        print_row(
            board_name(size, boxes),
            f"{peer:,.0f}/s",
            f"{single:,.0f}/s",
            f"{single / peer:,.0f}x",
            f"{batch:,.0f}/s",
            f"{batch / peer:,.0f}x",
        )


if __name__ == "__main__":
    main()
