"""Training on TRL: rows, the trainer, its configuration, the tiny policy and its warm start. Needs the extra `train`.

Importing has no side effects. `agentgym-flow train` and the baselines set `HF_HUB_OFFLINE` and
`HF_HUB_DISABLE_TELEMETRY`, unless the environment already sets them.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from agentgym_flow._util.importing import on_demand
from agentgym_flow.errors import MissingExtra

for _package in ("torch", "transformers", "trl"):
    if find_spec(_package) is None:
        raise MissingExtra.of(_package, "train")

if TYPE_CHECKING:
    from agentgym_flow.generation import Completion, GenerationRequest, Generator, Sampling
    from agentgym_flow.generation.transformers_generator import TransformersGenerator
    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.config_file import parse_configs
    from agentgym_flow.training.models import load_model
    from agentgym_flow.training.policy import AsyncModelPolicy, ModelPolicy
    from agentgym_flow.training.recipe import Recipe
    from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
    from agentgym_flow.training.trainer import AgentTrainer

__all__ = [
    "AgentConfig",
    "AgentTrainer",
    "AsyncModelPolicy",
    "Completion",
    "GenerationRequest",
    "Generator",
    "ModelPolicy",
    "Recipe",
    "RunConfig",
    "Sampling",
    "TransformersGenerator",
    "WarmStartConfig",
    "load_model",
    "parse_configs",
]
__getattr__ = on_demand(__name__)
