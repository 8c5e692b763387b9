"""The environments, and the ids under which Gymnasium knows them."""

from __future__ import annotations

import gymnasium as gym


def register_all() -> None:
    """Register every id of the package; string entry points, so nothing is imported until an environment is made."""
    gym.register("agentgym_flow/Sokoban-v0", entry_point="agentgym_flow.envs.sokoban.env:SokobanEnv")
    gym.register(
        "agentgym_flow/SokobanGrid-v0",
        entry_point="agentgym_flow.envs.sokoban.grid:SokobanGridEnv",
        vector_entry_point="agentgym_flow.envs.sokoban.vector:SokobanVectorEnv",
    )
