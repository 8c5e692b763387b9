"""Algorithms whose papers fix more than the credit function: their constants, as defaults of the trainer's settings.

Other algorithms share the settings file, so that a comparison measures the estimators alone. A paper's constants take
precedence over the packaged settings of an environment, and yield to the user's own file and command line.
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
    """The trainer's settings with FlowSteer's loss: symmetric clipping and a KL penalty."""

    credit: str = "cwrpo"
    epsilon_high: float | None = 0.2
    beta: float = 0.005


CONFIGS: Mapping[str, type[AgentConfig]] = {"cwrpo": CWRPOConfig}
"""Algorithm name -> its settings class, where it has one."""

PAPERS: Mapping[str, Mapping[str, Any]] = {
    "cwrpo": {"epsilon_high": CWRPOConfig.epsilon_high, "beta": CWRPOConfig.beta},
}
"""Algorithm name -> the settings that its paper fixes."""


def algorithm_settings(algorithm: str, env_id: str) -> Mapping[str, Any]:
    """Return the settings of an algorithm in an environment: those of `PAPERS`, and of the environment's class.

    Most algorithms have none.
    """
    try:
        own = text_env_class(env_id).card.algorithm_settings
    except UnknownEnvironment:  # creating the environment raises the error
        own = {}
    return {**PAPERS.get(algorithm, {}), **own.get(algorithm, {})}
