"""What all batches of environments do alike: their arguments, resets and autoreset modes, and how infos are batched.

A batch equals Gymnasium's `SyncVectorEnv` over its single environment under equal seeds: same observations, rewards,
flags and infos. This class says when something happens; how, and fast, is a subclass's business.
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
"""One seed for each environment; None does not change its generator."""


class BatchEnv(PlainSpec, VectorEnv[Observations, Actions, npt.NDArray[Any]]):
    """Base of all batches. A subclass implements the members below marked abstract.

    Args:
        num_envs: how many environments play together.
        observation_space: of a single environment.
        action_space: of a single environment.
        info_keys: the keys of `infos` to deliver.
        autoreset_mode: an `AutoresetMode` or its value.
        render_mode: one of `metadata["render_modes"]`, or None.

    Raises:
        BadSetting: `num_envs` is not a positive integer, or `render_mode` is not offered.
        UnknownOption: there is no such autoreset mode.
    """

    reset_options: ClassVar[tuple[str, ...]]
    """The keys that `reset(options=...)` understands, besides `"reset_mask"`."""

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

    # ---------------------------------------------------------------- what a batch provides
    @abstractmethod
    def _check_actions(self, actions: Any) -> Any:
        """Return `actions` as `_play` takes them. Raises `BadAction`; nothing has been played then."""

    @abstractmethod
    def _begin(self, envs: Ints, seeds: Seeds | None, options: Mapping[str, Any]) -> None:
        """Start new episodes on `envs`. `seeds` has an entry for every environment of the batch."""

    @abstractmethod
    def _play(self, actions: Any, restart: Ints) -> tuple[Floats, Bools, Bools]:
        """Play one action on every environment but those of `restart`.

        Returns rewards, terminations and truncations: 0.0 and False for `restart`.
        """

    @abstractmethod
    def _observe(self) -> Observations:
        """Return a fresh observation of every environment."""

    @abstractmethod
    def _column(self, key: str, among: Bools) -> npt.NDArray[Any]:
        """Return a fresh array with `info[key]` of each environment `among` those asked for, and anything elsewhere."""

    # ---------------------------------------------------------------- Gymnasium
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start episodes on all environments, or on those of `options["reset_mask"]`; return observations and infos.

        A seed of s seeds environment i with s + i; a sequence gives each its own.

        Raises:
            UnknownOption: a key of `options` is neither in `reset_options` nor `"reset_mask"`.
            UnknownTask: a task does not exist.
            BadSetting: `reset_mask` or the number of seeds or tasks does not fit.
        """
        chosen = dict(check_options(options, (*self.reset_options, "reset_mask")))
        seeds = self._seeds(seed)
        among = self._reset_mask(chosen.pop("reset_mask", self._all))
        self._begun &= ~among
        self._started = False  # should a start fail, nothing goes on half old and half new
        self._begin(np.flatnonzero(among), seeds, chosen)
        self._begun |= among
        self._started = bool(self._begun.all())
        self._ended &= ~among
        return self._observe(), self._infos(among)

    def step(self, actions: Actions) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
        """Play one action on every environment; return observations, rewards, ends and infos, all fresh.

        Raises:
            BadAction: an action is outside the space, or there are not `num_envs` of them.
            ResetNeeded: before the first reset; with `DISABLED` also when an environment has ended.
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

    # ---------------------------------------------------------------- what is reported
    def _infos(self, among: Bools) -> dict[str, Any]:
        """Return fresh arrays of the info of `among` (zero or None elsewhere), each key with its mask."""
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
        """Return the last observation and info of the environments that `ended`, as `SAME_STEP` delivers them."""
        finals = np.full(self.num_envs, None, dtype=object)
        observations: Any = self._observe()
        for env in np.flatnonzero(ended).tolist():
            finals[env] = copy.copy(observations[env])
        infos = self._infos(ended)
        return {"final_obs": finals, "_final_obs": ended.copy(), "final_info": infos, "_final_info": ended.copy()}

    # ---------------------------------------------------------------- arguments
    def _restart(self) -> Ints:
        """Return the environments that this step starts anew instead of playing on them."""
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
        """Return the value of a reset option for every environment: one for all, or a list, tuple or array of them."""
        if not isinstance(value, (list, tuple, range, np.ndarray)):
            return [value] * self.num_envs
        self._check_number(f"values of {name!r}", value)
        return list(value)

    def _check_number(self, name: str, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        if len(values) != self.num_envs:
            raise BadSetting(f"there are {self.num_envs} environments but {len(values)} {name}")


def column(values: Sequence[Any], among: Bools) -> npt.NDArray[Any]:
    """Return a fresh array of `values`, one for each environment that is `among`, typed as Gymnasium types infos.

    Numbers and arrays keep their type; all else is in an array of objects. Elsewhere it holds zero or None.
    """
    first = values[0]
    if isinstance(first, (np.ndarray, np.number)) or type(first) in (bool, int, float):
        packed = np.array(values)
    else:
        packed = np.fromiter(values, object, len(values))  # np.array would make lists of one length a table
    if len(values) == len(among):
        return packed
    spread = np.full((len(among), *packed.shape[1:]), None if packed.dtype == object else 0, packed.dtype)
    spread[among] = packed
    return spread


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    known = [one.value for one in AutoresetMode]
    if isinstance(mode, AutoresetMode) or (isinstance(mode, str) and mode in known):
        return AutoresetMode(mode)
    raise UnknownOption.among(mode, known)
