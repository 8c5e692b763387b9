"""Dense rewards and credit: what a state is worth, found from which states have led to success.

Online, `RewardFlow` and `VectorRewardFlow` shape the rewards of any Gymnasium environment. In batches, `relabel`
gives every turn of a group its potential, and `agentgym_flow.rewards.credit` turns groups into one advantage per
turn.
"""

from agentgym_flow.rewards.credit import CREDIT, CreditFunction
from agentgym_flow.rewards.graph_store import GraphStore
from agentgym_flow.rewards.relabel import RelabelMetrics, group_graph, relabel
from agentgym_flow.rewards.rewardflow import RewardFlow
from agentgym_flow.rewards.state_graph import Edge, Node, StateGraph
from agentgym_flow.rewards.vector import VectorRewardFlow

__all__ = [
    "CREDIT",
    "CreditFunction",
    "Edge",
    "GraphStore",
    "Node",
    "RelabelMetrics",
    "RewardFlow",
    "StateGraph",
    "VectorRewardFlow",
    "group_graph",
    "relabel",
]
