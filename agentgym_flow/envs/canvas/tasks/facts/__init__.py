"""Questions about small invented worlds: people, towns, firms and works, described in a few passages."""

from agentgym_flow.envs.canvas.tasks.facts.make import FactTask, make_task

__all__ = ["FactTask", "make_task"]
