"""The standard planners."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.base import Planner
from agentgym_flow.envs.canvas.operators.odds import PlannerOdds


class Plan(Planner):
    """Gives later solvers a plan to follow."""

    name = "Plan"
    summary = "writes a numbered plan for the problem"
    instruction = (
        "Write a short numbered plan for solving the problem. Name the quantities or facts each step needs."
        " Do not solve it yet."
    )
    odds = PlannerOdds()


class Decompose(Planner):
    """Splits the problem into sub-problems."""

    name = "Decompose"
    summary = "splits the problem into sub-problems; parallel branches right after it share them out"
    instruction = "Split the problem into numbered sub-problems that can be solved one by one. Do not solve them."
    leaves = "pieces"
    odds = PlannerOdds()
