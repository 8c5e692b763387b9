"""Credit: one advantage per turn, from the outcomes of a batch of groups. Pure functions.

Every function takes a batch (a sequence of `Group`s) and returns advantages as nested lists,
`advantages[group][episode][turn]`.

- `grpo`: the outcome against the group, in standard deviations (Shao et al., 2024).
- `rloo`: the outcome against the mean of the others (Ahmadian et al., 2024).
- `gigpo`: that of an episode, plus the discounted return of a turn against other turns decided in the same state
  (Feng et al., 2025).
- `rewardflow`: that of an episode, plus the potential of the state reached, in the graph of the whole group, against
  other turns decided in the same state. `graphgpo` is the same with standard deviations.
- `cwrpo`: as `grpo`, from returns, and the loss is a mean over episodes instead of tokens (FlowSteer, 2026); see
  `agentgym_flow.rewards.cwrpo`.

Arguments that all share:

- `outcome`: what an episode is worth. `"success"` is 1 or 0; `"return"` is the sum of native rewards.
- `scope`: which episodes an episode is compared with: its `"group"`, all of its `"task_type"` in the batch, or the
  whole `"batch"`. The comparison of turns stays within the group (that of `cwrpo` follows the scope).
- `statistics`: `"episode"` counts every episode once (default); `"turn"` counts it once per turn, so that long ones
  weigh more.
- `norm` (of `grpo`, `gigpo` and `rewardflow`): `"mean"` subtracts the mean; `"std"` also divides by the sample standard
  deviation + 1e-6. Samples that are all equal give 0.
- `compat`: True reproduces the released code of RewardFlow and GiGPO: 10 for a success, statistics per turn (unless
  you say otherwise), and an episode alone keeps its raw outcome. States are what its code takes for them: for `gigpo`
  the observation, for `rewardflow` and `graphgpo` the environment's `compat_key`, which the recorder has to keep
  (`COMPAT_READS`), in the graph of `agentgym_flow.rewards.published`. For `cwrpo` it is the code of FlowSteer.
- `policy`: the name of one of several policies that share the episodes. Its turns are compared with its own turns only,
  and its episodes with others in which it acted, as in Dr. MAS (2026), where `statistics` is `"turn"`. The turns of
  other policies get 0. What an episode or a turn is worth, and the graph of `rewardflow`, come from all turns. None
  (default) makes no difference between policies.

An episode alone in its scope, or a turn alone in its state, is compared with itself and gets 0. Similar but unequal
states are never merged, as the published code can do by text similarity: a state key says what is equal. Errors:
`UnknownOption` for a word that is none of these, `BadSetting` for a number out of range, `BadData` for a reward that
is not finite.

An algorithm that also weighs whole episodes (CWRPO) has a second pure function of the same batch, in `WEIGHTS`, that
returns `weights[group][episode]`; without one every episode has weight 1.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol

from agentgym_flow.core import COMPAT_KEY
from agentgym_flow.episode import Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.importing import find_modules_here, imported
from agentgym_flow.rewards.comparison import (
    Advantages,
    Norm,
    Outcome,
    Scope,
    Statistics,
    Weights,
    baseline,
    check_gamma,
    check_word,
    discounted,
    episode_advantages,
    per_turn,
    rewards_of,
)
from agentgym_flow.rewards.cwrpo import cwrpo, trajectory_weights
from agentgym_flow.rewards.published import by_published_keys, published_step_rewards
from agentgym_flow.rewards.relabel import NoOp, group_graph, passages
from agentgym_flow.rewards.state_graph import EdgeMode


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
        policy: str | None = ...,
    ) -> Advantages:
        """Return the advantages of all turns of a batch."""


class WeightFunction(Protocol):
    """What a trainer calls beside it, for algorithms that weigh episodes."""

    def __call__(self, batch: Sequence[Group], *, observations: bool = ..., policy: str | None = ...) -> Weights:
        """Return the weights of all episodes of a batch."""


def grpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "std",
    statistics: Statistics | None = None,
    compat: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return A = (outcome - mean) / std over the scope, the same for all turns of an episode."""
    check_word(norm, Norm)
    return per_turn(batch, episode_advantages(batch, outcome, scope, norm, statistics, compat, policy), policy)


