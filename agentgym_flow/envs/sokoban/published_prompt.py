"""The prompt of verl-agent, GiGPO and RewardFlow for Sokoban; see `agentgym_flow.prompts.files`."""

from __future__ import annotations

from typing import Any

from agentgym_flow.envs.sokoban.level import ACTIONS
from agentgym_flow.episodes import Turn
from agentgym_flow.prompts import PromptContext, PromptFile, Published
from agentgym_flow.prompts.files import VERL_AGENT, VerlAgentTemplate, has_thought, tagged

STILL = "still"
"""The action of completions without an action. It is invalid in the environment, so the board does not change."""


class SokobanPrompt(VerlAgentTemplate):
    """The text prompt, in which a cell is a space, its symbol, a space and a tab, and past actions are capitalised.

    Args:
        file: the file with `SOKOBAN_TEMPLATE_NO_HIS` and `SOKOBAN_TEMPLATE`.

    Raises:
        BadPromptFile: the file lacks a template.
    """

    def __init__(self, file: PromptFile) -> None:
        super().__init__(file, "SOKOBAN_TEMPLATE_NO_HIS", "SOKOBAN_TEMPLATE", places=("current_observation",))

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the first of `up`, `down`, `left` and `right` that occurs between the tags, or `STILL`."""
        return _action(completion) or STILL

    def well_formed(self, completion: str) -> bool:
        """Return whether a completion has a thought and an action, which can be `STILL`."""
        return has_thought(completion) and _action(completion) != ""

    def _now(self, policy_input: PromptContext) -> dict[str, Any]:
        return {"current_observation": self._observed(policy_input.observation, policy_input)}

    def _observed(self, observation: str, policy_input: PromptContext) -> str:
        return "\n".join("".join(f" {cell} \t" for cell in row.split(" ")) for row in observation.split("\n"))

    def _did(self, turn: Turn) -> str:
        action = turn.action.strip().lower()
        return (action if action in ACTIONS else STILL).capitalize()


def _action(completion: str) -> str:
    """Return the first of the five actions that occurs between the tags; empty if there is none."""
    said = tagged(completion, 0)
    return next((action for action in (*ACTIONS, STILL) if action in said), "")


PUBLISHED: Published = {VERL_AGENT: SokobanPrompt}
"""The published prompts for Sokoban by name."""
