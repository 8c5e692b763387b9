"""TRL: any text environment as the `environment_factory` of a stock `GRPOTrainer`, with one tool, `step`.

::

    trainer = GRPOTrainer(
        model, args=args, train_dataset=rows, environment_factory=environment_factory("agentgym_flow/Sokoban-v0")
    )

A row of the data set names its task: `{"prompt": [{"role": "user", "content": ""}], "task": 7}`, or a `seed` that
selects one; a row that names neither is refused. TRL resets all environments of a group with the same row, so their
episodes start equally. For models that answer in text instead of calling tools, see
`agentgym_flow.integrations.trl_text`.

If the environment raises, the episode is lost: the tool answers that it is over, and its reward is None, so TRL leaves
it out of its group. Add `lost_episodes` to `reward_funcs` to log how many.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, EpisodeRecorder
from agentgym_flow.errors import ResetNeeded, UnknownOption
from agentgym_flow.integrations.chat import REWARDS, named_start, rounded_return
from agentgym_flow.prompts import templates_of

EXAMPLES = 8
"""The number of example actions to show if actions are templates."""

OVER = "The episode is over. Do not call step again."
"""The tool's answer after the end. TRL continues until the model stops calling it."""

_log = logging.getLogger(__name__)
_MARKUP, _SHOWN = re.compile(r"<(?=[|/A-Za-z])"), "\u2039"


class TRLEnvironment:
    """One environment of TRL's pool. TRL calls its public methods `reset`, `get_reward`, and the tool `step`.

    Args:
        env_id: the id of a text environment.
        reward: `"success"` (1 or 0) or `"return"` (the sum of native rewards, see
            `agentgym_flow.integrations.chat.rounded_return`).
        settings: keyword arguments of the environment.

    Raises:
        UnknownEnvironment: there is no text environment with this id.
        UnknownOption: `reward` is unknown, or the environment does not have one of the settings.
    """

    def __init__(self, env_id: str, reward: str, settings: Mapping[str, Any]) -> None:
        if reward not in REWARDS:
            raise UnknownOption.among(reward, REWARDS)
        self._make_env = partial(make_text_env, env_id, **settings)
        self._recorder = EpisodeRecorder(self._make_env())
        self._rules = str(getattr(templates_of(env_id)["choice"], "rules", ""))  # describe plain commands, without tags
        self._reward = reward
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether the environment raised in this episode, which then says nothing about the model."""
        return self._lost

    @property
    def episode(self) -> Episode:
        """The episode so far, for custom reward functions. Raises `ResetNeeded` before the first reset."""
        if self._recorder.episode is None:
            raise ResetNeeded("call reset() before reading the episode")
        return self._recorder.episode

    def reset(self, **row: Any) -> str:
        """Start the episode of a data set row; return the text that TRL appends to the user's message.

        The row has a `task`, a `seed` or both; other columns are ignored. Raises `UnknownTask` if there is no such
        task, and what `agentgym_flow.integrations.chat.named_start` raises.
        """
        seed, task = named_start(row, "a row (Dataset.from_list keeps only the columns of the first one)")
        if self._lost:  # the state of the environment is unknown
            self._recorder, self._lost = EpisodeRecorder(self._make_env()), False
        episode = self._recorder.reset(seed=seed, task=task)
        how = "Act by calling step, once per turn, with exactly one action."
        return "\n\n".join([self._rules, f"Your task: {_plain(episode.goal)}", self._shown(), how])

    def step(self, action: str) -> str:
        """Take one action in the environment and see what comes of it.

        Args:
            action: The action, as a plain command of the environment without any tags.

        Returns:
            The new observation and the actions that can be taken next.
        """
        if self._lost or not self._recorder.env.playing:
            return OVER
        try:
            turn = self._recorder.step(action.replace(_SHOWN, "<") if isinstance(action, str) else "")
        except Exception as error:  # TRL would show it to the model
            self._lost = True
            _log.warning("task %d is lost: %s: %s", self.episode.task, type(error).__name__, error)
            return OVER
        refused = [] if turn.action_valid else ["Your last action was not accepted."]
        over = not self._recorder.env.playing
        return "\n\n".join([*refused, self._shown(), *([OVER] if over else [])])

    def get_reward(self) -> float | None:
        """Return the reward of the episode so far, None if it is lost; an unfinished episode is not successful."""
        if self._lost:
            return None
        return float(self.episode.success) if self._reward == "success" else rounded_return(self.episode.total_reward)

    def _shown(self) -> str:
        """Return the observation and the available actions."""
        info = self._recorder.info
        offered = {"Actions you can take now": "admissible_actions", "Actions to fill in": "action_templates"}
        lines = [f"{words}: {', '.join(info[key])}" for words, key in offered.items() if info[key]]
        if info["action_templates"]:
            proposed = [one for one in self._recorder.env.candidates() if one not in info["admissible_actions"]]
            lines += [f"For example: {', '.join(proposed[:EXAMPLES])}"] if proposed else []
        return _plain("\n".join([self._recorder.observation, *lines]))


def lost_episodes(environments: list[TRLEnvironment], log_metric: Any = None, **columns: Any) -> list[None]:
    """Log the fraction of lost episodes as `lost_episodes`, as a reward function of TRL that gives no rewards."""
    if log_metric is not None:
        log_metric("lost_episodes", sum(environment.lost for environment in environments) / len(environments))
    return [None] * len(environments)


def _plain(text: str) -> str:
    """Replace characters that a chat template could read as markup; `step` restores them."""
    return _MARKUP.sub(_SHOWN, text)


def environment_factory(env_id: str, *, reward: str = "success", **settings: Any) -> Callable[[], TRLEnvironment]:
    """Return an environment factory for `GRPOTrainer(environment_factory=...)`; arguments as for `TRLEnvironment`."""
    return partial(TRLEnvironment, env_id, reward, settings)
