"""Questions about small invented worlds: people, towns, firms and works, described in a few passages."""

from agentgym_flow.envs.canvas.tasks.facts.make import make_task
from agentgym_flow.envs.canvas.tasks.facts.task import FactTask

__all__ = ["FactTask", "make_task"]
