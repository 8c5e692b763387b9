"""GRPO (Shao et al., 2024): the outcome of an attempt relative to its group, in standard deviations.

A(i, t) = (R_i - mean(R)) / (std(R) + 1e-6)
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_flow.episodes import Group
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Norm,
    Outcome,
    Scope,
    Statistics,
    TurnTable,
    check_word,
    episode_advantages,
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
