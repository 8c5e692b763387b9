"""Dense rewards in other, non-text environments: tabular Q-learning with and without `RewardFlow`.

    python benchmarks/foreign_rewards.py            # FrozenLake; with `pip install minigrid` DoorKey as well

Each learner acts epsilon-greedily on one fixed layout and updates after every step. The two learners differ only in the
wrapper. A cell is the success rate in a quarter of training: the mean over seeds, with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym_flow.leaderboard.statistics import clustered_mean
from agentgym_flow.rewards import RewardFlow

QUARTERS, GAMMA = 4, 0.99


@dataclass(frozen=True)
class Case:
    """An environment and its state key."""

    name: str
    make: Callable[[], gym.Env[Any, Any]]
    key: Callable[[gym.Env[Any, Any], Any], Any]
    episodes: int


def solved(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    """Return whether a step reached the goal, the only reward of both environments."""
    return terminated and reward > 0


def learn(case: Case, dense: bool, seed: int, episodes: int) -> list[bool]:
    """Train one learner; return whether each episode succeeded."""
    env: gym.Env[Any, Any] = case.make()
    bare = env
    if dense:
        env = RewardFlow(env, key_fn=lambda seen, _: str(case.key(bare, seen)), success_fn=solved, gamma=GAMMA)
    rng = np.random.default_rng(seed)
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    values: dict[Any, np.ndarray] = defaultdict(lambda: np.zeros(actions))
    wins = []
    for episode in range(episodes):
        seen, _ = env.reset(seed=seed) if episode == 0 or case.name.startswith("MiniGrid") else env.reset()
        state, done, won = case.key(bare, seen), False, False
        while not done:
            best = np.flatnonzero(values[state] == values[state].max())
            action = int(rng.integers(actions) if rng.random() < 0.1 else rng.choice(best))
            seen, reward, terminated, truncated, info = env.step(action)
            following, done = case.key(bare, seen), terminated or truncated
            native = info["native_reward"] if dense else reward
            won = won or solved(float(native), terminated, info)
            target = float(reward) + (0 if terminated else GAMMA * values[following].max())
            if dense and truncated and not terminated:  # the episode was truncated: add the value of its last state
                target += GAMMA * info["potential"]
            values[state][action] += 0.2 * (target - values[state][action])
            state = following
        wins.append(won)
    env.close()
    return wins


def cases() -> list[Case]:
    """Return the environments that are installed."""
    found = [
        Case("FrozenLake-v1, slippery", lambda: gym.make("FrozenLake-v1", is_slippery=True), lambda _, seen: seen, 4000)
    ]
    if find_spec("minigrid") is not None:
        importlib.import_module("minigrid")  # registers its ids

        name = "MiniGrid-DoorKey-5x5-v0"
        found.append(Case(name, lambda: gym.make(name), lambda env, _: env.unwrapped.hash(), 400))  # type: ignore[attr-defined]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="fraction of the episodes, for a quick look")
    asked = parser.parse_args(arguments)
    sys.stdout.write("| environment | reward | " + " | ".join(f"quarter {n + 1}" for n in range(QUARTERS)) + " |\n")
    sys.stdout.write("|---" * (2 + QUARTERS) + "|\n")
    for case in cases():
        episodes = max(QUARTERS, int(case.episodes * asked.share))
        for dense in (False, True):
            runs = np.array([learn(case, dense, seed, episodes) for seed in range(asked.seeds)], float)
            quarters = [part.mean(axis=1) for part in np.array_split(runs, QUARTERS, axis=1)]
            found = [clustered_mean(quarter[:, None]) for quarter in quarters]
            cells = " | ".join(f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in found)
            sys.stdout.write(f"| {case.name} | {'RewardFlow' if dense else 'native'} | {cells} |\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
