"""The recipe of the command line in three updates, for the tests of environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from agentgym_flow.cli import app

SMALL = {
    "threads": 1,  # two test processes share two cores
    "warm_start_levels": 12,
    "warm_start_updates": 10,
    "warm_start_batch": 32,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "steps_per_generation": 1,
    "max_steps": 3,
    "logging_steps": 1,
    "save_strategy": "no",
    "eval_episodes": 6,
    "validations": 1,
    "validation_episodes": 4,
    "num_envs": 16,
}


def train(env_id: str, algorithm: str, folder: Path, **settings: Any) -> Any:
    """Run `agentgym-flow train` with these settings over `SMALL`; return what the command gave."""
    line = [f"--{name}={value}" for name, value in {**SMALL, "output_dir": folder, **settings}.items()]
    return CliRunner().invoke(app, ["train", algorithm, "--env", env_id, *line])
