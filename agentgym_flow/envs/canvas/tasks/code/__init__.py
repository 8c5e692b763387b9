"""Tasks that ask for a program: generated functions, and those of published sets."""

from agentgym_flow.envs.canvas.tasks.code.foreign import NotUsable, PublishedProgram, from_program
from agentgym_flow.envs.canvas.tasks.code.generated import SHARES, make_task
from agentgym_flow.envs.canvas.tasks.code.task import CodeTask

__all__ = ["SHARES", "CodeTask", "NotUsable", "PublishedProgram", "from_program", "make_task"]
