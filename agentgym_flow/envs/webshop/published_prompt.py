"""WebShop as verl-agent, GiGPO and RewardFlow show it to a language model; see `agentgym_flow.envs.verl_agent`."""

from __future__ import annotations

from typing import Any

from agentgym_flow.envs.verl_agent import NAME, TaggedPrompt
from agentgym_flow.envs.webshop.game import Page
from agentgym_flow.envs.webshop.observe import SEPARATOR
from agentgym_flow.envs.webshop.prompt import LONGEST, QUERY
from agentgym_flow.errors import BadSetting
from agentgym_flow.prompt_files import PromptFile
from agentgym_flow.prompts import PromptContext, Published


class WebShopPrompt(TaggedPrompt):
    """The prompt with the page's texts in quotation marks, without the instruction; a search only on the search page.

    One longer than `LONGEST` is written as that of a first step.

    Args:
        file: has `WEBSHOP_TEMPLATE_NO_HIS` and `WEBSHOP_TEMPLATE`.

    Raises:
        BadPromptFile: it lacks one of them.
    """

    rest = 20

    def __init__(self, file: PromptFile) -> None:
        places = ("task_description", "current_observation", "available_actions")
        super().__init__(file, "WEBSHOP_TEMPLATE_NO_HIS", "WEBSHOP_TEMPLATE", places=places)

    def prompt(self, view: PromptContext) -> str:
        """Return the prompt of this turn as one text. Raises `BadSetting` in another observation mode than `text`."""
        prompt = super().prompt(view)
        return self._first.fill(self._now(view)) if len(prompt) > LONGEST else prompt

    def _now(self, view: PromptContext) -> dict[str, Any]:
        return {
            "task_description": _task(view),
            "current_observation": self._observed(view.observation, view),
            "available_actions": "\n".join(f"'{action}'," for action in _actions(view)),
        }

    def _observed(self, observation: str, view: PromptContext) -> str:
        parts, task = observation.split(SEPARATOR), _task(view)
        if task not in parts:
            return observation
        return SEPARATOR.join(f"'{part}'" for part in parts[parts.index(task) + 1 :])


def _task(view: PromptContext) -> str:
    """Return the instruction as the first page shows it."""
    parts = view.episode.observation.split(SEPARATOR)
    if len(parts) < 3:
        raise BadSetting("this prompt reads the pages of observation_mode='text': make the environment with that")
    return parts[2]


def _actions(view: PromptContext) -> list[str]:
    """Return what can be done here; the button of the search page is one of its clicks."""
    searches = [f"search[{QUERY}]", "click[search]"] if view.info["page"] == Page.INDEX.value else []
    return [*searches, *view.info["admissible_actions"]]


PUBLISHED: Published = {NAME: WebShopPrompt}
"""The published prompts for WebShop by name."""
