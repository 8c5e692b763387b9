"""The shared parts of credit functions: values of episodes, the samples they are compared with, and baselines.

`agentgym_flow.rewards.credit` explains the arguments.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from agentgym_flow._util.values import is_number
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadData, BadSetting, UnknownOption, shown

Advantages: TypeAlias = list[list[list[float]]]
"""`advantages[group][episode][turn]`."""
Weights: TypeAlias = list[list[float]]
"""`weights[group][episode]`."""
Values: TypeAlias = list[list[list[float]]]
"""`values[group][episode][turn]`."""
Keys: TypeAlias = list[list[list[str]]]
"""`keys[group][episode][turn]`."""
Outcome = Literal["success", "return"]
Scope = Literal["group", "task_type", "batch"]
Statistics = Literal["episode", "turn"]
Norm = Literal["mean", "std"]

EPSILON = 1e-6
"""Added to standard deviations, as published."""
PUBLISHED_SUCCESS = 10.0
"""The reward of a success in the released code of RewardFlow and GiGPO."""
FLOOR = 0.01
"""The smallest standard deviation in the released code of FlowSteer."""


def episode_advantages(
    batch: Sequence[Group],
    outcome: Outcome,
    scope: Scope,
    norm: str,
    statistics: Statistics | None,
    reproduce_official: bool,
    policy: str | None,
) -> list[list[float]]:
    """Return one advantage per episode, `[group][episode]`; `norm` is as in `baseline`.

    The advantage of an episode without turns of `policy` is undefined.
    """
    check_shared(outcome, scope, statistics, reproduce_official)
    counting = statistics or ("turn" if reproduce_official else "episode")
    samples: dict[Hashable, list[float]] = defaultdict(list)
    for place, group in enumerate(batch):
        for episode in group:
            copies = int(episode.counts_for(policy)) if counting == "episode" else len(episode.turns_by(policy))
            samples[scope_key(scope, place, episode)] += [worth(episode, outcome, reproduce_official)] * copies
    baselines = {key: baseline(values, norm, reproduce_official) for key, values in samples.items()}
    advantages = []
    for place, group in enumerate(batch):
        rows = []
        for episode in group:
            mean, divisor = baselines[scope_key(scope, place, episode)]
            rows.append((worth(episode, outcome, reproduce_official) - mean) / divisor)
        advantages.append(rows)
    return advantages


def scope_key(scope: Scope, place: int, episode: Episode) -> Hashable:
    """Return the key of the scope of an episode; `place` is the index of its group."""
    return {"group": place, "task_type": episode.task_type, "batch": None}[scope]


def worth(episode: Episode, outcome: Outcome, reproduce_official: bool) -> float:
    """Return the value of an episode."""
    return math.fsum(rewards_of(episode, outcome, reproduce_official))


def rewards_of(episode: Episode, outcome: Outcome, reproduce_official: bool) -> list[float]:
    """Return one reward per turn; their sum is the outcome of the episode. Raises `BadData` if one is not finite."""
    if outcome == "success":
        rewards = [0.0] * len(episode.turns)
        if episode.success:
            rewards[-1] = PUBLISHED_SUCCESS if reproduce_official else 1.0
        return rewards
    rewards = [float(turn.reward) for turn in episode.turns]
    if not all(map(math.isfinite, rewards)):
        raise BadData(f"task {episode.task_key} attempt {episode.attempt} has a reward that is not finite")
    return rewards


def per_turn(batch: Sequence[Group], of_episodes: list[list[float]], policy: str | None) -> Advantages:
    """Return the episode's advantage for every turn of `policy`, and 0 for other turns."""
    return [
        [
            [advantage if policy is None or turn.is_by(policy) else 0.0 for turn in episode.turns]
            for episode, advantage in zip(group, rows, strict=True)
        ]
        for group, rows in zip(batch, of_episodes, strict=True)
    ]


