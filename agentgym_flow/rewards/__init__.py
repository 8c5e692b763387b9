"""Dense rewards and credit from graphs of the states that have led to success.

Online, `RewardFlow` and `VectorRewardFlow` shape the rewards of any Gymnasium environment. In batches, `relabel`
gives every turn of a group its potential, and `agentgym_flow.rewards.credit` computes one advantage per turn. For
workflows, `StructureReward`, `VectorStructureReward` and `with_structure_rewards` reward the design at the end of an
episode.
"""

from agentgym_flow.rewards.credit import CREDIT, CreditFunction
from agentgym_flow.rewards.relabel import RelabelMetrics, group_graph, relabel
from agentgym_flow.rewards.rewardflow import RewardFlow, VectorRewardFlow
from agentgym_flow.rewards.state_graph import GraphStore, StateGraph
from agentgym_flow.rewards.structure import (
    StructureReward,
    StructureScore,
    VectorStructureReward,
    with_structure_rewards,
)

__all__ = [
    "CREDIT",
    "CreditFunction",
    "GraphStore",
    "RelabelMetrics",
    "RewardFlow",
    "StateGraph",
    "StructureReward",
    "StructureScore",
    "VectorRewardFlow",
    "VectorStructureReward",
    "group_graph",
    "relabel",
    "with_structure_rewards",
]
