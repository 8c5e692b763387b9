"""ALFWorld for numeric agents: the same text, answered by the number of a command."""

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
"""How many commands have a number. No official game offers more than 71 at once."""

MASK_OF_COUNT: Masks = np.tri(NUM_ACTIONS + 1, NUM_ACTIONS, -1, np.int8)
"""Row n marks the first n commands."""

NO_COMMAND = ""
"""What a number beyond the list stands for: a text that no game understands."""


class ALFWorldIndexEnv(PlainSpec, gym.Env[str, int]):
    """ALFWorld for agents that choose: the games, seeds, texts and rules of `agentgym_flow/ALFWorld-v0`, numbers out.

    ## Description
    The game is the text environment's: a seed or an option gives the same game there, the commands give the same
    texts, rewards and keys. An action is the place of a command in `info["admissible_actions"]`, which is sorted and
    changes with every step: the same number is another command a step later. `gym.make_vec` gives a batch that steps
    together (`agentgym_flow.envs.alfworld.vector`).

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
    `Discrete(128)`: 0 is the first command of `info["admissible_actions"]`. A number beyond the list leads to
    `Nothing happens.`; the world does not change, the step is counted, and `info["action_valid"]` is False. What is
    outside the space or no integer raises `BadAction`.

    Official games offer at most 71 commands at once. Should a game offer more than 128, those after the first 128 have
    no number and cannot be chosen here; the text environment takes them all.

    ## Observation Space
    `UnicodeText`: what the game prints, as in the text environment.

    ## Starting State
    The game that the seed draws from the split, or the one that `reset(options=...)` names by `"task"`, `"game_file"`
    or `"task_type"`, as in the text environment.

    ## Rewards
    1 with the step that fulfils the task, 0 with every other.

    ## Episode End
    - Termination: the task is fulfilled.
    - Truncation: `max_steps` steps without that. The two never come together.

    A step after the end raises `ResetNeeded`.

    ## Information
    The keys of `agentgym_flow/ALFWorld-v0`, and:

    | key | meaning |
    |---|---|
    | `action_mask` (int8[128]) | 1 for each number that is a command of this moment |

    ## Arguments
    Those of `agentgym_flow/ALFWorld-v0`, and:

    | argument | default | meaning |
    |---|---|---|
    | `info_keys` | `None` | the keys of `info` to deliver; None for all but `compat_key` |

    ## References
    - M. Shridhar et al., *ALFWorld: Aligning Text and Embodied Environments for Interactive Learning*, ICLR 2021.

    ## Version History
    - v0: first version.

    Raises:
        BadSetting, UnknownSplit, UnknownData, BadData, BadGame, MissingExtra: as the text environment.
        UnknownOption: an unknown engine or info key.
    """

    metadata: dict[str, Any] = ALFWorldEnv.metadata

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | DataSet | None = None,
        engine: str = "fast",
        split: str = "train",
        season: str = "",
        task_types: Sequence[str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        info_keys: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._text = ALFWorldEnv(
            data=data, engine=engine, split=split, season=season, max_steps=max_steps, render_mode=render_mode
        )
        self._text.draw_only(task_types)
        self._info_keys = check_info_keys(usual(INDEX_INFO) if info_keys is None else info_keys, INDEX_INFO)
        self.render_mode = render_mode
        self.observation_space = self._text.observation_space
        self.action_space: spaces.Space[Any] = spaces.Discrete(NUM_ACTIONS)

    @property
    def text(self) -> ALFWorldEnv:
        """The text environment that plays the game. For looking at; `step` is the way to change it."""
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
        """Start an episode of the game that the text environment would start; return the first text and `info`.

        Raises:
            UnknownOption: a key of `options` other than `"task"`, `"game_file"` and `"task_type"`, or an unknown type.
            UnknownTask: the game does not exist.
        """
        super().reset(seed=seed)
        self._text.np_random = self.np_random  # one generator for both
        return self._text.begin(seed, options), self._info()

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Give the command with this number; return the text, reward, terminated, truncated and `info`.

        Raises:
            BadAction: the action is not an integer from 0 to 127.
            ResetNeeded: before the first reset or after the end.
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
        """Return the whole state for a person to read (`"ansi"`), as the text environment does."""
        return self._text.render()


def command_at(env: ALFWorldEnv, index: int) -> str:
    """Return the command with this number; `NO_COMMAND` beyond the list, or when no episode is under way."""
    commands = env.admissible_actions() if env.playing else []
    return commands[index] if index < len(commands) else NO_COMMAND


def numbered(env: ALFWorldEnv) -> int:
    """Return how many commands of this moment have a number."""
    return min(len(env.admissible_actions()), NUM_ACTIONS)


def action_mask(env: ALFWorldEnv) -> Masks:
    """Return for each number whether it is a command of this moment, `int8[128]`, fresh."""
    mask: Masks = MASK_OF_COUNT[numbered(env)]
    return mask.copy()


INDEX_INFO: Mapping[str, Callable[[ALFWorldEnv], Any]] = {**INFO, "action_mask": action_mask}
"""Every key of `info` of the numeric faces, and how it is read."""
