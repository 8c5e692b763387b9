"""Credit: one advantage per turn, from the outcomes of a batch of groups. Pure functions.

Every function takes a batch (a sequence of `Group`s) and returns advantages as nested lists,
`advantages[group][episode][turn]`.

- `grpo`: the outcome against the group, in standard deviations (Shao et al., 2024).
- `rloo`: the outcome against the mean of the others (Ahmadian et al., 2024).
- `gigpo`: that of an episode, plus the discounted return of a turn against other turns decided in the same state
  (Feng et al., 2025).
- `rewardflow`: that of an episode, plus the potential of the state reached, in the graph of the whole group, against
  other turns decided in the same state. `graphgpo` is the same with standard deviations.

Arguments that all share:

- `outcome`: what an episode is worth. `"success"` is 1 or 0; `"return"` is the sum of native rewards.
- `scope`: which episodes an episode is compared with: its `"group"`, all of its `"source"` in the batch, or the whole
  `"batch"`. The comparison of turns always stays within the group.
- `statistics`: `"episode"` counts every episode once (default); `"turn"` counts it once per turn, so that long ones
  weigh more.
- `norm` (not for `rloo` and `graphgpo`): `"mean"` subtracts the mean; `"std"` also divides by the sample standard
  deviation + 1e-6. Samples that are all equal give 0.
- `compat`: True reproduces the released code of RewardFlow and GiGPO: 10 for a success, statistics per turn (unless
  you say otherwise), an episode alone keeps its raw outcome, and for `rewardflow` the graph of
  `agentgym_flow.rewards.published`.

An episode alone in its scope, or a turn alone in its state, is compared with itself and gets 0. Similar but unequal
states are never merged, as the published code can do by text similarity: a state key says what is equal. Errors:
`UnknownOption` for a word that is none of these, `BadSetting` for a number out of range, `BadData` for a reward that
is not finite.

A function that also weighs whole episodes (CWRPO) keeps this signature for its advantages. Its weights are a second
pure function of the same batch that returns `weights[group][episode]`; a batch without such a function has weight 1
everywhere. So no caller of the functions here changes.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, get_args

from agentgym_flow.episode import Episode, Group
from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.rewards.published import published_step_rewards
from agentgym_flow.rewards.relabel import NoOp, group_graph, passages
from agentgym_flow.rewards.state_graph import EdgeMode

Advantages: TypeAlias = list[list[list[float]]]
"""`advantages[group][episode][turn]`."""
Outcome = Literal["success", "return"]
Scope = Literal["group", "source", "batch"]
Statistics = Literal["episode", "turn"]
Norm = Literal["mean", "std"]

EPSILON = 1e-6
"""Added to standard deviations, as published."""
PUBLISHED_SUCCESS = 10.0
"""The reward of a success in the released code."""


class CreditFunction(Protocol):
    """What a trainer calls; further keywords differ by function."""

    def __call__(
        self,
        batch: Sequence[Group],
        *,
        outcome: Outcome = ...,
        scope: Scope = ...,
        statistics: Statistics | None = ...,
        compat: bool = ...,
    ) -> Advantages:
        """Return the advantages of all turns of a batch."""


def grpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "std",
    statistics: Statistics | None = None,
    compat: bool = False,
) -> Advantages:
    """Return A = (outcome - mean) / std over the scope, the same for all turns of an episode."""
    _check(norm, Norm)
    return _per_turn(batch, _episode_advantages(batch, outcome, scope, norm, statistics, compat))


def rloo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    compat: bool = False,
) -> Advantages:
    """Return A = outcome - mean of the others in the scope, the same for all turns of an episode."""
    return _per_turn(batch, _episode_advantages(batch, outcome, scope, "others", statistics, compat))


def gigpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "mean",
    statistics: Statistics | None = None,
    gamma: float = 0.95,
    weight: float = 1.0,
    compat: bool = False,
) -> Advantages:
    """Return the episode's advantage plus `weight` times that of the turn's return, among turns in the same state.

    `gamma`, in [0, 1], discounts rewards within an episode.
    """
    _check(norm, Norm)
    if not 0.0 <= gamma <= 1.0:
        raise BadSetting(f"gamma must be in [0, 1], got {gamma!r}")
    of_episodes = _episode_advantages(batch, outcome, scope, norm, statistics, compat)
    signals = [[_discounted(_rewards(episode, outcome, compat), gamma) for episode in group] for group in batch]
    anchors = [[[turn.state_key for turn in episode.turns] for episode in group] for group in batch]
    return _add_steps(batch, of_episodes, signals, anchors, norm, weight)


def rewardflow(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "mean",
    statistics: Statistics | None = None,
    gamma: float = 0.9,
    weight: float = 1.0,
    edges: EdgeMode = "directed",
    bridge_noops: NoOp = False,
    compat: bool = False,
) -> Advantages:
    """Return the episode's advantage plus `weight` times that of the state reached, among turns in the same state.

    The potential of a state is `gamma ** (observed steps to the nearest success)` in the graph of the group; `edges`
    and `bridge_noops` are those of `relabel`. Turns compared share the state they leave, so the difference of
    potentials and the potential reached give the same advantage.
    """
    _check(norm, Norm)
    of_episodes = _episode_advantages(batch, outcome, scope, norm, statistics, compat)
    loop_turns = max((len(episode.turns) for group in batch for episode in group), default=0)
    signals, anchors = [], []
    for group in batch:
        walked = [list(passages(episode, bridge_noops)) for episode in group]
        if compat:
            rewards = [_rewards(episode, outcome, compat) for episode in group]
            signals.append(
                published_step_rewards(
                    group, rewards, loop_turns=loop_turns, gamma=gamma, edges=edges, bridge_noops=bridge_noops
                )
            )
            anchors.append([[step.turn.state_key for step in steps] for steps in walked])
        else:
            graph = group_graph(group, gamma=gamma, edges=edges, bridge_noops=bridge_noops)
            signals.append([[graph.potential(step.dst) for step in steps] for steps in walked])
            anchors.append([[step.src for step in steps] for steps in walked])
    return _add_steps(batch, of_episodes, signals, anchors, norm, weight)


def graphgpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    gamma: float = 0.9,
    weight: float = 1.0,
    edges: EdgeMode = "directed",
    bridge_noops: NoOp = False,
    compat: bool = False,
) -> Advantages:
    """Return `rewardflow(norm="std")`.

    GraphGPO (2026) scores a step by r * gamma ** (distance after it + 1) and standardises among steps from the same
    state. A constant factor does not survive that, so it is this estimator.
    """
    return rewardflow(
        batch,
        outcome=outcome,
        scope=scope,
        norm="std",
        statistics=statistics,
        gamma=gamma,
        weight=weight,
        edges=edges,
        bridge_noops=bridge_noops,
        compat=compat,
    )


CREDIT: Mapping[str, CreditFunction] = {
    "grpo": grpo,
    "rloo": rloo,
    "gigpo": gigpo,
    "rewardflow": rewardflow,
    "graphgpo": graphgpo,
}
"""Algorithm name -> its credit function."""


def settings_of(name: str) -> dict[str, Any]:
    """Return the keyword arguments of a credit function with their defaults: the constants of its paper.

    Raises `UnknownOption` when there is no such function.
    """
    if name not in CREDIT:
        raise UnknownOption.among(name, CREDIT, "These are the credit functions.")
    parameters = inspect.signature(CREDIT[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


# ---------------------------------------------------------------- episodes
def _episode_advantages(
    batch: Sequence[Group],
    outcome: Outcome,
    scope: Scope,
    norm: str,
    statistics: Statistics | None,
    compat: bool,
) -> list[list[float]]:
    _check(outcome, Outcome)
    _check(scope, Scope)
    counting = statistics or ("turn" if compat else "episode")
    _check(counting, Statistics)
    samples: dict[Any, list[float]] = defaultdict(list)
    for place, group in enumerate(batch):
        for episode in group:
            copies = 1 if counting == "episode" else len(episode.turns)
            samples[_scope_key(scope, place, episode)] += [_worth(episode, outcome, compat)] * copies
    baselines = {key: _baseline(values, norm, compat) for key, values in samples.items()}
    advantages = []
    for place, group in enumerate(batch):
        rows = []
        for episode in group:
            mean, divisor = baselines[_scope_key(scope, place, episode)]
            rows.append((_worth(episode, outcome, compat) - mean) / divisor)
        advantages.append(rows)
    return advantages


def _scope_key(scope: Scope, place: int, episode: Episode) -> Any:
    return {"group": place, "source": episode.source, "batch": None}[scope]


def _worth(episode: Episode, outcome: Outcome, compat: bool) -> float:
    return math.fsum(_rewards(episode, outcome, compat))


def _rewards(episode: Episode, outcome: Outcome, compat: bool) -> list[float]:
    """Return the reward of every turn that adds up to the episode's outcome."""
    if outcome == "success":
        rewards = [0.0] * len(episode.turns)
        if episode.success:
            rewards[-1] = PUBLISHED_SUCCESS if compat else 1.0
        return rewards
    rewards = [float(turn.reward) for turn in episode.turns]
    if not all(map(math.isfinite, rewards)):
        raise BadData(f"task {episode.task_key} attempt {episode.attempt} has a reward that is not finite")
    return rewards


