"""The templates of word problems, by what makes them hard."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.tasks.arithmetic.stories import (
    accounts,
    calculation,
    easy,
    mixed,
    nuance,
    parts,
    steps,
    trap,
)
from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story

STORIES: Mapping[str, tuple[Story, ...]] = {
    "easy": easy.STORIES,
    "calculation": calculation.STORIES,
    "story": nuance.STORIES,
    "trap": trap.STORIES,
    "steps": steps.STORIES,
    "parts": parts.STORIES,
    "accounts": accounts.STORIES,
    "mixed": mixed.STORIES,
}
"""For each kind of task its templates."""
