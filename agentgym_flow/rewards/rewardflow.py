"""Dense rewards from state graphs, online, as an ordinary Gymnasium wrapper."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.shaping import EpisodeShaper, KeyFunction, Shaping, ShapingForm, SuccessFunction, UpdateTime


class RewardFlow(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds a reward for coming closer to a known success of the same task.

    The wrapper merges the states of all episodes of a task into a graph and gives each state the potential Φ = 0.9 **
    (observed steps to the nearest success), 0 where no success is known. With `shaping="invariant"` the reward of a
    step s -> s' is

        r + scale * (gamma * Φ(s') - Φ(s)),    Φ = 0 at every end of an episode

    which leaves the optimal policies as they are (Ng, Harada and Russell, 1999), also while the graph grows, because
    the potential of a state is looked up once, on arrival (Devlin and Kudenko, 2012), and also at time limits (Grzes,
    2017). With `shaping="rewardflow"` it is the published

        r + scale * (Φ(s') - Φ(s)),    Φ(success) = 1

    which sums to Φ(end) - Φ(start): extra credit for failures that end near a success. That helps early and misleads
    late.

    Put it outside time limits and inside reward normalisation. `info` gets `native_reward`, `shaping` (the
    difference) and `potential` (Φ of the state reached, as the graph has it, at the end of an episode too). A learner
    that bootstraps from its value function where an episode is *truncated* adds `scale * gamma * info["potential"]`
    to that last reward.

    Args:
        env: any environment. From `info` it reads `state_key` and `success` at every step, `task_key` at every reset
            (one graph for all episodes when there is none), and `action_valid`: an invalid action adds no edge.
        scale: the weight of the shaping; may be changed between episodes (`env.scale = ...`) and holds from the next
            reset on.
        shaping: `"invariant"` or `"rewardflow"`.
        gamma: the discount of your learner, used by `"invariant"`; 1 for undiscounted returns. Not the 0.9 above,
            which belongs to `graphs`; where both are equal, steps along a shortest known path get 0 (the last one
            hands back its potential) and every detour gets less.
        key_fn: `(observation, info) -> str | int`, for environments without `info["state_key"]`; wins where both are
            there.
        success_fn: `(reward, terminated, info) -> bool`, for environments without `info["success"]`; wins where both
            are there.
        graphs: a `GraphStore`, to share between wrappers, to load from a file, or with other settings; a new one by
            default.
        update: `"step"` learns at once; `"reset"` keeps the graph as it is until the episode is over; `"never"` only
            reads it.

    Raises:
        BadSetting: a number is outside its range; or, at reset or step, a key or a success is missing and no function
            gives it.
        UnknownOption: `shaping` or `update` is none of the words above.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        scale: float = 1.0,
        shaping: ShapingForm = "invariant",
        gamma: float = 0.99,
        key_fn: KeyFunction | None = None,
        success_fn: SuccessFunction | None = None,
        graphs: GraphStore | None = None,
        update: UpdateTime = "step",
    ) -> None:
        arguments: dict[str, Any] = {
            "scale": scale,
            "shaping": shaping,
            "gamma": gamma,
            "key_fn": key_fn,
            "success_fn": success_fn,
            "graphs": graphs,
            "update": update,
        }
        RecordConstructorArgs.__init__(self, **arguments)
        gym.Wrapper.__init__(self, env)
        self._shaping = Shaping(**arguments)
        self._shaper = EpisodeShaper(self._shaping)

    @property
    def graphs(self) -> GraphStore:
        """The graphs learned so far, by task key."""
        return self._shaping.graphs

    @property
    def scale(self) -> float:
        """The weight of the shaping from the next reset on."""
        return self._shaping.scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._shaping.scale = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; `info` has the potential of the first state."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._shaper.begin(observation, info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment and shape the reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        shaped, info = self._shaper.advance(action, observation, float(reward), terminated, truncated, info)
        return observation, shaped, terminated, truncated, info

    def close(self) -> None:
        """Hand the last episode's steps to the graph (`update="reset"`) and close the environment."""
        self._shaper.flush()
        super().close()