def _per_turn(batch: Sequence[Group], of_episodes: list[list[float]]) -> Advantages:
    return [
        [[advantage] * len(episode.turns) for episode, advantage in zip(group, rows, strict=True)]
        for group, rows in zip(batch, of_episodes, strict=True)
    ]


# ---------------------------------------------------------------- turns
def _discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return R_t = r_t + gamma * R_{t+1}."""
    returns, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        following = returns[t] = rewards[t] + gamma * following
    return returns


def _add_steps(
    batch: Sequence[Group],
    of_episodes: list[list[float]],
    signals: list[list[list[float]]],
    anchors: list[list[list[str]]],
    norm: Norm,
    weight: float,
) -> Advantages:
    """Return the episodes' advantages plus those of the signals among turns that share an anchor in their group."""
    if not math.isfinite(weight):
        raise BadSetting(f"weight must be a finite number, got {weight!r}")
    advantages = _per_turn(batch, of_episodes)
    for rows, of_group, keys in zip(advantages, signals, anchors, strict=True):
        members: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for e, of_episode in enumerate(keys):
            for t, key in enumerate(of_episode):
                members[key].append((e, t))
        for places in members.values():
            mean, divisor = _baseline([of_group[e][t] for e, t in places], norm)
            for e, t in places:
                rows[e][t] += weight * (of_group[e][t] - mean) / divisor
    return advantages


def _baseline(values: Sequence[float], norm: str, keep_single: bool = False) -> tuple[float, float]:
    """Return what to subtract and what to divide by. Sums are exact, so the order of samples does not matter."""
    count = len(values)
    if count == 1 and keep_single:
        return 0.0, 1.0 + EPSILON if norm == "std" else 1.0
    if not values or min(values) == max(values):
        return (values[0] if values else 0.0), 1.0
    mean = math.fsum(values) / count
    if norm == "others":
        return mean, (count - 1) / count
    if norm == "std":
        return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1)) + EPSILON
    return mean, 1.0


def _check(value: object, allowed: Any) -> None:
    if value not in get_args(allowed):
        raise UnknownOption.among(value, get_args(allowed))
