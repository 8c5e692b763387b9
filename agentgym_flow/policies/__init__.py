"""Policies: the protocols, and policies without training (random, expert, scripted, chat models, your own)."""

from agentgym_flow.episodes import PolicyOutput
from agentgym_flow.policies.base import (
    AsyncPolicy,
    ExpertPolicy,
    FunctionPolicy,
    Policy,
    PolicyInput,
    RandomPolicy,
    ask,
)
from agentgym_flow.policies.make import make_policy
from agentgym_flow.policies.openai_chat import OpenAIPolicy

__all__ = [
    "AsyncPolicy",
    "ExpertPolicy",
    "FunctionPolicy",
    "OpenAIPolicy",
    "Policy",
    "PolicyInput",
    "PolicyOutput",
    "RandomPolicy",
    "ask",
    "make_policy",
]
