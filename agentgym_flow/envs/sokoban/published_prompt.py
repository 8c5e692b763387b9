"""Sokoban as verl-agent, GiGPO and RewardFlow show it to a language model; see `agentgym_flow.envs.verl_agent`."""

from __future__ import annotations

from typing import Any

from agentgym_flow.envs.sokoban.rules import ACTIONS
from agentgym_flow.envs.verl_agent import NAME, VerlAgentTemplate, has_thought, tagged
from agentgym_flow.episode import Turn
from agentgym_flow.prompt_files import PromptFile
from agentgym_flow.prompts import PromptContext, Published

STILL = "still"
"""The action of an answer in which there is none. The environment takes it for invalid: the board does not change."""


class SokobanPrompt(VerlAgentTemplate):
    """The text prompt: every cell is its symbol between two blanks and a tab, past actions are capitalised.

    Args:
        file: has `SOKOBAN_TEMPLATE_NO_HIS` and `SOKOBAN_TEMPLATE`.

    Raises:
        BadPromptFile: it lacks one of them.
    """

    def __init__(self, file: PromptFile) -> None:
        super().__init__(file, "SOKOBAN_TEMPLATE_NO_HIS", "SOKOBAN_TEMPLATE", places=("current_observation",))

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the first of `up`, `down`, `left` and `right` anywhere between the tags; `STILL` without."""
        return _action(completion) or STILL

    def well_formed(self, completion: str) -> bool:
        """Return whether there are a thought and an action, `STILL` included."""
        return has_thought(completion) and _action(completion) != ""

    def _now(self, view: PromptContext) -> dict[str, Any]:
        return {"current_observation": self._observed(view.observation, view)}

    def _observed(self, observation: str, view: PromptContext) -> str:
        return "\n".join("".join(f" {cell} \t" for cell in row.split(" ")) for row in observation.split("\n"))

    def _did(self, turn: Turn) -> str:
        action = turn.action.strip().lower()
        return (action if action in ACTIONS else STILL).capitalize()


def _action(completion: str) -> str:
    """Return the first of the five actions that is anywhere between the tags; empty when there is none."""
    said = tagged(completion, 0)
    return next((action for action in (*ACTIONS, STILL) if action in said), "")


PUBLISHED: Published = {NAME: SokobanPrompt}
"""The published prompts for Sokoban by name."""
