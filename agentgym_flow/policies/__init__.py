"""Policies: the protocol, and those that need no training (random, expert, scripted, any chat model, your own)."""

from agentgym_flow.policies.base import (
    NO_ANSWER,
    AsyncPolicy,
    ExpertPolicy,
    FunctionPolicy,
    Policy,
    PolicyInput,
    PolicyOutput,
    RandomPolicy,
    ask,
)
from agentgym_flow.policies.make import load_policy, make_policy, scripted
from agentgym_flow.policies.openai_chat import OpenAIPolicy

__all__ = [
    "NO_ANSWER",
    "AsyncPolicy",
    "ExpertPolicy",
    "FunctionPolicy",
    "OpenAIPolicy",
    "Policy",
    "PolicyInput",
    "PolicyOutput",
    "RandomPolicy",
    "ask",
    "load_policy",
    "make_policy",
    "scripted",
]
