"""Arithmetic word problems of the simulator: generated ones, and GSM8K's own through their worked solutions.

`task` says what a mistake does to the answer, `story` how a problem is drawn from a template, `stories` has the
templates, `make` puts a task together, and `gsm8k` reads mistakes off a real solution.
"""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.arithmetic.gsm8k import from_gsm8k
from agentgym_flow.envs.canvas.tasks.arithmetic.make import KINDS, make_task
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ArithmeticTask

__all__ = ["KINDS", "ArithmeticTask", "from_gsm8k", "make_task"]
