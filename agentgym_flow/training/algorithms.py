"""Algorithms whose papers fix more than the credit: the trainer's settings with those constants as defaults.

The others take theirs from the settings file alone, so that a comparison is one of estimators. What a paper fixes wins
over the packaged settings of an environment, which are for all, and gives way to the file and the command line
of whoever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym_flow.envs import text_env_class
from agentgym_flow.errors import UnknownEnvironment
from agentgym_flow.training.config import AgentConfig


@dataclass
class CWRPOConfig(AgentConfig):
    """The trainer's settings with the loss of FlowSteer: clipped alike on both sides, and near the reference model."""

    credit: str = "cwrpo"
    epsilon_high: float | None = 0.2
    beta: float = 0.005


CONFIGS: Mapping[str, type[AgentConfig]] = {"cwrpo": CWRPOConfig}
"""Algorithm name -> its settings, where they are its own."""

PAPERS: Mapping[str, Mapping[str, Any]] = {
    "cwrpo": {"epsilon_high": CWRPOConfig.epsilon_high, "beta": CWRPOConfig.beta},
}
"""Algorithm name -> what its paper fixes beyond the credit."""


def algorithm_settings(algorithm: str, env_id: str) -> Mapping[str, Any]:
    """Return the settings that are an algorithm's own in an environment; none for most.

    What its paper fixes everywhere is in `PAPERS`, the rest in the `algorithm_settings` of the environment's class.
    """
    try:
        own = text_env_class(env_id).algorithm_settings
    except UnknownEnvironment:  # making it raises the error
        own = {}
    return {**PAPERS.get(algorithm, {}), **own.get(algorithm, {})}
