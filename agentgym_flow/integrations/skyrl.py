"""SkyRL-Gym: any text environment as a `BaseTextEnv`, for SkyRL's generator and `skyrl_gym.make`.

Importing this module registers the environment class under the name `agentgym_flow`. The configuration
(`environment.skyrl_gym.agentgym_flow`) selects the environment, the row of the data set the task:

    env = skyrl_gym.make("agentgym_flow", env_config={"env_id": "agentgym_flow/Sokoban-v0"}, extras={"task": 7})
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from agentgym_flow.errors import BadSetting, MissingExtra, UnknownOption
from agentgym_flow.integrations.chat import REWARDS, ChatEnv, named_start, results

if find_spec("skyrl_gym") is None:
    raise MissingExtra.of("skyrl-gym", "skyrl")

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

NAME = "agentgym_flow"
"""The name in SkyRL's registry, which is also the `env_class` of a row."""


class SkyRLEnv(BaseTextEnv):  # type: ignore[misc]  # the package has no types
    """One episode of a text environment.

    Args:
        env_config: `env_id`; optionally `template` (the prompt template, default `"text"`), `reward` (`"success"`, the
            default: 1 for the last turn of a successful episode; `"return"`: every turn's native reward), and
            `settings`, the keyword arguments of the environment.
        extras: the row of the data set. `task` is the index of the task. `seed` determines the noise, and the task if
            none is given; a row must have one of them. The rows of a group are equal, so their episodes start equally.
            `max_turns`, which SkyRL's generator adds, is the step limit unless `settings` have one.

    Raises:
        BadSetting: `env_id` is missing, a setting of the environment is invalid, or the row names no task and no seed.
        UnknownOption: `env_config` has another key, `reward` is unknown, or the row misspells `task`.
        UnknownEnvironment: there is no text environment with this id.
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        config, row = dict(env_config), dict(extras or {})
        for key in config:
            if key not in ("env_id", "template", "reward", "settings"):
                raise UnknownOption.among(key, ("env_id", "template", "reward", "settings"), "In env_config.")
        if "env_id" not in config:
            raise BadSetting("env_config needs an env_id, such as agentgym_flow/Sokoban-v0")
        self._reward = config.get("reward", "success")
        if self._reward not in REWARDS:
            raise UnknownOption.among(self._reward, REWARDS)
        self._seed, self._task = named_start(row, "a row")
        settings = dict(config.get("settings", {}))
        if "max_turns" in row:
            settings.setdefault("max_steps", row["max_turns"])
        self._chat = ChatEnv(config["env_id"], config.get("template", "text"), **settings)
        self.max_turns = self._chat.env.max_steps

    def init(self, prompt: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Start the episode; return system messages of `prompt` and its first messages, and its keys."""
        system = [message for message in prompt if message["role"] == "system"]
        messages = self._chat.reset(seed=self._seed, task=self._task)
        episode = self._chat.episode
        self.turns = 0
        return [*system, *(dict(message) for message in messages)], {
            "task_key": episode.task_key,
            "state_key": episode.state_key,
        }

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play the action in a completion; return the next message, the reward and whether the episode has ended.

        The metadata have the data for `agentgym_flow.rewards.token_advantages`: the states before and after the turn,
        and its native reward.
        """
        turn = self._chat.step(action)
        self.turns += 1
        done = self._chat.done
        success = float(done and turn.success)
        return BaseTextEnvStepOutput(
            observations=[] if done else [{"role": "user", "content": self._chat.message()}],
            reward=success if self._reward == "success" else turn.reward,
            done=done,
            metadata={
                "state_key": turn.state_key,
                "next_state_key": turn.next_state_key,
                "native_reward": turn.reward,
                "action_valid": turn.action_valid,
                "success": turn.success,
            },
        )

    def get_metrics(self) -> dict[str, float]:
        """Return the results of the episode; SkyRL averages them over a batch."""
        return results(self._chat.episode)

    def close(self) -> None:
        """Close the environment."""
        self._chat.close()


if NAME not in skyrl_gym.registry:
    skyrl_gym.register(id=NAME, entry_point=f"{__name__}:{SkyRLEnv.__name__}")
