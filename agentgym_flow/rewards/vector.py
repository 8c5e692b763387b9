"""The vector twin of `RewardFlow`: one graph per task for all slots, in the process of the learner.

It gives the rewards that single wrappers sharing one store would give, stepped one after the other.
"""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.shaping import EpisodeShaper, KeyFunction, Shaping, ShapingForm, SuccessFunction, UpdateTime
from agentgym_flow.rewards.slots import SlotRewards


class VectorRewardFlow(SlotRewards[EpisodeShaper]):
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
        self._shaping = Shaping(
            scale=scale,
            shaping=shaping,
            gamma=gamma,
            key_fn=key_fn,
            success_fn=success_fn,
            graphs=graphs,
            update=update,
        )
        shapers = [EpisodeShaper(self._shaping) for _ in range(env.num_envs)]
        super().__init__(env, shapers, ("native_reward", "shaping", "potential"), observed=key_fn is not None)

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

    def close(self, **kwargs: Any) -> None:
        """Hand the last episodes' steps to the graphs (`update="reset"`) and close the environment."""
        for shaper in self._followers:
            shaper.flush()
        super().close(**kwargs)
