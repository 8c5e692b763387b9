"""Settings in a file and on the command line: read, shown, written, and compared with those of a run to resume.

The three configurations of `training.config` stand flat in one YAML file. A key that none of them has is refused; the
command line wins over the file. The key `base` names files, relative to this one, whose settings it takes over; of
several the later one wins, and the file itself over all of them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import yaml  # type: ignore[import-untyped]
from trl import TrlParser

from agentgym_flow._util.files import whole
from agentgym_flow.envs import text_env_class
from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption
from agentgym_flow.rewards.credit import settings_of
from agentgym_flow.training.algorithms import CONFIGS, algorithm_settings
from agentgym_flow.training.checkpoints import check_same
from agentgym_flow.training.config import AgentConfig, Configs
from agentgym_flow.training.main_settings import MAIN_SETTINGS
from agentgym_flow.training.run import TINY
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig, mapping


def packaged_config(env_id: str) -> Path | None:
    """Return the settings file that an environment names in `train_config`; None if there is no such environment.

    The file is looked for beside the environment's module, then among those of this package. Raises `BadSetting` if it
    is in neither place.
    """
    try:
        kind = text_env_class(env_id)
    except UnknownEnvironment:  # making it raises the error
        return None
    beside = Path(inspect.getfile(kind)).parent / f"{kind.train_config}.yaml"
    return beside if beside.is_file() else find_config(kind.train_config)


def find_config(name: str) -> Path:
    """Return the settings file of a path, or of the name of one in this package, such as `alfworld_1.5b`.

    Raises `BadSetting` when there is neither.
    """
    packaged = Path(__file__).parent / "configs"
    path = Path(name)
    if path.is_file():
        return path
    if (packaged / f"{name}.yaml").is_file():
        return packaged / f"{name}.yaml"
    names = ", ".join(sorted(file.stem for file in packaged.glob("*.yaml")))
    raise BadSetting(f"config: {name} is neither a file nor one of the package: {names}")


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a file with those of its `base` files. Raises `BadSetting` for what cannot be read."""
    try:
        settings = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadSetting(f"config: {path} cannot be read ({error})") from error
    if not isinstance(settings, dict):
        raise BadSetting(f"config: there are no settings in {path}")
    bases = settings.pop("base", [])
    merged: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        merged |= read_config(path.parent / str(base))
    return merged | settings


ALL_SETTINGS = "--all-settings"
"""Beside `--help`: list every setting, those of TRL too."""


class _Parser(TrlParser):  # type: ignore[misc]
    def format_help(self) -> str:
        """Return the main settings, one a line; with `--all-settings` on the command line all of them."""
        if ALL_SETTINGS in sys.argv:
            return str(super().format_help())
        width = max(map(len, MAIN_SETTINGS))
        lines = "\n".join(f"  --{name:{width}}  {meaning}" for name, meaning in MAIN_SETTINGS.items())
        return (
            f"usage: {self.prog} [--config FILE] [--key value ...]\n\n"
            f"Settings of the command line win over those of the file. The main ones:\n\n{lines}\n\n"
            f"{self.prog} --help {ALL_SETTINGS} lists every setting.\n"
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing how all of the settings are used and leaving."""
        raise BadSetting(message)


def parse_configs(arguments: Sequence[str] | None = None, agent_type: type[AgentConfig] | None = None) -> Configs:
    """Read the three configurations from `--config` and the command line, which wins.

    `--config` is a path, or the name of a file in this package, see `find_config`.

    Without `--config` the file is that of the environment, see `packaged_config`; what the algorithm's paper fixes
    there wins over it, see `algorithms.PAPERS`.

    Args:
        arguments: the command line; None for that of the process.
        agent_type: the class of the trainer's settings, which may bring defaults of its own; that of the algorithm
            which the command line names with `--credit` if None. `AgentConfig` itself is no algorithm's, and leaves all
            papers aside.

    Raises:
        BadSetting: a value cannot work, a key is unknown, or the file cannot be read.
        SystemExit: the command line asks for help.
    """
    try:
        file, line, agent_type = _with_config(sys.argv[1:] if arguments is None else arguments, agent_type)
        parser = _Parser((RunConfig, WarmStartConfig, agent_type))
        with TemporaryDirectory() as folder:
            whole_file = Path(folder) / "config.yaml"
            whole_file.write_text(yaml.safe_dump({} if file is None else read_config(file)), "utf-8")
            given = ["--config", str(whole_file), *line]
            run, warm_start, agent = parser.parse_args_and_config(given, fail_with_unknown_args=True)
    except (BadSetting, UnknownOption):
        raise
    except (ValueError, OSError, yaml.YAMLError) as error:
        raise BadSetting(str(error)) from error
    except TypeError as error:
        raise BadSetting(f"a setting has a value of the wrong kind ({error})") from error
    if agent.activation_checkpointing is None:
        agent.use_checkpointing(run.model != TINY)
    return run, warm_start, agent


def _with_config(
    arguments: Sequence[str], agent_type: type[AgentConfig] | None
) -> tuple[Path | None, list[str], type[AgentConfig]]:
    """Return the settings file that is meant, the rest of the command line, and the class of the trainer's settings."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--config")
    finder.add_argument("--env_id", "--env-id")
    finder.add_argument("--credit", default="")
    finder.add_argument("--credit_settings", "--credit-settings")
    try:
        found, rest = finder.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise BadSetting(str(error)) from None
    env_id = found.env_id or RunConfig.env_id
    file = find_config(found.config) if found.config else packaged_config(env_id)
    kind = agent_type or CONFIGS.get(found.credit, AgentConfig)
    # A comparison passes AgentConfig itself: there all else is equal, and what differs is said.
    plain = found.config is not None or agent_type is AgentConfig
    fixed = {} if plain else dict(algorithm_settings(found.credit or kind.credit, env_id))
    if found.credit_settings is not None:  # each of them wins by itself
        given = mapping("credit_settings", found.credit_settings)
        fixed["credit_settings"] = {**fixed.get("credit_settings", {}), **given}
    own = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in fixed.items()]
    env = [] if found.env_id is None else ["--env_id", found.env_id]
    credit = [f"--credit={found.credit}"] if found.credit else []
    return file, [*own, *env, *credit, *rest], kind


