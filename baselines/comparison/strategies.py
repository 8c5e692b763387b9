"""Fixed strategies: the same actions in every episode, whatever is observed; the best one is selected on validation.

A policy that is not better has not learned to use the task. The strategies are listed in `baselines/configs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadData
from agentgym_flow.play import Play, play_split
from agentgym_flow.policies import PolicyInput, PolicyOutput

ALL_TYPES = ""
"""Stands for all task types if one strategy is played in all of them."""


@dataclass(frozen=True)
class Strategies:
    """The fixed strategies of an environment.

    Attributes:
        actions: the actions, turn by turn, with `{strategy}` in place of a strategy's text.
        texts: the strategies as in the file.
        parts: replacements of `{NAME}` in texts, by name.
    """

    actions: Sequence[str]
    texts: Sequence[str]
    parts: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Strategies:
        """Read a file. Raises `BadData` if it cannot be read, lacks something, or a text has an unknown part."""
        try:
            read = yaml.safe_load(path.read_text("utf-8"))
            found = cls(list(read["actions"]), list(read["strategies"]), dict(read.get("parts") or {}))
            for text in found.texts:
                found.whole(text)
        except (OSError, yaml.YAMLError, TypeError, LookupError, ValueError, AttributeError) as error:
            raise BadData(f"{path} must have the lists actions and strategies ({error!r})") from error
        if not (found.actions and found.texts):
            raise BadData(f"{path} has no strategy: name at least one, and the actions that play it")
        return found

    def whole(self, text: str) -> str:
        """Return a strategy with its parts inserted."""
        return text.format(**self.parts)

    def actions_of(self, text: str) -> list[str]:
        """Return the actions that play a strategy."""
        return [action.replace("{strategy}", self.whole(text)) for action in self.actions]


class FixedPolicy:
    """Plays the strategy of the task's type, action by action, and repeats the last action at the end.

    Args:
        strategies: the list.
        chosen: task type -> text; `ALL_TYPES` for all other types.
    """

    name = "fixed"

    def __init__(self, strategies: Strategies, chosen: Mapping[str, str]) -> None:
        self._actions = {of_type: strategies.actions_of(text) for of_type, text in chosen.items()}

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the next action of each episode."""
        return [PolicyOutput(self._action(policy_input)) for policy_input in inputs]

    def _action(self, policy_input: PolicyInput) -> str:
        actions = self._actions.get(policy_input.episode.task_type) or self._actions[ALL_TYPES]
        return actions[min(len(policy_input.episode.turns), len(actions) - 1)]


def choose(strategies: Strategies, env_id: str, *, by_type: bool, **play: Any) -> dict[str, str]:
    """Return the strategy with the most successes on validation tasks: over all types, and optionally of each type.

    The first of equal strategies wins.

    Args:
        strategies: the list.
        env_id: the environment.
        by_type: also select one for each task type.
        play: further fields of `Play`: `env_kwargs` and `num_episodes`.

    Raises `BadData` if the environment never accepts the actions of a strategy.
    """
    successes: dict[str, dict[str, int]] = defaultdict(dict)  # task type -> text -> successes
    for text in strategies.texts:
        episodes = play_split(Play(FixedPolicy(strategies, {ALL_TYPES: text}), env_id, split="valid", **play))
        if not any(_accepted(episode) for episode in episodes):
            said = episodes[0].turns[0].next_observation
            raise BadData(f"{env_id} does not accept the fixed strategy {text!r}: {said:.200}")
        for of_type in (ALL_TYPES, *(sorted({e.task_type for e in episodes}) if by_type else ())):
            successes[of_type][text] = sum(e.success for e in episodes if of_type in (ALL_TYPES, e.task_type))
    return {of_type: max(found, key=found.__getitem__) for of_type, found in successes.items()}


def _accepted(episode: Episode) -> bool:
    return all(turn.action_valid for turn in episode.turns)
