"""RLOO (Kool et al., 2019; Ahmadian et al., 2024): the outcome of an attempt relative to the mean of the others.

A(i, t) = R_i - 1 / (n - 1) * sum of R_j over j != i
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_flow.episodes import Group
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Outcome,
    Scope,
    Statistics,
    TurnTable,
    episode_advantages,
)


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
