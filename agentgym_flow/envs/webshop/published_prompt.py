"""The published prompt of verl-agent, GiGPO and RewardFlow for WebShop; see `agentgym_flow.prompts.files`."""

from __future__ import annotations

from typing import Any

from agentgym_flow.envs.webshop.game import Page
from agentgym_flow.envs.webshop.observation import SEPARATOR
from agentgym_flow.envs.webshop.prompt import LONGEST, QUERY
from agentgym_flow.errors import BadSetting
from agentgym_flow.prompts import PromptContext, PromptFile, Published
from agentgym_flow.prompts.files import VERL_AGENT, TaggedPrompt


class WebShopPrompt(TaggedPrompt):
    """The prompt with the page's texts in quotation marks, without the instruction.

    Only the search page offers searches. Prompts longer than `LONGEST` use the template of the first step.

    Args:
        file: the prompt file, with `WEBSHOP_TEMPLATE_NO_HIS` and `WEBSHOP_TEMPLATE`.

    Raises:
        BadPromptFile: a template is missing.
    """

    rest = 20

    def __init__(self, file: PromptFile) -> None:
        places = ("task_description", "current_observation", "available_actions")
        super().__init__(file, "WEBSHOP_TEMPLATE_NO_HIS", "WEBSHOP_TEMPLATE", places=places)

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of the current turn. Raises `BadSetting` if the observation mode is not `text`."""
        prompt = super().prompt(policy_input)
        return self._first.fill(self._now(policy_input)) if len(prompt) > LONGEST else prompt

    def _now(self, policy_input: PromptContext) -> dict[str, Any]:
        task = _task(policy_input)
        # The search page also has its button.
        searches = [f"search[{QUERY}]", "click[search]"] if policy_input.info["page"] == Page.INDEX.value else []
        actions = [*searches, *policy_input.info["admissible_actions"]]
        return {
            "task_description": task,
            "current_observation": self._observed(policy_input.observation, policy_input),
            "available_actions": "\n".join(f"'{action}'," for action in actions),
        }

    def _observed(self, observation: str, policy_input: PromptContext) -> str:
        parts, task = observation.split(SEPARATOR), _task(policy_input)
        if task not in parts:
            return observation
        return SEPARATOR.join(f"'{part}'" for part in parts[parts.index(task) + 1 :])


def _task(policy_input: PromptContext) -> str:
    """Return the instruction on the first page."""
    parts = policy_input.episode.observation.split(SEPARATOR)
    if len(parts) < 3:
        raise BadSetting("this prompt reads the pages of observation_mode='text': make the environment with that")
    return parts[2]


PUBLISHED: Published = {VERL_AGENT: WebShopPrompt}
"""The published prompts for WebShop by name."""
