"""ALFWorld for numeric agents, with commands chosen by number; and many games in one step, for `gym.make_vec`.

The games of a batch step one after the other, and each step takes microseconds. `SyncVectorEnv` spends most of its time
on infos, which it collects by key and environment. Here each key is one array that is created at once, and only
requested keys are computed.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agentgym_flow.core import PlainSpec, check_info_keys
from agentgym_flow.data import DataSet
from agentgym_flow.envs.alfworld.env import DEFAULT_MAX_STEPS, INFO, RESET_OPTIONS, ALFWorldEnv, usual
from agentgym_flow.envs.batching import BatchEnv, Bools, Floats, Ints, Seeds, column, step_budget
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


# ---------------------------------------------------------------- many games in one step
class ALFWorldVectorEnv(BatchEnv[tuple[str, ...], Any]):
    """A vector environment of `agentgym_flow/ALFWorld-v0`, faster than `SyncVectorEnv`.

    ## Description
    With equal seeds, observations, rewards, flags and infos equal those of `SyncVectorEnv` in all three autoreset
    modes.

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> envs = gym.make_vec("agentgym_flow/ALFWorld-v0", num_envs=2)
    >>> observations, infos = envs.reset(seed=0)
    >>> len(observations), len(infos["admissible_actions"])
    (2, 2)
    >>> actions = [commands[0] for commands in infos["admissible_actions"]]
    >>> observations, rewards, terminations, truncations, infos = envs.step(actions)

    ```

    ## Resets
    - `NEXT_STEP`: the step after an end ignores the action of that environment and returns its new start.
    - `SAME_STEP`: the last step returns the new start; the end is in `infos["final_obs"]` and `infos["final_info"]`.
    - `DISABLED`: the caller resets environments with `reset(options={"reset_mask": mask})`, where `mask` is a boolean
      array with at least one True.

    An option (`"task"`, `"game_file"`, `"task_type"`) has one value for all environments, or a list of `num_envs`.

    ## Information
    The keys of the single environment, each with its `_key` mask. Texts and lists are in arrays of objects.

    ## Arguments
    `num_envs`, `autoreset_mode` (an `AutoresetMode` or its value), those of `agentgym_flow/ALFWorld-v0`, Gymnasium's
    `max_episode_steps`, and `info_keys`: the keys of `infos` to return, None for all but `official_key`.

    Raises:
        BadSetting, BadGame, UnknownSplit, UnknownData, BadData, UnknownOption, MissingExtra: as in the single
            environment.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (as VectorEnv declares it)
        **ALFWorldEnv.metadata,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }
    reset_options = RESET_OPTIONS
    readers: ClassVar[Mapping[str, Callable[[ALFWorldEnv], Any]]] = INFO
    """Every key of `infos` with the function that reads it."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        data: str | os.PathLike[str] | DataSet | None = None,
        engine: str = "fast",
        aliases: bool | None = None,
        split: str = "train",
        season: str = "",
        task_types: Sequence[str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        max_episode_steps: int | None = None,
        info_keys: Sequence[str] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        first = ALFWorldEnv(
            data=data,
            engine=engine,
            aliases=aliases,
            split=split,
            season=season,
            task_types=task_types,
            max_steps=step_budget(max_steps, max_episode_steps),
            render_mode=render_mode,
        )
        keys = check_info_keys(usual(self.readers) if info_keys is None else info_keys, self.readers)
        super().__init__(num_envs, first.observation_space, self._actions_of(first), keys, autoreset_mode, render_mode)
        # Copies share the source, so official data are read only once.
        self._envs = [first, *(copy.deepcopy(first) for _ in range(self.num_envs - 1))]
        self._texts = [""] * self.num_envs

    def _actions_of(self, env: ALFWorldEnv) -> spaces.Space[Any]:
        """Return the action space of a single environment."""
        return env.action_space

    def render(self) -> tuple[str, ...] | None:
        """Return the full state of each environment as readable text (`"ansi"`)."""
        return None if self.render_mode is None else tuple(env.render() for env in self._envs)

    # ---------------------------------------------------------------- BatchEnv
    def _begin(self, envs: Ints, seeds: Seeds | None, options: Mapping[str, Any]) -> None:
        each = {name: self._one_each(name, value) for name, value in options.items()}
        for number in envs.tolist():
            seed = None if seeds is None else seeds[number]
            chosen = {name: values[number] for name, values in each.items()}
            self._texts[number], _ = self._envs[number].reset(seed=seed, options=chosen)

    def _check_actions(self, actions: Any) -> Sequence[str]:
        given = list(actions) if isinstance(actions, (Sequence, np.ndarray)) and not isinstance(actions, str) else []
        if len(given) != self.num_envs or not all(isinstance(action, str) for action in given):
            raise BadAction(f"the actions must be a sequence of {self.num_envs} texts, got {actions!r:.200}")
        return given

    def _play(self, actions: Sequence[str], restart: Ints) -> tuple[Floats, Bools, Bools]:
        count = self.num_envs
        rewards, terminations, truncations = [0.0] * count, [False] * count, [False] * count
        playing = np.delete(np.arange(count), restart).tolist() if restart.size else range(count)
        for number in playing:
            transition, truncations[number] = self._envs[number].advance(actions[number])
            self._texts[number], rewards[number], terminations[number], _ = transition
        return np.array(rewards), np.array(terminations), np.array(truncations)

    def _observe(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def _column(self, key: str, among: Bools) -> npt.NDArray[Any]:
        read = self.readers[key]
        return column([read(env) for env in compress(self._envs, among)], among)


class ALFWorldIndexVectorEnv(ALFWorldVectorEnv):
    """A vector environment of `agentgym_flow/ALFWorldIndex-v0`: `ALFWorldVectorEnv` with indices as actions.

    ## Description
    The actions are an array of `num_envs` integers from 0 to 127. An index beyond the list of commands is invalid.

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> envs = gym.make_vec("agentgym_flow/ALFWorldIndex-v0", num_envs=2, info_keys=["action_mask"])
    >>> observations, infos = envs.reset(seed=0)
    >>> infos["action_mask"].shape, infos["action_mask"].dtype
    ((2, 128), dtype('int8'))
    >>> observations, rewards, terminations, truncations, infos = envs.step([0, 1])

    ```

    Resets, information and arguments are those of `ALFWorldVectorEnv`. `infos` also has `action_mask`,
    int8[num_envs, 128].
    """

    readers = INDEX_INFO

    def _actions_of(self, env: ALFWorldEnv) -> spaces.Space[Any]:
        return spaces.Discrete(NUM_ACTIONS)

    def _check_actions(self, actions: Any) -> Sequence[str]:
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise BadAction(f"expected {self.num_envs} integer actions, got {given.dtype}{list(given.shape)}")
        if ((given < 0) | (given >= NUM_ACTIONS)).any():
            raise BadAction(f"an action is outside 0 to {NUM_ACTIONS - 1}: {given.tolist()!r:.200}")
        return list(map(command_at, self._envs, given.tolist()))

    def _column(self, key: str, among: Bools) -> npt.NDArray[Any]:
        if key != "action_mask":
            return super()._column(key, among)
        counts = column([numbered(env) for env in compress(self._envs, among)], among)
        masks: npt.NDArray[Any] = MASK_OF_COUNT[counts]
        return masks
