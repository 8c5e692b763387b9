"""Online dense rewards from state graphs: a Gymnasium wrapper, and its twin for vector environments.

Wrapper and twin share an `EpisodeShaper` for each environment or slot: it reads states from `info`, adds steps to the
graph, and computes the bonus. In a vector environment there is one graph per task for all slots, in the process of the
learner; the rewards are those of single wrappers that share one store and step one after the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, SupportsFloat, SupportsIndex, cast, get_args

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv

from agentgym_flow._util.values import is_number
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.rewards.slots import SlotRewards
from agentgym_flow.rewards.state_graph import GraphStore, StateGraph, outcome_node


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


class VectorRewardFlow(SlotRewards["EpisodeShaper"]):
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


# ---------------------------------------------------------------- shaping
ShapingForm = Literal["invariant", "rewardflow"]
"""Potential-based shaping that keeps the optimal policies, or the published difference of potentials."""
UpdateTime = Literal["step", "reset", "never"]
"""When observed steps are added to the graph: at once, after the episode, or never."""
KeyFunction = Callable[[Any, Mapping[str, Any]], Any]
"""`(observation, info) -> state key`, a `str` or an integer."""
SuccessFunction = Callable[[float, bool, Mapping[str, Any]], bool]
"""`(native reward, terminated, info) -> whether the task is achieved`."""

ANY_TASK = "task"
"""The task key if `info` has none, so that all episodes share one graph."""


class Shaping:
    """The checked settings of a shaping wrapper; see `RewardFlow` for their meaning."""

    def __init__(
        self,
        *,
        scale: float,
        shaping: ShapingForm,
        gamma: float,
        key_fn: KeyFunction | None,
        success_fn: SuccessFunction | None,
        graphs: GraphStore | None,
        update: UpdateTime,
    ) -> None:
        for word, known in ((shaping, ShapingForm), (update, UpdateTime)):
            if word not in get_args(known):
                raise UnknownOption.among(word, get_args(known))
        if not (is_number(gamma) and 0.0 <= gamma <= 1.0):
            raise BadSetting(f"gamma must be in [0, 1], got {gamma!r}")
        if not isinstance(graphs, GraphStore | None):
            raise BadSetting(f"graphs must be a GraphStore, got {type(graphs).__name__}")
        self.scale = scale
        self.invariant = shaping == "invariant"
        # The published form has no discount: its sum over an episode is the difference of the end potentials.
        self.discount = float(gamma) if self.invariant else 1.0
        self.key_fn = key_fn
        self.success_fn = success_fn
        self.graphs = GraphStore() if graphs is None else graphs
        self.update = update

    @property
    def scale(self) -> float:
        """The weight of the shaping. Setting it raises `BadSetting` unless it is a finite number."""
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        if not is_number(value):
            raise BadSetting(f"scale must be a finite number, got {value!r}")
        self._scale = float(value)

    def state_key(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the key of the present state. Raises `BadSetting` if it is missing or has another type."""
        if self.key_fn is not None:
            return _as_key(self.key_fn(observation, info))
        if "state_key" not in info:
            raise BadSetting(
                "RewardFlow needs a key for every state, and info has no 'state_key': pass "
                "key_fn=lambda observation, info: ... that returns a str or an integer"
            )
        return _as_key(info["state_key"])

    def success(self, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        """Return whether the task is achieved after a step. Raises `BadSetting` if neither source says it."""
        if self.success_fn is not None:
            return bool(self.success_fn(reward, terminated, info))
        if "success" not in info:
            raise BadSetting(
                "RewardFlow needs a flag for success, and info has no 'success': pass "
                "success_fn=lambda reward, terminated, info: ... that returns a bool"
            )
        return bool(info["success"])


class EpisodeShaper:
    """Shapes the rewards of one environment through its episodes."""

    def __init__(self, shaping: Shaping) -> None:
        self._shaping = shaping
        self._running = False
        self._task_key = ""
        self._state_key = ""
        self._potential = 0.0
        self._scale = 0.0
        self._waiting: list[tuple[str, str, str, bool]] = []

    def begin(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode and return `info` with the keys of shaping. The scale is fixed until its end."""
        self.flush()
        self._task_key = str(info.get("task_key", ANY_TASK))
        self._state_key = self._shaping.state_key(observation, info)
        self._scale = self._shaping.scale
        self._running = True
        if self._shaping.update != "never":
            # `success_fn` describes steps, so only `info` can say that an episode starts solved.
            self._graph.add_state(self._state_key, success=bool(info.get("success", False)))
        self._potential = self._graph.potential(self._state_key)
        return {**info, "native_reward": 0.0, "shaping": 0.0, "potential": self._potential}

    def advance(
        self, action: Any, observation: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> tuple[float, dict[str, Any]]:
        """Return the shaped reward of one step, and `info` with the keys of shaping.

        Raises `ResetNeeded` if no episode is running.
        """
        if not self._running:
            raise ResetNeeded("no episode is under way: call reset() before step()")
        native = float(reward)
        key = self._shaping.state_key(observation, info)
        success = self._shaping.success(native, terminated, info)
        node = outcome_node(key, terminated=terminated, success=success)
        if info.get("action_valid", True):  # an invalid action is not an edge, and its text is arbitrary
            self._observe(action, node, success)
        # The flag defines the potential of terminal states, even if the graph is full or not updated.
        potential = 1.0 if success else 0.0 if terminated else self._graph.potential(node)
        ended = terminated or truncated
        # An end has potential 0, also at the time limit. Otherwise the return keeps a term that depends on the policy.
        counted = 0.0 if ended and self._shaping.invariant else potential
        # The potential of the previous state is the one at arrival, because the graph may have grown since.
        bonus = self._scale * (self._shaping.discount * counted - self._potential)
        self._state_key, self._potential, self._running = node, potential, not ended
        if ended:
            self.flush()
        return native + bonus, {**info, "native_reward": native, "shaping": bonus, "potential": potential}

    def flush(self) -> None:
        """Add the steps that wait for the end of the episode to the graph."""
        if self._waiting:
            for src, action, dst, success in self._waiting:
                self._graph.add(src, action, dst, success=success)
            self._waiting.clear()

    def _observe(self, action: Any, node: str, success: bool) -> None:
        step = (self._state_key, _action_text(action), node, success)
        if self._shaping.update == "step":
            self._graph.add(*step[:3], success=success)
        elif self._shaping.update == "reset":
            self._waiting.append(step)

    @property
    def _graph(self) -> StateGraph:
        graphs = self._shaping.graphs
        return graphs.peek(self._task_key) if self._shaping.update == "never" else graphs.graph(self._task_key)


def _as_key(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    try:
        return str(operator.index(cast("SupportsIndex", value)))
    except TypeError:
        raise BadSetting(
            f"a state key is a str or an integer, got {type(value).__name__}; "
            "for an array, let key_fn return observation.tobytes().hex()"
        ) from None


def _action_text(action: Any) -> str:
    """Return a text for an action; equal actions have equal texts."""
    if isinstance(action, str):
        return action
    return repr(action.tolist() if isinstance(action, (np.ndarray, np.generic)) else action)
