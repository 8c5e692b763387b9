"""Draw the pictures of README and the documentation: `make pictures`.

One Sokoban level as the environment renders it, and the state graph of eight attempts at it by a player who follows the
expert half of the time and wanders otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np
from matplotlib import image

import agentgym_flow  # noqa: F401  (registers the environments)
from agentgym_flow.policies import FunctionPolicy, Move, View
from agentgym_flow.report import graph_svg
from agentgym_flow.rollout import Start, rollout_groups

SOKOBAN = "agentgym_flow/Sokoban-v0"
ATTEMPTS = 8


def half_lost(views: Sequence[View]) -> list[Move]:
    """Follow the expert half of the time, wander otherwise."""
    return [Move((v.rng.below(2) and v.env.expert_action()) or v.env.sample_action(v.rng)) for v in views]


def draw(folder: Path) -> None:
    """Write a board and its graph, of the first training task at which half of the attempts succeed."""
    env = gym.make(SOKOBAN, min_pushes=3, render_mode="rgb_array")
    policy, starts = FunctionPolicy("half lost", half_lost), [Start(seed=0, task=task) for task in range(100)]
    groups = rollout_groups(policy, lambda: env.unwrapped, starts, ATTEMPTS, num_envs=1)
    group = next(group for group in groups if sum(episode.success for episode in group) == ATTEMPTS // 2)
    env.reset(options={"task": group.episodes[0].task})
    image.imsave(folder / "sokoban_board.png", np.asarray(env.render()).repeat(4, axis=0).repeat(4, axis=1))
    (folder / "sokoban_graph.svg").write_text(graph_svg(group), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).parent / "_static")
