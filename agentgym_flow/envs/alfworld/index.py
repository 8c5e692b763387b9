"""ALFWorld for numeric agents: the same texts, with commands chosen by number."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from agentgym_flow.core import PlainSpec, check_info_keys
from agentgym_flow.data import DataSet
from agentgym_flow.envs.alfworld.env import DEFAULT_MAX_STEPS, INFO, ALFWorldEnv, usual
from agentgym_flow.errors import BadAction

Masks = npt.NDArray[np.int8]

NUM_ACTIONS = 128
"""The number of actions. No official game offers more than 71 commands at once."""

MASK_OF_COUNT: Masks = np.tri(NUM_ACTIONS + 1, NUM_ACTIONS, -1, np.int8)
"""Row n marks the first n commands."""

NO_COMMAND = ""
"""The text for numbers beyond the list: no game understands it."""


class ALFWorldIndexEnv(PlainSpec, gym.Env[str, int]):
    """ALFWorld for numeric agents: `agentgym_flow/ALFWorld-v0` with commands chosen by their index.

    ## Description
    The games, seeds, texts and rules are those of the text environment: a seed or an option selects the same game in
    both, and the same commands give the same texts, rewards and keys. An action is the index of a command in
    `info["admissible_actions"]`. This list is sorted and changes with every step, so the same index can mean another
    command in the next step. `gym.make_vec` creates a batch of games that step together
    (`agentgym_flow.envs.alfworld.vector`).

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> env = gym.make("agentgym_flow/ALFWorldIndex-v0")
    >>> observation, info = env.reset(seed=0)
    >>> commands = info["admissible_actions"]
    >>> int(info["action_mask"].sum()) == len(commands)
    True
    >>> observation, reward, terminated, truncated, info = env.step(commands.index("inventory"))
    >>> observation
    'You are not carrying anything.'

    ```

    ## Action Space
    `Discrete(128)`: 0 is the first command of `info["admissible_actions"]`. An index beyond the list is invalid: the
    observation is `Nothing happens.`, the action uses up a step and leaves the world unchanged, and
    `info["action_valid"]` is False. A value outside the space or that is not an integer raises `BadAction`.

    Official games offer at most 71 commands at once. If a game offers more than 128, commands after the first 128 have
    no index and cannot be chosen here. The text environment accepts all of them.

    ## Observation Space
    `UnicodeText`: what the game prints, as in the text environment.

    ## Starting State
    The seed draws a game from the split, unless `reset(options=...)` selects one by `"task"`, `"game_file"` or
    `"task_type"`, as in the text environment.

    ## Rewards
    1 for the step that fulfils the task, 0 for every other step.

    ## Episode End
    - Termination: the task is fulfilled.
    - Truncation: after `max_steps` steps without termination. The two are never true together.

    Calling `step` after the end raises `ResetNeeded`.

    ## Information
    The keys of `agentgym_flow/ALFWorld-v0`, and:

    | key | meaning |
    |---|---|
    | `action_mask` (int8[128]) | 1 for each index that is a command now |

    ## Arguments
    Those of `agentgym_flow/ALFWorld-v0`, and:

    | argument | default | meaning |
    |---|---|---|
    | `info_keys` | `None` | the keys of `info` to return; None for all but `official_key` |

    `aliases` adds no actions, because an index always selects a listed command. With equal arguments, including
    `aliases`, both environments have equal task keys.

    ## References
    - M. Shridhar et al., *ALFWorld: Aligning Text and Embodied Environments for Interactive Learning*, ICLR 2021.

    ## Version History
    - v0: first version.

    Raises:
        BadSetting, UnknownSplit, UnknownData, BadData, BadGame, MissingExtra: as in the text environment.
        UnknownOption: `engine` or a key in `info_keys` is unknown.
    """

    metadata: dict[str, Any] = ALFWorldEnv.metadata

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | DataSet | None = None,
        engine: str = "fast",
        aliases: bool | None = None,
        split: str = "train",
        season: str = "",
        task_types: Sequence[str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        info_keys: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._text = ALFWorldEnv(
            data=data,
            engine=engine,
            aliases=aliases,
            split=split,
            season=season,
            task_types=task_types,
            max_steps=max_steps,
            render_mode=render_mode,
        )
        self._info_keys = check_info_keys(usual(INDEX_INFO) if info_keys is None else info_keys, INDEX_INFO)
        self.render_mode = render_mode
        self.observation_space = self._text.observation_space
        self.action_space: spaces.Space[Any] = spaces.Discrete(NUM_ACTIONS)

    @property
    def text(self) -> ALFWorldEnv:
        """The text environment that plays the game, to read only. Change it with `step`."""
        return self._text

    @property
    def num_tasks(self) -> int:
        """The number of games in this split."""
        return self._text.num_tasks

    @property
    def max_steps(self) -> int:
        """The step budget."""
        return self._text.max_steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode, as in the text environment; return the first text and `info`.

        Raises:
            UnknownOption: a key of `options` other than `"task"`, `"game_file"` and `"task_type"`, or an unknown type.
            UnknownTask: the game does not exist.
        """
        super().reset(seed=seed)
        self._text.np_random = self.np_random  # one generator for both
        return self._text.begin(seed, options), self._info()

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply the command with this index; return the text, reward, terminated, truncated and `info`.

        Raises:
            BadAction: the action is not an integer from 0 to 127.
            ResetNeeded: the environment has not been reset, or the episode has ended.
        """
        try:
            index = operator.index(action)
        except TypeError:  # a float, a word, an array
            index = -1
        if not 0 <= index < NUM_ACTIONS:
            raise BadAction(f"action {action!r:.60} does not exist; 0 to {NUM_ACTIONS - 1} number the commands")
        (observation, reward, terminated, _), truncated = self._text.advance(command_at(self._text, index))
        return observation, reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        return {key: INDEX_INFO[key](self._text) for key in self._info_keys}

    def render(self) -> Any:
        """Return the full state as readable text (`"ansi"`), as in the text environment."""
        return self._text.render()


def command_at(env: ALFWorldEnv, index: int) -> str:
    """Return the command with this index; `NO_COMMAND` if it is beyond the list or no episode is running."""
    commands = env.admissible_actions() if env.playing else []
    return commands[index] if index < len(commands) else NO_COMMAND


def numbered(env: ALFWorldEnv) -> int:
    """Return how many of the commands possible now have an index."""
    return min(len(env.admissible_actions()), NUM_ACTIONS)


def action_mask(env: ALFWorldEnv) -> Masks:
    """Return a new `int8[128]` array: 1 for each index that is a command now."""
    mask: Masks = MASK_OF_COUNT[numbered(env)]
    return mask.copy()


INDEX_INFO: Mapping[str, Callable[[ALFWorldEnv], Any]] = {**INFO, "action_mask": action_mask}
"""Every key of `info` of the numeric environments, with the function that reads it."""
