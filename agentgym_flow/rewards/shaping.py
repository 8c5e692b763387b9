"""Shape the rewards of a running episode: read states from `info`, add steps to the graph, compute the bonus.

`RewardFlow` has one `EpisodeShaper`, `VectorRewardFlow` one for each slot. They share the settings in a `Shaping`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, SupportsIndex, cast, get_args

import numpy as np

from agentgym_flow._util.values import is_number
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.state_graph import StateGraph, outcome_node

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
