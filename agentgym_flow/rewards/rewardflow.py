"""Online dense rewards from state graphs, as a Gymnasium wrapper."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.shaping import EpisodeShaper, KeyFunction, Shaping, ShapingForm, SuccessFunction, UpdateTime


class RewardFlow(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds a reward for coming closer to a known success of the same task.

    The wrapper merges the states of all episodes of a task into a graph. The potential of a state is Φ = 0.9 **
    (observed steps to the nearest success), or 0 if no success is known. With `shaping="invariant"` the reward of a
    step s -> s' is

        r + scale * (gamma * Φ(s') - Φ(s)),    Φ = 0 at every end of an episode

    This keeps the optimal policies (Ng, Harada and Russell, 1999). It does so while the graph grows, because the
    potential of a state is looked up once, on arrival (Devlin and Kudenko, 2012), and at time limits (Grzes, 2017).
    With `shaping="rewardflow"` it is the published

        r + scale * (Φ(s') - Φ(s)),    Φ(success) = 1

    The sum over an episode is Φ(end) - Φ(start), so failures that end near a success get extra credit. This helps early
    in training and misleads later.

    Apply the wrapper outside of time limits and inside of reward normalisation. It adds to `info`: `native_reward`,
    `shaping` (the bonus) and `potential` (Φ of the state reached, from the graph, also at the end of an episode). A
    learner that bootstraps from its value function after a *truncated* episode adds `scale * gamma *
    info["potential"]` to the last reward.

    Args:
        env: any environment. The wrapper reads from `info`: `state_key` and `success` at every step, `task_key` at
            every reset (without it, all episodes share one graph), and `action_valid` (an invalid action adds no edge).
        scale: the weight of the shaping. `env.scale = ...` changes it from the next reset on.
        shaping: `"invariant"` or `"rewardflow"`.
        gamma: the discount of the learner, used by `"invariant"`; 1 for undiscounted returns. It is not the 0.9 above,
            which is a setting of `graphs`. If both are equal, steps along a shortest known path get 0 (the last one
            gives back its potential), and every detour gets less.
        key_fn: `(observation, info) -> str | int`, used instead of `info["state_key"]`.
        success_fn: `(reward, terminated, info) -> bool`, used instead of `info["success"]`.
        graphs: a `GraphStore` that is shared, loaded from a file or has other settings; by default a new one.
        update: `"step"` updates the graph at every step, `"reset"` after every episode, `"never"` only reads it.

    Raises:
        BadSetting: a number is outside its range; or, at reset or step, a key or a success is missing and no function
            provides it.
        UnknownOption: `shaping` or `update` is unknown.
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
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)
        gym.Wrapper.__init__(self, env)
        self._shaping = Shaping(**arguments)
        self._shaper = EpisodeShaper(self._shaping)

    @property
    def graphs(self) -> GraphStore:
        """The graphs observed so far, by task key."""
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
        """Add the steps of an unfinished episode to the graph (`update="reset"`) and close the environment."""
        self._shaper.flush()
        super().close()
