"""The step rewards of the released RewardFlow code, including its defects, for comparison with published results.

For training, use `agentgym_flow.rewards.relabel`. The released code differs from it as follows:

- A node is a success if the first reward observed there, in the order of episodes, is positive. Two outcomes that
  share a state key get one value, which depends on the order. Negative rewards propagate as well.
- The loop that collects a batch never sees the state after its last turn. Steps of that turn are in no graph, and
  their step reward is the environment's own reward.
- State keys are the texts shown to the policy, as in `official_key`.
- Values are the result of exactly 1,000 synchronous sweeps, on the scale of the rewards (10 for a success).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agentgym_flow.core import OFFICIAL_KEY
from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.errors import BadData
from agentgym_flow.rewards.relabel import NoOp, turn_edges
from agentgym_flow.rewards.state_graph import EdgeMode

SWEEPS = 1000
"""The number of sweeps over all edges in the released code."""


def by_published_keys(group: Group) -> Group:
    """Return a copy of a group with the state keys of the released code.

    Raises `BadData` if a turn has no `official_key`, which the recorder must keep.
    """
    return Group([_renamed(episode) for episode in group])


def _renamed(episode: Episode) -> Episode:
    turns = []
    for turn in episode.turns:
        if turn.official_key is None or turn.next_official_key is None:
            raise BadData(
                f"reproduce_official=True compares states by info[{OFFICIAL_KEY!r}], and a turn of task "
                f"{episode.task_key} has none: record it with EpisodeRecorder(env, keep=[{OFFICIAL_KEY!r}]); without "
                "the key it has no published states, so leave reproduce_official out"
            )
        turns.append(replace(turn, state_key=turn.official_key, next_state_key=turn.next_official_key))
    return replace(episode, turns=turns)


def sweep_values(
    rewards: Sequence[float], edges: Sequence[tuple[int, int]], gamma: float, sweeps: int = SWEEPS
) -> NDArray[np.float64]:
    """Return V after synchronous updates V(s) <- max(V(s), gamma * max over s -> s' of V(s')), from V = `rewards`.

    Stops early if a sweep changes nothing, which gives the same values. `edges` contains pairs of node indices.
    """
    values = np.array(rewards, np.float64)
    if not edges:
        return values
    tails, heads = np.array(edges, np.intp).T
    for _ in range(sweeps):
        updated = values.copy()
        np.maximum.at(updated, tails, gamma * values[heads])
        if np.array_equal(updated, values):
            break
        values = updated
    return values


def published_values(
    group: Group,
    rewards: Sequence[Sequence[float]],
    loop_turns: int,
    *,
    gamma: float,
    edges: EdgeMode,
    bridge_noops: NoOp,
) -> dict[str, float]:
    """Return the value of every state of the group's graph, as in the released code.

    Args:
        group: attempts at one task.
        rewards: the reward of every turn, `[episode][turn]`.
        loop_turns: the number of turns of the longest episode in the batch; the last one is omitted.
        gamma: the discount per step.
        edges: `"directed"`, or `"symmetric"` as before the change of February 2026.
        bridge_noops: the turns that count as no-ops, as for ALFWorld.
    """
    numbers: dict[str, int] = {}
    first_rewards: list[float] = []
    pairs: dict[tuple[int, int], None] = {}

    def number(key: str, reward: float) -> int:
        if key not in numbers:
            numbers[key] = len(numbers)
            first_rewards.append(reward)
        return numbers[key]

    for episode, of_turns in zip(group, rewards, strict=True):
        entered = 0.0  # the reward on entering the present state
        for t, (turn, src, _, bridged) in enumerate(turn_edges(episode, bridge_noops)):
            if t == loop_turns - 1 or bridged:
                continue
            if turn.next_state_key != src:
                pair = number(src, entered), number(turn.next_state_key, of_turns[t])
                pairs[pair] = None
                if edges == "symmetric":
                    pairs[pair[::-1]] = None
            entered = of_turns[t]
    values = sweep_values(first_rewards, list(pairs), gamma)
    return {key: float(values[node]) for key, node in numbers.items()}


def published_step_rewards(
    group: Group, rewards: Sequence[Sequence[float]], loop_turns: int, values: Mapping[str, float]
) -> list[list[float]]:
    """Return V(s') - V(s), `[episode][turn]`, or the reward itself on the last turn of the loop.

    `values` are those of `published_values` for the same group, rewards and `loop_turns`.
    """

    def step_reward(t: int, turn: Turn, reward: float) -> float:
        lost = t == loop_turns - 1
        return reward if lost else values.get(turn.next_state_key, 0.0) - values.get(turn.state_key, 0.0)

    return [
        [step_reward(t, turn, of_turns[t]) for t, turn in enumerate(episode.turns)]
        for episode, of_turns in zip(group, rewards, strict=True)
    ]
