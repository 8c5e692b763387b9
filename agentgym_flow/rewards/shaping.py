"""Shaping one running episode: reading states from `info`, feeding the task's graph, and the shaped reward itself.

`RewardFlow` keeps one `EpisodeShaper`, `VectorRewardFlow` one for each slot; the rules they share are a `Shaping`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, SupportsIndex, cast, get_args

import numpy as np

from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.state_graph import StateGraph, outcome_node

ShapingForm = Literal["invariant", "rewardflow"]
"""Potential-based shaping that keeps the optimal policies, or the published difference of potentials."""
UpdateTime = Literal["step", "reset", "never"]
"""When observed steps reach the graph: at once, when the episode is over, or not at all."""
KeyFunction = Callable[[Any, Mapping[str, Any]], Any]
"""`(observation, info) -> state key`, a `str` or an integer."""
SuccessFunction = Callable[[float, bool, Mapping[str, Any]], bool]
"""`(native reward, terminated, info) -> whether the task is achieved now`."""

ANY_TASK = "task"
"""The task key of an environment whose `info` names none: all its episodes share one graph."""

_NUMBER = (int, float, np.integer, np.floating)


class Shaping:
    """The settings of a shaping wrapper, checked; see `RewardFlow` for their meaning."""

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
        if shaping not in get_args(ShapingForm):
            raise UnknownOption.among(shaping, get_args(ShapingForm))
        if update not in get_args(UpdateTime):
            raise UnknownOption.among(update, get_args(UpdateTime))
        if not (isinstance(gamma, _NUMBER) and 0.0 <= gamma <= 1.0):
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
        """The weight of the shaping; a finite number, or `BadSetting` is raised."""
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        if not (isinstance(value, _NUMBER) and math.isfinite(value)):
            raise BadSetting(f"scale must be a finite number, got {value!r}")
        self._scale = float(value)

    def state_key(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the key of the present state. Raises `BadSetting` when there is none, or it is of another type."""
        if self.key_fn is not None:
            return _as_key(self.key_fn(observation, info))
        if "state_key" not in info:
            raise BadSetting(
                "RewardFlow needs to recognise states: info has no 'state_key', so give "
                "key_fn=lambda observation, info: ... that returns a str or an integer"
            )
        return _as_key(info["state_key"])

    def success(self, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        """Return whether the task is achieved after a step. Raises `BadSetting` when neither is there."""
        if self.success_fn is not None:
            return bool(self.success_fn(reward, terminated, info))
        if "success" not in info:
            raise BadSetting(
                "RewardFlow needs to know successes: info has no 'success', so give "
                "success_fn=lambda reward, terminated, info: ... that returns a bool"
            )
        return bool(info["success"])


class EpisodeShaper:
    """Follows one slot of an environment through its episodes."""

    def __init__(self, shaping: Shaping) -> None:
        self._shaping = shaping
        self._running = False
        self._task_key = ""
        self._state_key = ""
        self._potential = 0.0
        self._scale = 0.0
        self._waiting: list[tuple[str, str, str, bool]] = []

    def begin(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode and return `info` with what shaping adds. The scale of this moment holds until its end."""
        self.flush()
        self._task_key = str(info.get("task_key", ANY_TASK))
        self._state_key = self._shaping.state_key(observation, info)
        self._scale = self._shaping.scale
        self._running = True
        if self._shaping.update != "never":
            self._graph.add_state(self._state_key, success=bool(info.get("success", False)))
        self._potential = self._graph.potential(self._state_key)
        return {**info, "native_reward": 0.0, "shaping": 0.0, "potential": self._potential}

    def advance(
        self, action: Any, observation: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> tuple[float, dict[str, Any]]:
        """Follow one step; return the shaped reward and `info` with what shaping adds.

        Raises `ResetNeeded` when no episode is under way.
        """
        if not self._running:
            raise ResetNeeded("no episode is under way: call reset() before step()")
        native = float(reward)
        key = self._shaping.state_key(observation, info)
        success = self._shaping.success(native, terminated, info)
        node = outcome_node(key, terminated=terminated, success=success)
        if info.get("action_valid", True):  # an invalid action is not a step of the task, and its text may be anything
            self._observe(action, node, success)
        # The flag says what a success and a failed ending are worth, also where the graph may not learn or is full.
        potential = 1.0 if success else 0.0 if terminated else self._graph.potential(node)
        ended = terminated or truncated
        # An end has potential 0, the time limit's too: else the return keeps a term that depends on the policy.
        counted = 0.0 if ended and self._shaping.invariant else potential
        # The potential of the state left is the one it had on arrival: the graph may have grown since.
        bonus = self._scale * (self._shaping.discount * counted - self._potential)
        self._state_key, self._potential, self._running = node, potential, not ended
        return native + bonus, {**info, "native_reward": native, "shaping": bonus, "potential": potential}

    def flush(self) -> None:
        """Hand steps that wait for the end of the episode to the graph."""
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
    """Return a name for any action: equal actions, equal names."""
    if isinstance(action, str):
        return action
    return repr(action.tolist() if isinstance(action, (np.ndarray, np.generic)) else action)
