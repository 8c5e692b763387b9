"""The base of vector environments: arguments, resets, autoreset modes, and arrays of infos.

With equal seeds, a vector environment returns the same observations, rewards, flags and infos as Gymnasium's
`SyncVectorEnv` of its single environment. `BatchEnv` handles the order of resets and steps; subclasses implement them.
"""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agentgym_flow.core import PlainSpec, check_options, check_positive, check_render_mode
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Observations = TypeVar("Observations")
Actions = TypeVar("Actions")

Seeds = Sequence[int | None]
"""One seed for each environment; None keeps its generator."""


class BatchEnv(PlainSpec, VectorEnv[Observations, Actions, npt.NDArray[Any]]):
    """Base of the vector environments. Subclasses implement the abstract methods.

    Args:
        num_envs: the number of environments.
        observation_space: the observation space of a single environment.
        action_space: the action space of a single environment.
        info_keys: the keys of `infos` to return.
        autoreset_mode: an `AutoresetMode` or its value.
        render_mode: one of `metadata["render_modes"]`, or None.

    Raises:
        BadSetting: `num_envs` is not a positive integer, or `render_mode` is not supported.
        UnknownOption: `autoreset_mode` is unknown.
    """

    reset_options: ClassVar[tuple[str, ...]]
    """The keys that `reset(options=...)` accepts besides `"reset_mask"`."""

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        info_keys: tuple[str, ...],
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None,
    ) -> None:
        self.num_envs = n = check_positive("num_envs", num_envs)
        self.render_mode = check_render_mode(render_mode, self.metadata)
        self._mode = _autoreset_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self._mode}
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, n)
        self.action_space = batch_space(action_space, n)
        self._info_keys = info_keys
        self._all = np.ones(n, np.bool_)
        self._begun = np.zeros(n, np.bool_)
        self._started = False
        self._ended = np.zeros(n, np.bool_)

    # ---------------------------------------------------------------- what a subclass implements
    @abstractmethod
    def _check_actions(self, actions: Any) -> Any:
        """Return `actions` in the form that `_play` takes. Raises `BadAction` before any environment steps."""

    @abstractmethod
    def _begin(self, envs: Ints, seeds: Seeds | None, options: Mapping[str, Any]) -> None:
        """Start new episodes in `envs`. `seeds` has one entry for every environment of the batch."""

    @abstractmethod
    def _play(self, actions: Any, restart: Ints) -> tuple[Floats, Bools, Bools]:
        """Apply one action in every environment except those of `restart`.

        Returns rewards, terminations and truncations, which are 0.0 and False for `restart`.
        """

    @abstractmethod
    def _observe(self) -> Observations:
        """Return new observations of all environments."""

    @abstractmethod
    def _column(self, key: str, among: Bools) -> npt.NDArray[Any]:
        """Return a new array with `info[key]` of the environments in the mask `among` and any values elsewhere."""

    # ---------------------------------------------------------------- Gymnasium
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start episodes in all environments, or in those of `options["reset_mask"]`; return observations and infos.

        An integer seed s seeds environment i with s + i. A sequence has one seed for each environment.

        Raises:
            UnknownOption: a key of `options` is neither in `reset_options` nor `"reset_mask"`.
            UnknownTask: a task does not exist.
            BadSetting: `reset_mask` or the number of seeds or tasks has a wrong shape.
        """
        chosen = dict(check_options(options, (*self.reset_options, "reset_mask")))
        seeds = self._seeds(seed)
        among = self._reset_mask(chosen.pop("reset_mask", self._all))
        self._begun &= ~among
        self._started = False  # if a start fails, no step is possible in a partly reset batch
        self._begin(np.flatnonzero(among), seeds, chosen)
        self._begun |= among
        self._started = bool(self._begun.all())
        self._ended &= ~among
        return self._observe(), self._infos(among)

    def step(self, actions: Actions) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
        """Apply one action in every environment; return observations, rewards, flags and infos as new objects.

        Raises:
            BadAction: an action is outside the space, or there are not `num_envs` actions.
            ResetNeeded: before the first reset; with `DISABLED` also if an episode has ended.
        """
        checked = self._check_actions(actions)
        restart = self._restart()
        rewards, terminations, truncations = self._play(checked, restart)
        if restart.size:
            self._begin(restart, None, {})
        self._ended = ended = terminations | truncations
        infos: dict[str, Any] = {}
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            infos = self._finals(ended)
            self._begin(np.flatnonzero(ended), None, {})
            self._ended = np.zeros(self.num_envs, np.bool_)
        infos.update(self._infos(self._all))
        return self._observe(), rewards, terminations, truncations, infos

    # ---------------------------------------------------------------- infos
    def _infos(self, among: Bools) -> dict[str, Any]:
        """Return new arrays with the info of `among` (zero or None elsewhere), each key with its mask."""
        infos: dict[str, Any] = {}
        partial = not among.all()
        for key in self._info_keys:
            values = self._column(key, among)
            if partial:
                values[~among] = None if values.dtype == object else 0
            infos[key] = values
            infos[f"_{key}"] = among.copy()
        return infos

    def _finals(self, ended: Bools) -> dict[str, Any]:
        """Return the last observation and info of the environments in `ended`, in the form of `SAME_STEP`."""
        finals = np.full(self.num_envs, None, dtype=object)
        observations: Any = self._observe()
        for env in np.flatnonzero(ended).tolist():
            finals[env] = copy.copy(observations[env])
        infos = self._infos(ended)
        return {"final_obs": finals, "_final_obs": ended.copy(), "final_info": infos, "_final_info": ended.copy()}

    # ---------------------------------------------------------------- arguments
    def _restart(self) -> Ints:
        """Return the environments that are reset in this step instead of stepped."""
        if not self._started:
            raise ResetNeeded("call reset() for every environment before the first step()")
        restart = np.flatnonzero(self._ended)
        if restart.size and self._mode is AutoresetMode.DISABLED:
            how = "reset(options={'reset_mask': mask})"
            raise ResetNeeded(f"environments {restart.tolist()} have ended: call {how} before the next step()")
        return restart

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Seeds | None:
        if seed is None:
            return None
        if isinstance(seed, SupportsIndex) and not isinstance(seed, np.ndarray):
            first = operator.index(seed)
            return range(first, first + self.num_envs)
        if not isinstance(seed, (Sequence, np.ndarray)):
            raise BadSetting(f"seed must be an integer or a sequence of {self.num_envs}, got {seed!r:.60}")
        self._check_number("seeds", seed)
        return [None if each is None else operator.index(each) for each in seed]

    def _reset_mask(self, mask: Any) -> Bools:
        fits = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.num_envs,)
        if not fits or not mask.any():
            needed = f"a boolean array of {self.num_envs} with at least one True"
            raise BadSetting(f"reset_mask must be {needed}, got {mask!r}")
        return np.array(mask)

    def _one_each(self, name: str, value: Any) -> list[Any]:
        """Return the value of a reset option for every environment, given one value or a list, tuple or array."""
        if not isinstance(value, (list, tuple, range, np.ndarray)):
            return [value] * self.num_envs
        self._check_number(f"values of {name!r}", value)
        return list(value)

    def _check_number(self, name: str, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        if len(values) != self.num_envs:
            raise BadSetting(f"there are {self.num_envs} environments but {len(values)} {name}")


def column(values: Sequence[Any], among: Bools) -> npt.NDArray[Any]:
    """Return a new array with `values` at the environments in the mask `among`, with the dtypes of Gymnasium's infos.

    Numbers and arrays keep their dtype; other values are in an array of objects. Elsewhere the array has zero or None.
    """
    first = values[0]
    if isinstance(first, (np.ndarray, np.number)) or type(first) in (bool, int, float):
        packed = np.array(values)
    else:
        packed = np.fromiter(values, object, len(values))  # np.array would turn lists of equal length into a 2-D array
    if len(values) == len(among):
        return packed
    spread = np.full((len(among), *packed.shape[1:]), None if packed.dtype == object else 0, packed.dtype)
    spread[among] = packed
    return spread


def step_budget(max_steps: int, max_episode_steps: int | None) -> int:
    """Return the smaller limit. Gymnasium's `make_vec` passes `max_episode_steps`, and adds no `TimeLimit` itself.

    Raises `BadSetting` if a limit is not a positive integer.
    """
    budget = check_positive("max_steps", max_steps)
    return budget if max_episode_steps is None else min(budget, check_positive("max_episode_steps", max_episode_steps))


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    known = [one.value for one in AutoresetMode]
    if isinstance(mode, AutoresetMode) or (isinstance(mode, str) and mode in known):
        return AutoresetMode(mode)
    raise UnknownOption.among(mode, known)