ALWAYS_SHOWN = (
    "seed",
    "temperature",
    "num_generations",
    "num_iterations",
    "loss_type",
    "epsilon",
    "beta",
    "entropy_coef",
    "lr_scheduler_type",
    "warmup_steps",
    "weight_decay",
    "max_grad_norm",
)
"""Settings of TRL that a reader of a run wants to see even where they are TRL's own defaults."""


DERIVED = (
    "generation_batch_size",
    "gradient_accumulation_steps",  # of steps_per_batch
    "gradient_checkpointing",
    "logging_dir",
    "steps_per_generation",  # of groups_per_batch and the number of processes
)
"""Settings that follow from others, and are refused beside them: a run's own file does not have them."""

MAY_CHANGE = (
    "ddp_backend",
    "deepspeed",
    "disable_tqdm",
    "generator",
    "hub_token",
    "local_rank",
    "log_level",
    "log_level_replica",
    "logging_dir",
    "num_envs",
    "output_dir",
    "report_to",
    "run_name",
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "threads",
    "use_cpu",
    "vllm_gpu_memory_utilization",
    "vllm_max_model_length",
    "vllm_server_timeout",
)
"""Settings that may differ when a run is resumed: they say where and how fast it runs."""


def resolved(configs: Configs) -> dict[str, Any]:
    """Return as plain data what a config file needs to repeat the run: all our settings, and TRL's where they matter.

    The output folder is left out, and what the run was resumed from. Raises `UnknownOption` when there is no such
    credit function.
    """
    run, warm_start, agent = configs
    standard = AgentConfig(output_dir=agent.output_dir).to_dict()
    shown = {*AgentConfig.__annotations__, *ALWAYS_SHOWN} - {"bf16"}
    chosen = {name: v for name, v in agent.to_dict().items() if name in shown or v != standard.get(name)}
    for name in DERIVED:
        chosen.pop(name, None)
    chosen["credit_settings"] = settings_of(agent.credit) | agent.credit_keywords
    everything = asdict(run) | asdict(warm_start) | chosen
    del everything["resume"]
    return everything


def lasting_settings(agent: AgentConfig) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the run it goes on with."""
    settings = {name: value for name, value in agent.to_dict().items() if name not in MAY_CHANGE}
    return settings | {"credit_settings": settings_of(agent.credit) | agent.credit_keywords}


def write_config(path: Path, configs: Configs) -> None:
    """Write `resolved(configs)` as YAML."""
    with whole(path) as partial:
        partial.write_text(yaml.safe_dump(resolved(configs), sort_keys=False, allow_unicode=True), "utf-8")


def check_config(path: Path, configs: Configs) -> None:
    """Raise `BadSetting` naming the first setting that differs from those in the config file of a run to resume."""
    try:
        made_with = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadSetting(f"resume: the run's settings cannot be read ({error})") from error
    if not isinstance(made_with, dict):
        raise BadSetting(f"resume: there are no settings in {path}")
    ours = ({k: v for k, v in settings.items() if k not in MAY_CHANGE} for settings in (made_with, resolved(configs)))
    check_same(path.parent, *ours)
