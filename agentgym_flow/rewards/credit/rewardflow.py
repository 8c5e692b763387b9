"""RewardFlow (2026): turns are compared, within a state, by the potential of the state that they led to.

    A(i, t) = [R_i - mean(R)] + weight * [phi(s') - mean(phi(s') over turns decided in the same state)]

    phi(s) = gamma ** (fewest observed steps from s to a success),    0 where no success was seen from s

The graph in which steps are counted has all states that the attempts of a group have seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_flow.episode import Group
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Norm,
    Outcome,
    Scope,
    Statistics,
    add_comparison_in_state,
    check_word,
    episode_advantages,
    rewards_of,
)
from agentgym_flow.rewards.credit.published import by_published_keys, published_step_rewards
from agentgym_flow.rewards.relabel import NoOp, group_graph, passages, turn_potentials
from agentgym_flow.rewards.state_graph import EdgeMode


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
    if compat:
        reached, states = _published(batch, outcome, gamma, edges, bridge_noops)
    else:
        turns = [
            turn_potentials(
                group, group_graph(group, gamma=gamma, edges=edges, bridge_noops=bridge_noops), bridge_noops
            )
            for group in batch
        ]
        reached = [[[turn.phi_next for turn in episode] for episode in group] for group in turns]
        states = [[[turn.state for turn in episode] for episode in group] for group in turns]
    return add_comparison_in_state(batch, of_episodes, reached, [states], norm, weight, policy)


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


def _published(
    batch: Sequence[Group], outcome: Outcome, gamma: float, edges: EdgeMode, bridge_noops: NoOp
) -> tuple[list[list[list[float]]], list[list[list[str]]]]:
    """Return the step rewards of the released code and the states it compares turns in, `[group][episode][turn]`."""
    loop_turns = max((len(episode.turns) for group in batch for episode in group), default=0)
    values, states = [], []
    for group in batch:
        named = by_published_keys(group)
        rewards = [rewards_of(episode, outcome, compat=True) for episode in group]
        values.append(
            published_step_rewards(
                named, rewards, loop_turns=loop_turns, gamma=gamma, edges=edges, bridge_noops=bridge_noops
            )
        )
        states.append([[step.turn.state_key for step in passages(episode, bridge_noops)] for episode in named])
    return values, states