def add_comparison_in_state(
    batch: Sequence[Group],
    of_episodes: list[list[float]],
    values: Values,
    levels: Sequence[Keys],
    norm: Norm,
    weight: float,
    policy: str | None,
    fewest: int = 2,
) -> Advantages:
    """Return the episode's advantage for every turn, plus `weight` times the advantage of its value within its state.

    A turn is compared with the turns of its group that have the same key. If there are several levels of keys, the
    comparison uses the first level at which at least `fewest` turns share the key, or else the last level. Only turns
    of `policy` are compared and get an advantage.

    Args:
        batch: the groups.
        of_episodes: the advantages of episodes, `[group][episode]`.
        values: the value of each turn, `[group][episode][turn]`.
        levels: keys of the states before the turns, each of the same shape; the finest level comes first.
        norm: as in `baseline`.
        weight: the weight of the comparison within a state.
        policy: the policy whose turns get credit; None for all.
        fewest: the number of turns that is enough for a comparison.

    Raises:
        BadSetting: `weight` is not a finite number.
    """
    if not is_number(weight):
        raise BadSetting(f"weight must be a finite number, got {shown(weight)}")
    advantages = per_turn(batch, of_episodes, policy)
    for place, (group, rows, of_group) in enumerate(zip(batch, advantages, values, strict=True)):
        own = [
            (e, t)
            for e, episode in enumerate(group)
            for t, turn in enumerate(episode.turns)
            if policy is None or turn.is_by(policy)
        ]
        compared = []  # the keys of each level, and baselines for keys that enough turns share
        for level, of_batch in enumerate(levels, 1):
            keys, alike = of_batch[place], defaultdict(list)
            for e, t in own:
                alike[keys[e][t]].append(of_group[e][t])
            enough = fewest if level < len(levels) else 1
            compared.append((keys, {k: baseline(found, norm) for k, found in alike.items() if len(found) >= enough}))
        for e, t in own:
            for keys, baselines in compared:
                if (key := keys[e][t]) in baselines:
                    mean, divisor = baselines[key]
                    rows[e][t] += weight * (of_group[e][t] - mean) / divisor
                    break
    return advantages


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return R_t = r_t + gamma * R_{t+1}."""
    returns, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        following = returns[t] = rewards[t] + gamma * following
    return returns


def baseline(values: Sequence[float], norm: str, keep_single: bool = False) -> tuple[float, float]:
    """Return the mean and the divisor of a comparison. Sums are exact, so the order of samples does not matter.

    The divisor of `norm="mean"` is 1. `"others"` compares with the mean of the other samples. `"std"` divides by the
    sample standard deviation, and `"floor"` by the population standard deviation, which is at least `FLOOR`.
    """
    count = len(values)
    if count == 1 and keep_single:
        return 0.0, 1.0 + EPSILON if norm == "std" else 1.0
    if not values or min(values) == max(values):
        return (values[0] if values else 0.0), 1.0
    mean = math.fsum(values) / count
    if norm == "others":
        return mean, (count - 1) / count
    if norm == "mean":
        return mean, 1.0
    squares = math.fsum((value - mean) ** 2 for value in values)
    if norm == "floor":
        return mean, max(math.sqrt(squares / count), FLOOR)
    return mean, math.sqrt(squares / (count - 1)) + EPSILON


def check_shared(outcome: Outcome, scope: Scope, statistics: Statistics | None, reproduce_official: bool) -> None:
    """Check the settings that all credit functions have. Raises `UnknownOption` or `BadSetting`."""
    check_word(outcome, Outcome)
    check_word(scope, Scope)
    if statistics is not None:
        check_word(statistics, Statistics)
    if not isinstance(reproduce_official, bool):
        raise BadSetting(f"reproduce_official must be true or false, got {shown(reproduce_official)}")


def check_word(value: object, allowed: Any) -> None:
    """Raise `UnknownOption` unless `value` is in the literal type `allowed`."""
    if value not in get_args(allowed):
        raise UnknownOption.among(value, get_args(allowed))


def check_gamma(gamma: float) -> None:
    """Raise `BadSetting` unless `gamma` is a number in [0, 1]."""
    if not (is_number(gamma) and 0.0 <= gamma <= 1.0):
        raise BadSetting(f"gamma must be in [0, 1], got {shown(gamma)}")
