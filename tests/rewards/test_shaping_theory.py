"""What the theory promises, measured through the wrapper on small decision processes.

Ng, Harada and Russell (1999): potential-based shaping keeps the optimal policies. Grzes (2017): at every end of an
episode the potential is 0. Devlin and Kudenko (2012): a growing graph changes nothing of that when each state's
potential is looked up once, on arrival.
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.rewards import GraphStore, RewardFlow

STATES, ACTIONS = 4, 2
GOAL, PIT = STATES, STATES + 1  # the two endings

outcome = st.tuples(st.integers(0, STATES + 1), st.integers(-4, 4).map(lambda r: r / 2))
# Two outcomes with the probability of the first in quarters, per state and action.
models = st.lists(st.tuples(outcome, outcome, st.integers(0, 4)), min_size=STATES * ACTIONS, max_size=STATES * ACTIONS)


class Tabular(gym.Env[int, int]):
    """A decision process given as a table; `force` picks the state to start from and which of two outcomes follows."""

    observation_space = gym.spaces.Discrete(STATES + 2)
    action_space = gym.spaces.Discrete(ACTIONS)

    def __init__(self, table, horizon=None):
        self.table, self.horizon = table, horizon
        self.state, self.branch, self.steps = 0, 0, 0

    def reset(self, *, seed=None, options=None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.steps = (options or {}).get("state", 0), 0
        return self.state, {}

    def step(self, action):
        *outcomes, _ = self.table[self.state * ACTIONS + action]
        self.state, reward = outcomes[self.branch]
        self.steps += 1
        terminated = self.state >= STATES
        truncated = not terminated and self.steps == self.horizon
        return self.state, reward, terminated, truncated, {"success": self.state == GOAL}


def shaped(table, *, horizon=None, **keywords) -> RewardFlow:
    return RewardFlow(Tabular(table, horizon), key_fn=lambda observation, info: observation, **keywords)


def explore(env: RewardFlow, walks) -> None:
    """Let the wrapper see some episodes, so that its graph knows something."""
    for walk in walks:
        env.reset()
        for action, branch in walk:
            env.unwrapped.branch = branch
            if any(env.step(action)[2:4]):
                break


def best_actions(probabilities, rewards, successors, gamma) -> list[list[int]]:
    """Value iteration; the actions within 1e-6 of the best, per state."""
    values = np.zeros(STATES + 2)
    for _ in range(600):
        q = (probabilities * (rewards + gamma * values[successors])).sum(axis=2)
        values[:STATES] = q.max(axis=1)
    return [[a for a in range(ACTIONS) if q[s, a] > q[s].max() - 1e-6] for s in range(STATES)]


walks = st.lists(
    st.lists(st.tuples(st.integers(0, ACTIONS - 1), st.integers(0, 1)), min_size=1, max_size=8), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(models, walks, st.sampled_from([0.5, 0.8]), st.sampled_from([0.5, 1.0, -2.0]), st.sampled_from([0.0, 0.5]))
def test_optimal_policies_stay_optimal(table, seen, gamma, scale, unknown):
    """Rewards of every (state, action, outcome) come from the wrapper itself, with a graph learned from random play."""
    store = GraphStore(unknown_potential=unknown)
    explore(shaped(table, graphs=store), seen)
    env = shaped(table, graphs=store, gamma=gamma, scale=scale, update="never")
    shape = (STATES, ACTIONS, 2)
    probabilities, native, bonus = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    successors = np.zeros(shape, int)
    for s, a, branch in itertools.product(range(STATES), range(ACTIONS), range(2)):
        env.reset(options={"state": s})
        env.unwrapped.branch = branch
        successors[s, a, branch], reward, _, _, info = env.step(a)
        native[s, a, branch] = info["native_reward"]
        bonus[s, a, branch] = info["shaping"]
        assert reward == info["native_reward"] + info["shaping"]
        quarters = table[s * ACTIONS + a][2]
        probabilities[s, a, branch] = (quarters if branch == 0 else 4 - quarters) / 4
    before = best_actions(probabilities, native, successors, gamma)
    assert best_actions(probabilities, native + bonus, successors, gamma) == before


@settings(deadline=None)
@given(models, walks, st.sampled_from([0.9, 1.0]), st.sampled_from(["step", "reset", "never"]), st.integers(1, 8))
def test_returns_of_a_growing_graph_move_by_the_first_potential_alone(table, seen, gamma, update, horizon):
    """The discounted return moves by -scale * potential(first state), whatever the policy and the ending."""
    env = shaped(table, horizon=horizon, gamma=gamma, scale=3.0, update=update)
    for walk in seen + seen:
        _, info = env.reset()
        first, native, total, discount = info["potential"], 0.0, 0.0, 1.0
        ended = False
        for action, branch in itertools.islice(itertools.cycle(walk), 40):
            env.unwrapped.branch = branch
            _, reward, terminated, truncated, info = env.step(action)
            native += discount * info["native_reward"]
            total += discount * reward
            discount *= gamma
            ended = terminated or truncated
            if ended:
                break
        left_over = 0.0 if ended else discount * info["potential"]
        assert total - native == pytest.approx(3.0 * (left_over - first), abs=1e-9)


@settings(deadline=None)
@given(models, walks, st.integers(1, 8))
def test_the_published_form_sums_to_the_difference_of_end_potentials(table, seen, horizon):
    env = shaped(table, horizon=horizon, shaping="rewardflow", scale=2.0)
    for walk in seen + seen:
        _, info = env.reset()
        first, bonus = info["potential"], 0.0
        for action, branch in walk:
            env.unwrapped.branch = branch
            _, _, terminated, truncated, info = env.step(action)
            bonus += info["shaping"]
            if terminated or truncated:
                break
        assert bonus == pytest.approx(2.0 * (info["potential"] - first), abs=1e-9)
        if terminated:
            assert info["potential"] == float(info["success"])


def test_the_published_form_prefers_failing_near_a_success():
    """Why it is not the default: an episode that stops next to the goal is paid for it."""
    onward = [((min(s + 1, GOAL), 0.0), (s, 0.0), 4) for s in range(STATES) for _ in range(ACTIONS)]
    store = GraphStore()
    explore(shaped(onward, graphs=store), [[(0, 0)] * STATES])
    returns = {}
    for form in ("rewardflow", "invariant"):
        for steps in (1, 3):
            env = shaped(onward, horizon=steps, shaping=form, gamma=1.0, graphs=store)
            env.reset()
            returns[form, steps] = sum(env.step(0)[1] for _ in range(steps))
    assert returns["rewardflow", 3] > returns["rewardflow", 1]
    assert returns["invariant", 3] == pytest.approx(returns["invariant", 1])
