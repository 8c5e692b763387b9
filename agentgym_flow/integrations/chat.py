"""A text environment as a chat: the environment writes the user's messages, and a policy elsewhere answers.

Trainers of language models treat an episode as one conversation. A prompt template defines the first message (rules,
goal, observation, how to answer), every later message, and the action in an answer.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, EpisodeRecorder, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption, shown
from agentgym_flow.policies.base import PolicyInput
from agentgym_flow.prompts import ConversationTemplate, Message, template_for

REWARDS = ("success", "return")
"""Rewards: success, or the sum of native rewards."""

BITS = 16
"""Significant bits of `rounded_return`: float32 has 24, so sum and mean of up to 256 equal numbers are exact."""


class ChatEnv:
    """One environment that is played with text answers.

    Args:
        env_id: the id of a text environment.
        template: the name of a prompt template with a `follow_up` message, see `agentgym_flow.template_for`.
        settings: keyword arguments of the environment.

    Raises:
        UnknownEnvironment: there is no text environment with this id.
        UnknownTemplate: the environment has no such prompt template.
        UnknownOption: the environment does not have one of the settings.
        BadSetting: the prompt template has no `follow_up` message.
    """

    def __init__(self, env_id: str, template: str = "text", **settings: Any) -> None:
        self.env = make_text_env(env_id, **settings)
        chosen = template_for(env_id, template)
        if not isinstance(chosen, ConversationTemplate):
            raise BadSetting(f"template {template!r} of {env_id} has no follow_up message: use template text or choice")
        self.template = chosen
        self._recorder = EpisodeRecorder(self.env)
        self._policy_input: PolicyInput | None = None

    def reset(self, *, seed: int = 0, task: int | None = None, attempt: int = 0) -> list[Message]:
        """Start an episode and return its first messages, the last of which is the user's.

        Args:
            seed: determines the noise, and the task if none is given. Equal seeds and tasks start equal episodes.
            task: the index of the task in the split.
            attempt: distinguishes attempts with the same task and seed.

        Raises `UnknownTask` if there is no such task.
        """
        self._recorder.reset(seed=seed, task=task, attempt=attempt)
        self._policy_input = PolicyInput.of(self._recorder)
        return self.template.messages(self._policy_input)

    def step(self, answer: str) -> Turn:
        """Play the action in `answer` and return the turn. Raises `ResetNeeded` if no episode is running."""
        policy_input = self._playing()
        action = self.template.parse_action(answer, policy_input)
        turn = self._recorder.step(PolicyOutput(action, completion=None if answer == action else answer))
        policy_input.observation, policy_input.info = self._recorder.observation, self._recorder.info
        return turn

    def message(self) -> str:
        """Return the user's message after the last turn. Raises `ResetNeeded` before the first turn."""
        policy_input = self._playing()
        if not policy_input.episode.turns:
            raise ResetNeeded("the first messages of an episode are returned by reset()")
        return self.template.follow_up(policy_input)

    def format_action(self, action: str) -> str | None:
        """Return the answer that asks for `action`, for scripted policies and demonstrations; None if there is none."""
        return self.template.format_action(action, self._playing())

    @property
    def done(self) -> bool:
        """Whether the episode has ended, by the rules or the step limit; True before the first reset."""
        return not self.env.playing

    @property
    def episode(self) -> Episode:
        """The episode so far. Raises `ResetNeeded` before the first reset."""
        return self._playing().episode

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _playing(self) -> PolicyInput:
        if self._policy_input is None:
            raise ResetNeeded("call reset() before the first step()")
        return self._policy_input


def named_start(row: Mapping[str, Any], what: str) -> tuple[int, int | None]:
    """Return the seed and the task that a row of a data set names. The seed is 0 if it names only a task.

    Args:
        row: the columns; None and NaN stand for no value.
        what: the row's name in messages.

    Raises:
        BadSetting: the row names neither, so all such rows would start equally, or a value is not a whole number.
        UnknownOption: the row names no task, but has a column with almost this name.
    """
    named: dict[str, int] = {}
    for name in ("task", "seed"):
        value = row.get(name)
        if value is None or value != value:
            continue
        try:
            named[name] = int(value)
        except (OverflowError, TypeError, ValueError):
            raise BadSetting(f"{name} must be a whole number, got {shown(value)}") from None
        if isinstance(value, float) and not value.is_integer():
            raise BadSetting(f"{name} must be a whole number, got {value}")
    if "task" not in named:
        for column in row:
            # Like "Task" or "task_id", but not "mask".
            near = difflib.get_close_matches(column.lower(), ("task", "task_id"), 1, 0.8)
            if near and column not in ("task", "seed"):
                raise UnknownOption.among(column, ("task", "seed"), f"They select the task of {what}.")
    if not named:
        raise BadSetting(f"{what} has neither a task nor a seed; it has {', '.join(row) or 'nothing'}")
    return named.get("seed", 0), named.get("task")


def rounded_return(value: float) -> float:
    """Return a sum of rewards with `BITS` significant bits.

    TRL computes the mean of a group in float32. If it is not exact, episodes with equal returns get advantages: those
    of eight returns of 10.9 are -0.009.
    """
    if not math.isfinite(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, BITS)), exponent - BITS)


def results(episode: Episode) -> dict[str, float]:
    """Return the metrics of an episode: `success`, `score`, `return`, `turns`, and the fraction `valid_actions`."""
    valid = sum(turn.action_valid for turn in episode.turns)
    return {
        "success": float(episode.success),
        "score": episode.score,
        "return": episode.total_reward,
        "turns": float(len(episode.turns)),
        "valid_actions": valid / max(1, len(episode.turns)),
    }
