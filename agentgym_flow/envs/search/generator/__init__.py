"""Generates the world of the embedded Search tasks: entities, their facts, articles about them, and questions."""

from agentgym_flow.envs.search.generator.build import SearchWorld, world
from agentgym_flow.envs.search.generator.questions import KINDS, draw_questions

__all__ = ["KINDS", "SearchWorld", "draw_questions", "world"]
