"""Gymnasium environments, dense rewards, reference trainers and verifiable leaderboards for LLM agents.

`import agentgym_flow` registers the environments; `gymnasium.make("agentgym_flow/Sokoban-v0")` makes one. Importing is
light: no torch, no network, no output.
"""

from agentgym_flow.envs import register_all

__version__ = "0.1.0"
__all__ = ["__version__"]

register_all()
