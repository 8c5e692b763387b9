"""Fixed strategies: the same actions in every episode, whatever is shown; the best one of a list, chosen on validation.

A policy that does not beat them has not learned to look at the task. The list is a file in `baselines/configs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from agentgym_flow.episode import Episode
from agentgym_flow.errors import BadData
from agentgym_flow.play_split import play_split
from agentgym_flow.policies import PolicyInput, PolicyOutput

ALL_TYPES = ""
"""Stands for all task types where one strategy is played in all of them."""


@dataclass(frozen=True)
class Strategies:
    """The fixed strategies of an environment.

    Attributes:
        actions: what is played, turn by turn, with `{strategy}` in place of a strategy's text.
        texts: the strategies as the file has them.
        parts: what `{NAME}` in a text stands for, by name.
    """

    actions: Sequence[str]
    texts: Sequence[str]
    parts: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Strategies:
        """Read a file. Raises `BadData` when it cannot be read, lacks something, or a text names an unknown part."""
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
        """Return a strategy with its parts in place."""
        return text.format(**self.parts)

    def actions_of(self, text: str) -> list[str]:
        """Return the actions that play a strategy."""
        return [action.replace("{strategy}", self.whole(text)) for action in self.actions]


class FixedPolicy:
    """Plays the strategy of the task's type, action by action; when they are used up, the last one again.

    Args:
        strategies: the list.
        chosen: task type -> text; `ALL_TYPES` for all types that are not named.
    """

    name = "fixed"

    def __init__(self, strategies: Strategies, chosen: Mapping[str, str]) -> None:
        self._actions = {of_type: strategies.actions_of(text) for of_type, text in chosen.items()}

    def act(self, views: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the next action of each episode."""
        return [PolicyOutput(self._action(view)) for view in views]

    def _action(self, view: PolicyInput) -> str:
        actions = self._actions.get(view.episode.task_type) or self._actions[ALL_TYPES]
        return actions[min(len(view.episode.turns), len(actions) - 1)]


def choose(strategies: Strategies, env_id: str, *, by_type: bool, **play: Any) -> dict[str, str]:
    """Return the strategy with the most successes on validation tasks: of all types, or also of each type.

    The first one wins where several are equal.

    Args:
        strategies: the list.
        env_id: the environment.
        by_type: choose one for each task type, too.
        play: further arguments of `play_split`: `env_kwargs` and `num_episodes`.

    Raises `BadData` when the environment never accepts the actions of a strategy.
    """
    successes: dict[str, dict[str, int]] = defaultdict(dict)  # task type -> text -> successes
    for text in strategies.texts:
        episodes = play_split(FixedPolicy(strategies, {ALL_TYPES: text}), env_id, split="valid", **play)
        if not any(_accepted(episode) for episode in episodes):
            said = episodes[0].turns[0].next_observation
            raise BadData(f"{env_id} does not accept the fixed strategy {text!r}: {said:.200}")
        for of_type in (ALL_TYPES, *(sorted({e.task_type for e in episodes}) if by_type else ())):
            successes[of_type][text] = sum(e.success for e in episodes if of_type in (ALL_TYPES, e.task_type))
    return {of_type: max(found, key=found.__getitem__) for of_type, found in successes.items()}


def _accepted(episode: Episode) -> bool:
    return all(turn.action_valid for turn in episode.turns)
