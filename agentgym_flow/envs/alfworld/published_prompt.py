"""Published prompts for ALFWorld: those of verl-agent (also used by GiGPO and RewardFlow) and of ReAct.

The prompt of ReAct (Yao et al., 2023) is one text: two solved examples, the task, and then alternately a line of the
policy and the observation. A line that begins with `think:` is an invalid action, and the prompt shows `OK.` instead of
the observation. So a thought uses up a step, as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym_flow.envs.alfworld.rooms import LIGHT, TWO
from agentgym_flow.episodes import Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.prompts import Message, PromptContext, PromptFile, Published
from agentgym_flow.prompts.files import PAST, VERL_AGENT, TaggedPrompt

TASK = "Your task is to: "
"""The text before the task in the first observation."""

EXAMPLES: Mapping[str, str] = {
    "pick_and_place_simple": "put",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    LIGHT: "examine",
    TWO: "puttwo",
}
"""Task type -> its word in the names of ReAct's examples."""

THOUGHT, ACKNOWLEDGED = "think:", "OK."
_PLACE = "You arrive at loc "


class ALFWorldPrompt(TaggedPrompt):
    """verl-agent's prompt: the observation, and the possible commands in quotation marks, without `help`.

    Args:
        file: the file with `ALFWORLD_TEMPLATE_NO_HIS` and `ALFWORLD_TEMPLATE`.

    Raises:
        BadPromptFile: the file lacks a template.
    """

    rest = 30

    def __init__(self, file: PromptFile) -> None:
        places, more = ("current_observation", "admissible_actions"), ("task_description", *PAST)
        super().__init__(file, "ALFWORLD_TEMPLATE_NO_HIS", "ALFWORLD_TEMPLATE", places=places, more=more)

    def _now(self, policy_input: PromptContext) -> dict[str, Any]:
        commands = (f"'{command}'" for command in policy_input.info["admissible_actions"] if command != "help")
        return {
            "task_description": policy_input.episode.observation.partition(TASK)[2].strip(),
            "current_observation": policy_input.observation,
            "admissible_actions": "\n ".join(commands),
        }


class ReActPrompt:
    """ReAct's prompt: two solved examples of the task type, and the episode as one text.

    Args:
        file: the file with the examples, `react_put_0` and so on. If it also has the authors' notebook, the text before
            and after the examples comes from there, otherwise from this class.

    Raises:
        BadPromptFile: the file lacks an example.
    """

    stops = ("\n",)

    def __init__(self, file: PromptFile) -> None:
        self._examples = {
            task_type: file.text(f"react_{word}_1") + file.text(f"react_{word}_0")
            for task_type, word in EXAMPLES.items()
        }
        before, after = "Two solved household tasks, and then one to solve.\n", "\nThe task to solve:\n"
        if "prompt" in file:
            # the text before and after the examples in the authors' notebook
            before, *between, after = file.template("prompt", "...").texts
            after = "".join([*between, after])
        self._before, self._after = before, after
        self.name = file.named("react")

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the episode so far as one text. Raises `BadSetting` if there are no examples for the task type."""
        examples = self._examples.get(policy_input.info["task_type"])
        if examples is None:
            raise BadSetting(
                f"this prompt has no examples of tasks of type {policy_input.info['task_type']!r}: leave them out"
            )
        room = "\n".join(policy_input.episode.observation.split("\n\n")[1:])
        text = f"{self._before}{examples}{self._after}{room}\n>"
        return text + "".join(f" {turn.action}\n{told}\n>" for turn, told in _results(policy_input))

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as one user message."""
        return [{"role": "user", "content": self.prompt(policy_input)}]

    def follow_up(self, policy_input: PromptContext) -> str:
        """Return the result of the last line, and the mark at which the next line begins."""
        [*_, (turn, told)] = _results(policy_input)
        said = turn.output.text
        return f"{told}\n>" if said.endswith("\n") else f"\n{told}\n>"

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the first line, stripped."""
        return completion.partition("\n")[0].strip()

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return `action` as the rest of a line; None if it would be parsed differently."""
        completion = f" {action}\n"
        return completion if self.parse_action(completion, policy_input) == action else None


def _results(policy_input: PromptContext) -> list[tuple[Turn, str]]:
    """Return the turns, each with its result in the prompt."""
    turns = policy_input.episode.turns
    return [
        (turn, ACKNOWLEDGED if turn.action.startswith(THOUGHT) else _shown(turn.next_observation)) for turn in turns
    ]


def _shown(observation: str) -> str:
    # Old games print the number of the location, which ReAct's prompt omits.
    return observation[observation.find(". ") + 2 :] if observation.startswith(_PLACE) else observation


PUBLISHED: Published = {VERL_AGENT: ALFWorldPrompt, "react": ReActPrompt}
"""The published prompts for ALFWorld by name."""
