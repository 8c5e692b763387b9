"""The base of reward wrappers for vector environments: each slot has its own episode, in all autoreset modes.

Wrappers inside the sub-environments of `AsyncVectorEnv` would see only the steps of their own process. A vector wrapper
sees all slots, in the process of the learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from agentgym_flow.errors import BadSetting


class EpisodeRewards(Protocol):
    """Computes the rewards of one slot of a vector environment through its episodes."""

    def begin(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode and return `info` with the added keys."""

    def advance(
        self, action: Any, observation: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> tuple[float, dict[str, Any]]:
        """Return the reward of one step, and `info` with the added keys."""


Follower = TypeVar("Follower", bound=EpisodeRewards)


class SlotRewards(VectorWrapper[Any, Any, Any, Any, Any], Generic[Follower]):
    """Replaces the rewards of every slot of a vector environment by those of its follower.

    It works in all three autoreset modes. With `NEXT_STEP`, the step after an end is a reset and not a step of the
    task. With `SAME_STEP`, the last state is in `final_obs` and `final_info`. With `DISABLED`, `reset_mask` selects the
    slots that start again. The added keys of `info` are arrays with masks. With `SAME_STEP`, `final_info` gets those of
    the last step.

    Args:
        env: a vector environment with its autoreset mode in `metadata["autoreset_mode"]`, as in Gymnasium.
        followers: one per slot.
        added: the keys that a follower adds to `info`; their values are numbers.
        observed: whether followers need observations; splitting these by slot takes time.

    Raises:
        BadSetting: the metadata have no autoreset mode.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], followers: Sequence[Follower], added: tuple[str, ...], *, observed: bool
    ) -> None:
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise BadSetting(f"{env} must name its AutoresetMode in metadata['autoreset_mode'], found {mode!r}")
        self._autoreset_mode = mode
        self._followers = followers
        self._added = added
        self._observed = observed
        self._done = np.zeros(self.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all slots, or those of `options["reset_mask"]`."""
        chosen = None if options is None else options.get("reset_mask")
        started = np.ones(self.num_envs, np.bool_) if chosen is None else np.array(chosen, np.bool_)
        # A copy, because Gymnasium removes the mask, which the wrappers around this one read after the reset.
        copied = None if options is None else dict(options)
        observations, infos = self.env.reset(seed=seed, options=copied)  # type: ignore[arg-type]
        added = _Arrays(self.num_envs, self._added)
        for slot, observation in self._observations(observations):
            if started[slot]:
                added.put(slot, self._followers[slot].begin(observation, slot_info(infos, slot)))
        self._done[started] = False
        return observations, added.into(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all slots and compute their rewards."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        given = np.array(rewards, np.float64)
        same_step = self._autoreset_mode == AutoresetMode.SAME_STEP
        restarted = self._done if self._autoreset_mode == AutoresetMode.NEXT_STEP else np.zeros_like(self._done)
        done = np.logical_or(terminations, truncations)
        added, final = (_Arrays(self.num_envs, self._added) for _ in range(2))
        single_actions = list(iterate(self.action_space, actions))
        for slot, observation in self._observations(observations):
            follower, info = self._followers[slot], slot_info(infos, slot)
            if restarted[slot]:
                added.put(slot, follower.begin(observation, info))
                continue
            ends_here = same_step and bool(done[slot])
            last, last_info = (infos["final_obs"][slot], info["final_info"]) if ends_here else (observation, info)
            given[slot], last_info = follower.advance(
                single_actions[slot], last, rewards[slot], bool(terminations[slot]), bool(truncations[slot]), last_info
            )
            (final if ends_here else added).put(slot, last_info)
            if ends_here:
                added.put(slot, follower.begin(observation, info))
        self._done = done
        infos = added.into(infos)
        if final.mask.any():
            infos["final_info"] = final.into(infos["final_info"])
        return observations, given, terminations, truncations, infos

    def _observations(self, observations: Any) -> list[tuple[int, Any]]:
        """Return each slot with its observation, or with None if followers do not need it."""
        if not self._observed:
            return [(slot, None) for slot in range(self.num_envs)]
        return list(enumerate(iterate(self.observation_space, observations)))


class _Arrays:
    """Collects the added keys of `info` by slot, in Gymnasium's form: an array and a mask per key."""

    def __init__(self, num_envs: int, names: tuple[str, ...]) -> None:
        self.mask = np.zeros(num_envs, np.bool_)
        self._columns = {name: np.zeros(num_envs, np.float64) for name in names}

    def put(self, slot: int, info: Mapping[str, Any]) -> None:
        self.mask[slot] = True
        for name, column in self._columns.items():
            column[slot] = info[name]

    def into(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        joined = dict(infos)
        for name, column in self._columns.items():
            joined[name], joined[f"_{name}"] = column, self.mask.copy()
        return joined


def slot_info(infos: Mapping[str, Any], slot: int) -> dict[str, Any]:
    """Return the `info` of one slot of a vector environment: the values whose mask is True, in nested dicts as well.

    A value that is not a sequence is for all slots.
    """
    info: dict[str, Any] = {}
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue  # the mask of another key
        mask = infos.get(f"_{name}")
        if mask is None or mask[slot]:
            if isinstance(values, Mapping):
                info[name] = slot_info(values, slot)
            else:
                info[name] = values[slot] if hasattr(values, "__len__") and not isinstance(values, str) else values
    return info