def rloo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    compat: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return A = outcome - mean of the others in the scope, the same for all turns of an episode."""
    return per_turn(batch, episode_advantages(batch, outcome, scope, "others", statistics, compat, policy), policy)


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
    policy: str | None = None,
) -> Advantages:
    """Return the episode's advantage plus `weight` times that of the turn's return, among turns in the same state.

    `gamma`, in [0, 1], discounts rewards within an episode.
    """
    check_word(norm, Norm)
    check_gamma(gamma)
    of_episodes = episode_advantages(batch, outcome, scope, norm, statistics, compat, policy)
    signals = [[discounted(rewards_of(episode, outcome, compat), gamma) for episode in group] for group in batch]
    anchors = [
        [[turn.observation if compat else turn.state_key for turn in episode.turns] for episode in group]
        for group in batch
    ]
    return _add_steps(batch, of_episodes, signals, anchors, norm, weight, policy)


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
    policy: str | None = None,
) -> Advantages:
    """Return the episode's advantage plus `weight` times that of the state reached, among turns in the same state.

    The potential of a state is `gamma ** (observed steps to the nearest success)` in the graph of the group; `edges`
    and `bridge_noops` are those of `relabel`. Turns compared share the state they leave, so the difference of
    potentials and the potential reached give the same advantage.
    """
    check_word(norm, Norm)
    of_episodes = episode_advantages(batch, outcome, scope, norm, statistics, compat, policy)
    loop_turns = max((len(episode.turns) for group in batch for episode in group), default=0)
    signals, anchors = [], []
    for group in batch:
        named = by_published_keys(group) if compat else group
        walked = [list(passages(episode, bridge_noops)) for episode in named]
        if compat:
            rewards = [rewards_of(episode, outcome, compat) for episode in group]
            signals.append(
                published_step_rewards(
                    named, rewards, loop_turns=loop_turns, gamma=gamma, edges=edges, bridge_noops=bridge_noops
                )
            )
            anchors.append([[step.turn.state_key for step in steps] for steps in walked])
        else:
            graph = group_graph(group, gamma=gamma, edges=edges, bridge_noops=bridge_noops)
            signals.append([[graph.potential(step.dst) for step in steps] for steps in walked])
            anchors.append([[step.src for step in steps] for steps in walked])
    return _add_steps(batch, of_episodes, signals, anchors, norm, weight, policy)


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
    policy: str | None = None,
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
        policy=policy,
    )


CREDIT: Mapping[str, CreditFunction] = {
    "grpo": grpo,
    "rloo": rloo,
    "gigpo": gigpo,
    "rewardflow": rewardflow,
    "graphgpo": graphgpo,
    "cwrpo": cwrpo,
}
"""Algorithm name -> its credit function."""

COMPAT_READS: Mapping[str, tuple[str, ...]] = {"rewardflow": (COMPAT_KEY,), "graphgpo": (COMPAT_KEY,)}
"""Algorithm name -> the keys of `info` that it reads with `compat`; those that are not here read none."""

WEIGHTS: Mapping[str, WeightFunction] = {"cwrpo": trajectory_weights}
"""Algorithm name -> what its episodes weigh in the loss; those that are not here weigh them alike."""


def credit_function(name: str) -> CreditFunction:
    """Return the credit function of a name, or the one that `module:function` names.

    One of your own takes a batch and, by keyword, settings with defaults. What it returns is checked: one finite number
    for every turn. Without a keyword `policy` it is for runs with a single policy.

    Raises `UnknownOption` when there is none.
    """
    if ":" in name:
        find_modules_here()
        function = imported(name, UnknownOption)
        if not callable(function):
            raise UnknownOption(f"{name} is a {type(function).__name__}; a credit function is a function of a batch")
        return _checked(function, name)
    if name not in CREDIT:
        raise UnknownOption.among(name, [*CREDIT, "module:function"], "These are the credit functions.")
    return CREDIT[name]


def _checked(function: Callable[..., Advantages], name: str) -> CreditFunction:
    """Return a user's function that says what is wrong with what it returns."""
    takes_policy = "policy" in inspect.signature(function).parameters

    @wraps(function)
    def credit(batch: Sequence[Group], *, policy: str | None = None, **settings: Any) -> Advantages:
        if policy is not None and not takes_policy:
            raise BadSetting(
                f"credit function {name} has no keyword policy, so it cannot credit one of several policies"
            )
        found = function(batch, **settings, **({"policy": policy} if takes_policy else {}))
        advantages = [[[float(one) for one in turns] for turns in episodes] for episodes in found]
        shape = [[len(turns) for turns in episodes] for episodes in advantages]
        if shape != [[len(episode.turns) for episode in group] for group in batch]:
            raise BadSetting(f"credit function {name} must return advantages[group][episode][turn], one for each turn")
        if not all(math.isfinite(one) for episodes in advantages for turns in episodes for one in turns):
            raise BadSetting(f"credit function {name} has returned an advantage that is no finite number")
        return advantages

    return credit


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings of a credit function with their defaults: the constants of its paper.

    These are its keyword arguments without `policy`, which says whose credit is asked for.

    Raises `UnknownOption` when there is no such function.
    """
    parameters = inspect.signature(credit_function(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "policy"}


# ---------------------------------------------------------------- turns
def _add_steps(
    batch: Sequence[Group],
    of_episodes: list[list[float]],
    signals: list[list[list[float]]],
    anchors: list[list[list[str]]],
    norm: Norm,
    weight: float,
    policy: str | None,
) -> Advantages:
    """Return the episodes' advantages plus those of the signals among turns that share an anchor in their group.

    Only the turns by `policy` are compared and get any.
    """
    if not math.isfinite(weight):
        raise BadSetting(f"weight must be a finite number, got {weight!r}")
    advantages = per_turn(batch, of_episodes, policy)
    for group, rows, of_group, keys in zip(batch, advantages, signals, anchors, strict=True):
        members: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for e, (episode, of_episode) in enumerate(zip(group, keys, strict=True)):
            for t, (turn, key) in enumerate(zip(episode.turns, of_episode, strict=True)):
                if turn.is_by(policy):
                    members[key].append((e, t))
        for places in members.values():
            mean, divisor = baseline([of_group[e][t] for e, t in places], norm)
            for e, t in places:
                rows[e][t] += weight * (of_group[e][t] - mean) / divisor
    return advantages
