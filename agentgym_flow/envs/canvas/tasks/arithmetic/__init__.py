"""Arithmetic word problems for the simulator: generated ones, and those of GSM8K by their worked solutions.

`task` computes the effect of mistakes on the answer, `story` draws problems from the templates in `stories`, `make`
assembles generated tasks, and `gsm8k` derives mistakes from a real solution.
"""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.arithmetic.gsm8k import from_gsm8k
from agentgym_flow.envs.canvas.tasks.arithmetic.make import KINDS, make_task
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ArithmeticTask

__all__ = ["KINDS", "ArithmeticTask", "from_gsm8k", "make_task"]
