"""Algorithms whose papers fix more than the credit: the trainer's settings with those constants as defaults.

The others take theirs from the settings file alone, so that a comparison is one of estimators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentgym_flow.training.config import AgentConfig


@dataclass
class CWRPOConfig(AgentConfig):
    """The trainer's settings with the loss of FlowSteer: clipped alike on both sides, and near the reference model."""

    credit: str = "cwrpo"
    epsilon_high: float | None = 0.2
    beta: float = 0.005


CONFIGS: Mapping[str, type[AgentConfig]] = {"cwrpo": CWRPOConfig}
"""Algorithm name -> its settings, where they are its own."""
