"""Dataflow: rollout, bookkeeping and training as independent components that can join, leave and fail."""

from typing import TYPE_CHECKING

from agentgym_flow._util.importing import on_demand

if TYPE_CHECKING:
    from agentgym_flow.dataflow.config import FlowConfig
    from agentgym_flow.dataflow.records import Flow
    from agentgym_flow.dataflow.run import Team, TeamMember, train

__all__ = [
    "Flow",
    "FlowConfig",
    "Team",
    "TeamMember",
    "train",
]
__getattr__ = on_demand(__name__)
