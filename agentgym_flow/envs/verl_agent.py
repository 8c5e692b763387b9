"""The shared parts of the prompts and parsers of verl-agent, GiGPO and RewardFlow.

The wording comes from the files in `agent_system/environments/prompts/` of these projects, which the user provides
(`agentgym_flow.prompts.files`). This module implements what their environment managers add: the window of past steps,
the counters, and the parser of actions.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from agentgym_flow.episodes import Turn
from agentgym_flow.prompts import CLOSE, OPEN, Message, PromptContext, PromptFile

NAME = "verl_agent"
"""The name of these prompt templates."""

HISTORY = 2
"""The number of past steps in a prompt, as in the published runs; Search shows more."""

PAST = ("step_count", "history_length", "action_history", "current_step")
"""The placeholders of a template for past steps."""

_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def is_tagged(completion: str) -> bool:
    """Return whether a completion has both tags of an action, in upper or lower case and in any order."""
    said = completion.lower()
    return OPEN in said and CLOSE in said


def tagged(completion: str, rest: int) -> str:
    """Return the action of a completion in lower case: the text between its first `<action>` and first `</action>`.

    Without both tags, the action is the last `rest` characters.
    """
    said = completion.lower()
    if not is_tagged(completion):
        return said[len(said) - rest :] if rest < len(said) else said
    return said[said.find(OPEN) + len(OPEN) : said.find(CLOSE)].strip()


def has_thought(completion: str) -> bool:
    """Return whether a completion has both tags of a thought, in lower case and in any order."""
    return "<think>" in completion and "</think>" in completion


def has_chinese(completion: str) -> bool:
    """Return whether a completion has a Chinese character."""
    return _CHINESE.search(completion) is not None


class VerlAgentTemplate(ABC):
    """A prompt for every step as one user message, with one template for the first step and one for later steps.

    Args:
        file: the file with both templates.
        first: the name of the template for the first step.
        later: the name of the template for later steps.
        places: the placeholders of the first template.
        more: the additional placeholders of the second template.
        history: the number of past steps in a prompt.

    Raises:
        BadPromptFile: the file lacks a template.
    """

    def __init__(
        self,
        file: PromptFile,
        first: str,
        later: str,
        *,
        places: Sequence[str],
        more: Sequence[str] = PAST,
        history: int = HISTORY,
    ) -> None:
        self._first = file.template(first, *places)
        self._later = file.template(later, *places, *more)
        self._history = history
        self.name = file.named(NAME)

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as a text."""
        now = self._now(policy_input)
        return self._later.fill(now | self._past(policy_input)) if policy_input.episode.turns else self._first.fill(now)

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as a chat with one user message, which repeats the whole context every turn."""
        return [{"role": "user", "content": self.prompt(policy_input)}]

    @abstractmethod
    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the action that the published parser passes to the environment, even if it is not well-formed."""

    @abstractmethod
    def well_formed(self, completion: str) -> bool:
        """Return whether the published parser accepts a completion; the published code penalises others as invalid."""

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return `action` in tags after an empty thought; None if it would be parsed differently."""
        completion = f"<think></think>{OPEN}{action}{CLOSE}"
        return completion if self.parse_action(completion, policy_input) == action else None

    @abstractmethod
    def _now(self, policy_input: PromptContext) -> dict[str, Any]:
        """Return the values of placeholders for the present step."""

    def _past(self, policy_input: PromptContext) -> dict[str, Any]:
        """Return the values of placeholders for past steps: one line each, numbered from the start of the episode."""
        turns = policy_input.episode.turns
        before = max(0, len(turns) - self._history)
        lines = [
            f"[Observation {number}: '{self._observed(turn.observation, policy_input)}', "
            f"Action {number}: '{self._did(turn)}']"
            for number, turn in enumerate(turns[before:], before + 1)
        ]
        return dict(zip(PAST, (len(turns), len(lines), "\n".join(lines), len(turns) + 1), strict=True))

    def _observed(self, observation: str, policy_input: PromptContext) -> str:
        """Return a past observation as the prompt shows it."""
        return observation

    def _did(self, turn: Turn) -> str:
        """Return a past action as the prompt shows it."""
        return turn.action


class TaggedPrompt(VerlAgentTemplate):
    """A prompt that asks for actions between tags."""

    rest: ClassVar[int]
    """The number of characters at the end of a completion without tags that are its action."""

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the text between the tags, or the last `rest` characters, in lower case."""
        return tagged(completion, self.rest)

    def well_formed(self, completion: str) -> bool:
        """Return whether a completion has a thought, an action and no Chinese character."""
        return is_tagged(completion) and has_thought(completion) and not has_chinese(completion)
