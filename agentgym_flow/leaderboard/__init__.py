"""Leaderboards: what a board shows, and how an entry is checked. Needs no torch."""

from typing import TYPE_CHECKING

from agentgym_flow._util.importing import on_demand

if TYPE_CHECKING:
    from agentgym_flow.leaderboard.comparison import compare, rank_ranges
    from agentgym_flow.leaderboard.eval_results import eval_result
    from agentgym_flow.leaderboard.statistics import (
        Estimate,
        clustered_mean,
        iqm,
        optimality_gap,
        over_tracks,
        stratified_mean,
    )
    from agentgym_flow.leaderboard.track import Track
else:
    __getattr__ = on_demand(__name__)  # hidden from type checkers, which would accept any name

__all__ = [
    "Estimate",
    "Track",
    "clustered_mean",
    "compare",
    "eval_result",
    "iqm",
    "optimality_gap",
    "over_tracks",
    "rank_ranges",
    "stratified_mean",
]
