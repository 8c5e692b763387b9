"""The vector twin of `RewardFlow`: one graph per task for all slots, in the process of the learner.

A wrapper inside the sub-environments of `AsyncVectorEnv` would see only what its own process does. This one sees
every slot, and gives the rewards that single wrappers sharing one store would give, stepped one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.shaping import EpisodeShaper, KeyFunction, Shaping, ShapingForm, SuccessFunction, UpdateTime

_ADDED = ("native_reward", "shaping", "potential")


class VectorRewardFlow(VectorWrapper[Any, Any, Any, Any, Any]):
    """Shapes the rewards of every slot of a vector environment; see `RewardFlow` for the rewards and the arguments.

    All three autoreset modes are understood: with `NEXT_STEP` the step after an end is a reset and no step of the
    task, with `SAME_STEP` the last state is read from `final_obs` and `final_info`, with `DISABLED` the `reset_mask`
    says which slots start again. `info` gets the arrays `native_reward`, `shaping` and `potential`, with their masks;
    with `SAME_STEP`, `final_info` gets those of the step that ended.

    Args:
        env: a vector environment that names its autoreset mode in `metadata["autoreset_mode"]`, as Gymnasium's own
            do. Text environments run under `SyncVectorEnv` or `AsyncVectorEnv(..., shared_memory=False)`.
        scale: the weight of the shaping, for episodes that start from now on.
        shaping: `"invariant"` or `"rewardflow"`.
        gamma: the discount of your learner.
        key_fn: `(observation of one slot, info of one slot) -> str | int`.
        success_fn: `(reward, terminated, info of one slot) -> bool`.
        graphs: a `GraphStore`; a new one by default.
        update: `"step"`, `"reset"` or `"never"`.

    Raises:
        BadSetting: as `RewardFlow`; also when the autoreset mode is not named.
        UnknownOption: as `RewardFlow`.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        scale: float = 1.0,
        shaping: ShapingForm = "invariant",
        gamma: float = 0.99,
        key_fn: KeyFunction | None = None,
        success_fn: SuccessFunction | None = None,
        graphs: GraphStore | None = None,
        update: UpdateTime = "step",
    ) -> None:
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise BadSetting(f"{env} must name its AutoresetMode in metadata['autoreset_mode'], found {mode!r}")
        self._autoreset_mode = mode
        self._shaping = Shaping(
            scale=scale,
            shaping=shaping,
            gamma=gamma,
            key_fn=key_fn,
            success_fn=success_fn,
            graphs=graphs,
            update=update,
        )
        self._shapers = [EpisodeShaper(self._shaping) for _ in range(self.num_envs)]
        self._done = np.zeros(self.num_envs, np.bool_)

    @property
    def graphs(self) -> GraphStore:
        """The graphs learned so far, by task key."""
        return self._shaping.graphs

    @property
    def scale(self) -> float:
        """The weight of the shaping for episodes that start from now on."""
        return self._shaping.scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._shaping.scale = value

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all slots, or those of `options["reset_mask"]`."""
        # Read before the reset: Gymnasium takes it out of the dictionary.
        chosen = None if options is None else options.get("reset_mask")
        started = np.ones(self.num_envs, np.bool_) if chosen is None else np.array(chosen, np.bool_)
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        added = _Arrays(self.num_envs)
        for slot, observation in self._observations(observations):
            if started[slot]:
                added.put(slot, self._shapers[slot].begin(observation, slot_info(infos, slot)))
        self._done[started] = False
        return observations, added.into(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all slots and shape their rewards."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        shaped = np.array(rewards, np.float64)
        same_step = self._autoreset_mode == AutoresetMode.SAME_STEP
        restarted = self._done if self._autoreset_mode == AutoresetMode.NEXT_STEP else np.zeros_like(self._done)
        done = np.logical_or(terminations, truncations)
        added, final = _Arrays(self.num_envs), _Arrays(self.num_envs)
        single_actions = list(iterate(self.action_space, actions))
        for slot, observation in self._observations(observations):
            shaper, info = self._shapers[slot], slot_info(infos, slot)
            if restarted[slot]:
                added.put(slot, shaper.begin(observation, info))
                continue
            ends_here = same_step and bool(done[slot])
            last, last_info = (infos["final_obs"][slot], info["final_info"]) if ends_here else (observation, info)
            shaped[slot], last_info = shaper.advance(
                single_actions[slot], last, rewards[slot], bool(terminations[slot]), bool(truncations[slot]), last_info
            )
            (final if ends_here else added).put(slot, last_info)
            if ends_here:
                added.put(slot, shaper.begin(observation, info))
        self._done = done
        infos = added.into(infos)
        if final.mask.any():
            infos["final_info"] = final.into(infos["final_info"])
        return observations, shaped, terminations, truncations, infos

    def close(self, **kwargs: Any) -> None:
        """Hand the last episodes' steps to the graphs (`update="reset"`) and close the environment."""
        for shaper in self._shapers:
            shaper.flush()
        super().close(**kwargs)

    def _observations(self, observations: Any) -> list[tuple[int, Any]]:
        """Return each slot with its observation; only a `key_fn` looks at it."""
        if self._shaping.key_fn is None:
            return [(slot, None) for slot in range(self.num_envs)]
        return list(enumerate(iterate(self.observation_space, observations)))


class _Arrays:
    """Collects what shaping adds to `info`, slot by slot, in Gymnasium's form: an array and a mask per key."""

    def __init__(self, num_envs: int) -> None:
        self.mask = np.zeros(num_envs, np.bool_)
        self._columns = {name: np.zeros(num_envs, np.float64) for name in _ADDED}

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
    """Return the `info` of one slot of a vector environment: the values whose mask holds there, dicts taken apart."""
    info: dict[str, Any] = {}
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue  # the mask of another key
        mask = infos.get(f"_{name}")
        if mask is None or mask[slot]:
            info[name] = slot_info(values, slot) if isinstance(values, Mapping) else values[slot]
    return info
