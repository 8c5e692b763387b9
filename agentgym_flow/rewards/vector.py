"""`RewardFlow` for vector environments: one graph per task for all slots, in the process of the learner.

The rewards are those of single wrappers that share one store and step one after the other.
"""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.shaping import EpisodeShaper, KeyFunction, Shaping, ShapingForm, SuccessFunction, UpdateTime
from agentgym_flow.rewards.slots import SlotRewards


class VectorRewardFlow(SlotRewards[EpisodeShaper]):
    """Shapes the rewards of every slot of a vector environment; see `RewardFlow` for the rewards and the arguments.

    It works in all three autoreset modes; see `SlotRewards`. `info` gets the arrays `native_reward`, `shaping` and
    `potential` with their masks.

    Args:
        env: a vector environment with its autoreset mode in `metadata["autoreset_mode"]`, as in Gymnasium. Text
            environments run in `SyncVectorEnv` or `AsyncVectorEnv(..., shared_memory=False)`.
        scale: the weight of the shaping in future episodes.
        shaping: `"invariant"` or `"rewardflow"`.
        gamma: the discount of the learner.
        key_fn: `(observation of one slot, info of one slot) -> str | int`.
        success_fn: `(reward, terminated, info of one slot) -> bool`.
        graphs: a `GraphStore`; by default a new one.
        update: `"step"`, `"reset"` or `"never"`.

    Raises:
        BadSetting: as `RewardFlow`, or the metadata have no autoreset mode.
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
        """The graphs observed so far, by task key."""
        return self._shaping.graphs

    @property
    def scale(self) -> float:
        """The weight of the shaping in future episodes."""
        return self._shaping.scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._shaping.scale = value

    def close(self, **kwargs: Any) -> None:
        """Add the steps of unfinished episodes to the graphs (`update="reset"`) and close the environment."""
        for shaper in self._followers:
            shaper.flush()
        super().close(**kwargs)
