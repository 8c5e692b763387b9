"""Draw the pictures of README and the documentation: `make pictures`.

One Sokoban level as the environment renders it; the state graphs of eight attempts at it, at a question of Search and
at a game of ALFWorld, by players who follow the expert at some steps and do anything at the others; and a workflow of
Canvas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np
from matplotlib import image

import agentgym_flow  # noqa: F401  (registers the environments)
from agentgym_flow.core import TextEnv
from agentgym_flow.envs.canvas.workflow.run import plain_graph
from agentgym_flow.envs.canvas.workflow.text import read
from agentgym_flow.episodes import Group
from agentgym_flow.play import EpisodeSpec, rollout_groups
from agentgym_flow.policies import FunctionPolicy, PolicyInput, PolicyOutput
from agentgym_flow.report import graph_svg, workflow_svg

ALFWORLD, SEARCH, SOKOBAN = (f"agentgym_flow/{name}-v0" for name in ("ALFWorld", "Search", "Sokoban"))
ATTEMPTS = 8
READABLE = range(11, 16)
"""A graph with this many states is worth a picture and has room for words."""
WORKFLOW = (
    'Plan "Name the unknowns first." -> [Custom, Programmer] -> ScEnsemble -> (Review -> Revise) * 2'
    " -> Verify ? done : Revise"
)


def lost(one_in: int) -> FunctionPolicy:
    """Return a player who follows the expert, and at one step in so many does anything."""

    def act(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        return [
            PolicyOutput((v.rng.below(one_in) and v.env.expert_action()) or v.env.sample_action(v.rng)) for v in inputs
        ]

    return FunctionPolicy("half lost" if one_in == 2 else "sometimes lost", act)


def half_right(env: TextEnv, policy: FunctionPolicy, states: Iterable[int] | None = None) -> Group:
    """Return the attempts at the first task at which half of them succeed, with so many states if that matters."""
    specs = [EpisodeSpec(seed=0, task=task) for task in range(100)]
    groups = rollout_groups(policy, lambda: env, specs, ATTEMPTS, num_envs=1)
    return next(
        group
        for group in groups
        if sum(episode.success for episode in group) == ATTEMPTS // 2
        and (states is None or len({key for episode in group for key in episode.state_keys}) in states)
    )


def draw(folder: Path) -> None:
    """Write a board, three graphs and a workflow."""
    (folder / "workflow.svg").write_text(workflow_svg(plain_graph(read(WORKFLOW))), encoding="utf-8")
    sokoban = gym.make(SOKOBAN, min_pushes=3, render_mode="rgb_array")
    group = half_right(sokoban.unwrapped, lost(2))
    sokoban.reset(options={"task": group.episodes[0].task})
    image.imsave(folder / "sokoban_board.png", np.asarray(sokoban.render()).repeat(4, axis=0).repeat(4, axis=1))
    (folder / "sokoban_graph.svg").write_text(graph_svg(group), encoding="utf-8")
    question = half_right(gym.make(SEARCH, split="valid").unwrapped, lost(4), READABLE)
    (folder / "search_graph.svg").write_text(graph_svg(question), encoding="utf-8")
    errand = half_right(gym.make(ALFWORLD, split="valid", max_steps=12).unwrapped, lost(3), range(20, 40))
    (folder / "alfworld_graph.svg").write_text(graph_svg(errand), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).parent / "_static")
