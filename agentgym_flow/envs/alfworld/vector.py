"""Many ALFWorld games in one step: the environments of `gym.make_vec`, for texts and for indices of commands.

The games step one after the other, and each step takes microseconds. `SyncVectorEnv` spends most of its time on infos,
which it collects by key and environment. Here each key is one array that is created at once, and only requested keys
are computed.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agentgym_flow.core import check_info_keys
from agentgym_flow.data import DataSet
from agentgym_flow.envs.alfworld.env import DEFAULT_MAX_STEPS, INFO, RESET_OPTIONS, ALFWorldEnv, usual
from agentgym_flow.envs.alfworld.index import INDEX_INFO, MASK_OF_COUNT, NUM_ACTIONS, command_at, numbered
from agentgym_flow.envs.batching import BatchEnv, Bools, Floats, Ints, Seeds, column, step_budget
from agentgym_flow.errors import BadAction


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
