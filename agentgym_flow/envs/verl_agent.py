"""The prompts and parsers of verl-agent, GiGPO and RewardFlow, as far as their environments share them.

The wording comes from the files in `agent_system/environments/prompts/` of these projects, which the user brings
(`agentgym_flow.prompt_files`). What their environment managers put into it is written here: the window of past steps,
the counters, and how an answer becomes an action.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from agentgym_flow.episode import Turn
from agentgym_flow.prompt_files import PromptFile
from agentgym_flow.prompts import CLOSE, OPEN, Message, PromptContext

NAME = "verl_agent"
"""The name under which the profiles are asked for."""

HISTORY = 2
"""How many past steps a prompt shows, as in the published runs; Search shows more."""

PAST = ("step_count", "history_length", "action_history", "current_step")
"""The places of a template for what has happened."""

_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def is_tagged(completion: str) -> bool:
    """Return whether both tags of an action are in a completion, in any case and order."""
    said = completion.lower()
    return OPEN in said and CLOSE in said


def tagged(completion: str, rest: int) -> str:
    """Return the action of a completion: what stands between its first `<action>` and its first `</action>`.

    Without both of them the last `rest` characters are the action. It is in lower case.
    """
    said = completion.lower()
    if not is_tagged(completion):
        return said[len(said) - rest :] if rest < len(said) else said
    return said[said.find(OPEN) + len(OPEN) : said.find(CLOSE)].strip()


def has_thought(completion: str) -> bool:
    """Return whether both tags of a thought are in a completion, in lower case and in any order."""
    return "<think>" in completion and "</think>" in completion


def has_chinese(completion: str) -> bool:
    """Return whether a completion has a Chinese character."""
    return _CHINESE.search(completion) is not None


class VerlAgentTemplate(ABC):
    """A prompt for every step, as one user message: one template for the first step, another for the later ones.

    Args:
        file: has both templates.
        first: the name of that for the first step.
        later: the name of that for later steps.
        places: those of the first template.
        more: those that the second has besides.
        history: how many past steps a prompt shows.

    Raises:
        BadPromptFile: the file lacks one of the templates.
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

    def prompt(self, view: PromptContext) -> str:
        """Return the prompt of this turn as one text."""
        now = self._now(view)
        return self._later.fill(now | self._past(view)) if view.episode.turns else self._first.fill(now)

    def messages(self, view: PromptContext) -> list[Message]:
        """Return the prompt as a chat of one user message: the whole context is restated every turn."""
        return [{"role": "user", "content": self.prompt(view)}]

    @abstractmethod
    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the action that the published parser passes to the environment, well-formed or not."""

    @abstractmethod
    def well_formed(self, completion: str) -> bool:
        """Return whether the published parser calls a completion valid, which is what invalid actions cost there."""

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return `action` in tags after an empty thought; None when it would not be read back so."""
        completion = f"<think></think>{OPEN}{action}{CLOSE}"
        return completion if self.parse_action(completion, view) == action else None

    @abstractmethod
    def _now(self, view: PromptContext) -> dict[str, Any]:
        """Return the values for the present step."""

    def _past(self, view: PromptContext) -> dict[str, Any]:
        """Return the values for what has happened: the last steps, a line each, numbered from the episode's start."""
        turns = view.episode.turns
        before = max(0, len(turns) - self._history)
        lines = [
            f"[Observation {number}: '{self._observed(turn.observation, view)}', Action {number}: '{self._did(turn)}']"
            for number, turn in enumerate(turns[before:], before + 1)
        ]
        return dict(zip(PAST, (len(turns), len(lines), "\n".join(lines), len(turns) + 1), strict=True))

    def _observed(self, observation: str, view: PromptContext) -> str:
        """Return a past observation as the prompt shows it."""
        return observation

    def _did(self, turn: Turn) -> str:
        """Return a past action as the prompt shows it."""
        return turn.action


class TaggedPrompt(VerlAgentTemplate):
    """A prompt whose answers have their action between tags."""

    rest: ClassVar[int]
    """How many characters of an answer without tags are its action: the last ones."""

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return what stands between the tags, or the last `rest` characters, in lower case."""
        return tagged(completion, self.rest)

    def well_formed(self, completion: str) -> bool:
        """Return whether there are a thought and an action, and no Chinese character."""
        return is_tagged(completion) and has_thought(completion) and not has_chinese(completion)
