"""Credit that compares attempts with their group, and turns with others from the same state.

GRPO (Shao et al., 2024), the outcome of an attempt relative to its group, in standard deviations:

    A(i, t) = (R_i - mean(R)) / (std(R) + 1e-6)

RLOO (Kool et al., 2019; Ahmadian et al., 2024), the outcome relative to the mean of the others:

    A(i, t) = R_i - 1 / (n - 1) * sum of R_j over j != i

GiGPO (Feng et al., 2025), attempts within their group, and returns of turns from the same state:

    A(i, t) = [R_i - mean(R)] + weight * [R(i, t) - mean(R(j, u) over turns (j, u) from the same state)]
    R(i, t) = sum over k >= t of gamma ** (k - t) * r(i, k)
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from agentgym_flow.episodes import Group
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Norm,
    Outcome,
    Scope,
    Statistics,
    TurnTable,
    check_gamma,
    check_word,
    discounted,
    episode_advantages,
    rewards_of,
    state_advantages,
)


def grpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "std",
    statistics: Statistics | None = None,
    reproduce_official: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return A = (outcome - mean) / std over the scope, the same for all turns of an episode."""
    check_word(norm, Norm)
    table = TurnTable(batch, policy)
    return table.nested(episode_advantages(table, outcome, scope, norm, statistics, reproduce_official))


def rloo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    reproduce_official: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return A = outcome - mean of the other episodes in the scope, the same for all turns of an episode."""
    table = TurnTable(batch, policy)
    return table.nested(episode_advantages(table, outcome, scope, "others", statistics, reproduce_official))


def gigpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "mean",
    statistics: Statistics | None = None,
    gamma: float = 0.95,
    weight: float = 1.0,
    reproduce_official: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return the episode's advantage plus `weight` times the advantage of the return among turns from the same state.

    `gamma`, in [0, 1], discounts rewards within an episode.
    """
    check_word(norm, Norm)
    check_gamma(gamma)
    table = TurnTable(batch, policy)
    of_episodes = episode_advantages(table, outcome, scope, norm, statistics, reproduce_official)
    returns = [
        value
        for episode in table.episodes
        for value in discounted(rewards_of(episode, outcome, reproduce_official), gamma)
    ]
    states = [turn.observation if reproduce_official else turn.state_key for turn in table.turns]
    of_states = state_advantages(table, returns, [states], norm, weight)
    return table.nested(list(map(add, of_episodes, of_states)))
