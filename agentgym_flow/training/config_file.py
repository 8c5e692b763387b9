"""Settings in a file and on the command line: reading, help, writing, and comparison when a run is resumed.

The three configurations of `training.config` share one flat YAML file. Unknown keys are rejected, and the command line
takes precedence over the file. The key `base` names files, relative to this one, whose settings are the defaults; later
ones take precedence over earlier ones, and the file over all of them.

The papers of some algorithms fix more than the credit function. Their constants take precedence over the packaged
settings of an environment, and yield to the user's own file and command line. Other algorithms share the settings file,
so that a comparison measures the estimators alone.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml  # type: ignore[import-untyped]
from trl import TrlParser

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import settings_in
from agentgym_flow.envs import text_arguments, text_env_class
from agentgym_flow.errors import AgentGymFlowError, BadSetting, UnknownEnvironment, shown
from agentgym_flow.rewards.credit import settings_of
from agentgym_flow.training.config import AgentConfig, Configs
from agentgym_flow.training.main_settings import (
    ALL_SETTINGS,
    ALWAYS_SHOWN,
    DERIVED,
    MAIN_SETTINGS,
    MAY_CHANGE,
    unknown_setting,
)
from agentgym_flow.training.models import is_language_model, loaded_whole
from agentgym_flow.training.processes import processes
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig, mapping
from agentgym_flow.training.run_folder import check_same
from agentgym_flow.training.tiny import TINY


# ---------------------------------------------------------------- what papers fix
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


# ---------------------------------------------------------------- files and command lines
def packaged_config(env_id: str, model: str | None = None) -> Path | None:
    """Return the settings file that an environment's `train_config` names; None for an unknown environment.

    The file is beside the environment's module or in this package. For a language model (`is_language_model`) it is the
    environment's recipe for large models in this package, else `large/any.yaml`.

    Raises `BadSetting` if the file is in neither place.
    """
    try:
        kind = text_env_class(env_id)
    except UnknownEnvironment:  # creating the environment raises the error
        return None
    if model is not None and is_language_model(model):
        large = Path(__file__).parent / "configs" / "large"
        own = large / f"{kind.card.train_config.removesuffix('_tiny')}.yaml"
        return own if own.is_file() else large / "any.yaml"
    beside = Path(inspect.getfile(kind)).parent / f"{kind.card.train_config}.yaml"
    return beside if beside.is_file() else find_config(kind.card.train_config)


def find_config(name: str) -> Path:
    """Return the settings file at a path, or the one of that name in this package, such as `alfworld_1.5b`.

    Raises `BadSetting` if neither exists.
    """
    packaged = Path(__file__).parent / "configs"
    path = Path(name)
    if path.is_file():
        return path
    if (packaged / f"{name}.yaml").is_file():
        return packaged / f"{name}.yaml"
    names = ", ".join(sorted(file.stem for file in packaged.glob("*.yaml")))
    raise BadSetting(f"config: {name} is neither a file nor a file of this package: {names}")


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a file, including those of its `base` files.

    Raises `BadSetting` if one is unreadable, or is a base of itself.
    """
    return _read_config(path, ())


def _read_config(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Return the settings of a file that is a base of the files `above`."""
    if path.resolve() in above:
        raise BadSetting(f"config: {path} is a base of itself: remove it from base")
    settings = settings_in(path, BadSetting)
    if not settings:
        raise BadSetting(f"config: there are no settings in {path}")
    bases = settings.pop("base", [])
    if not isinstance(bases, str | list):
        raise BadSetting(f"config: base of {path} must be a file or a list of files, got {shown(bases)}")
    merged: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        merged |= _read_config(path.parent / str(base), (*above, path.resolve()))
    return merged | settings


_ONE_PARSER = threading.Lock()
"""A parser resolves and narrows the types in the fields of the classes while it is made, and threads share these."""


class _Parser(TrlParser):  # type: ignore[misc]
    def format_help(self) -> str:
        """Return the main settings, one per line, or all settings if `--all-settings` is given."""
        if ALL_SETTINGS in sys.argv:
            return str(super().format_help())
        width = max(map(len, MAIN_SETTINGS))
        lines = "\n".join(f"  --{name:{width}}  {meaning}" for name, meaning in MAIN_SETTINGS.items())
        return (
            f"usage: {self.prog} [--config FILE] [--key value ...]\n\n"
            f"The command line takes precedence over the file. The main settings:\n\n{lines}\n\n"
            f"{self.prog} --help {ALL_SETTINGS} lists every setting.\n"
        )

    def error(self, message: str) -> NoReturn:
        """Raise `BadSetting` instead of printing the usage of all settings and exiting."""
        raise BadSetting(message)


def parse_configs(arguments: Sequence[str] | None = None, agent_type: type[AgentConfig] | None = None) -> Configs:
    """Read the three configurations from `--config` and the command line, which takes precedence.

    `--config` is a path or the name of a file of this package, see `find_config`. Without it the file is that of the
    environment and of the kind of `--model`, see `packaged_config`, overridden by what the algorithm's paper fixes, see
    `algorithm_settings`. As in other commands, `--env` may leave out parts of the environment's id,
    `--env-arg KEY=VALUE` is a key of `env_kwargs`, and `--out` is `output_dir`.

    Args:
        arguments: the command line; None: `sys.argv`.
        agent_type: the class of the trainer's settings, which may have its own defaults. None: the class of the
            algorithm that `--credit` names. `AgentConfig` ignores what papers fix.

    Raises:
        BadSetting: a value is invalid or has the wrong type, or the file cannot be read.
        UnknownOption: a key of the file or of the command line is unknown.
        SystemExit: after `--help`.
    """
    try:
        settings, line, agent_type, chosen = _with_config(sys.argv[1:] if arguments is None else arguments, agent_type)
        kinds = (RunConfig, WarmStartConfig, agent_type)
        # YAML reads a text such as 2026-11-29 as a date.
        settings = {name: str(value) if isinstance(value, date) else value for name, value in settings.items()}
        check_types(settings, kinds)
        with _ONE_PARSER:
            parser = _Parser(kinds, allow_abbrev=False)
        with TemporaryDirectory() as folder:
            whole_file = Path(folder) / "config.yaml"
            whole_file.write_text(yaml.safe_dump(settings), "utf-8")
            given = ["--config", str(whole_file), *line]
            run, warm_start, agent, unknown = parser.parse_args_and_config(given, return_remaining_strings=True)
        if unknown:
            raise unknown_setting(unknown[0], [field.name for kind in kinds for field in fields(kind)])
    except AgentGymFlowError:
        raise
    except (ValueError, OSError, yaml.YAMLError) as error:
        raise BadSetting(str(error)) from error
    warm_start.levels_are_chosen = "warm_start_levels" in chosen
    if agent.activation_checkpointing is None:
        agent.use_checkpointing(run.model != TINY)
    if agent.share_prefixes is None:
        agent.share_prefixes = run.model != TINY
    return run, warm_start, agent


def _with_config(
    arguments: Sequence[str], agent_type: type[AgentConfig] | None
) -> tuple[dict[str, Any], list[str], type[AgentConfig], set[str]]:
    """Return the file's settings, the command line in names of settings, and the class of the trainer's settings.

    The last set has the names of the settings that the user chose, in a file that is not of this package or in `rest`.
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--config")
    finder.add_argument("--env_id", "--env-id")
    finder.add_argument("--env")
    finder.add_argument("--env_kwargs", "--env-kwargs")
    finder.add_argument("--model")
    finder.add_argument("--env-arg", "--env_arg", action="append")
    finder.add_argument("--out")
    finder.add_argument("--credit", default="")
    finder.add_argument("--credit_settings", "--credit-settings")
    try:
        found, rest = finder.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise BadSetting(str(error)) from None
    if found.env is not None:
        found.env_id = text_arguments.full_id(found.env)
    env_id = found.env_id or RunConfig.env_id
    file = find_config(found.config) if found.config else packaged_config(env_id, found.model)
    kind = agent_type or CONFIGS.get(found.credit, AgentConfig)
    # Comparisons pass AgentConfig: their algorithms differ in nothing that their file does not state.
    plain = found.config is not None or agent_type is AgentConfig
    fixed = {} if plain else dict(algorithm_settings(found.credit or kind.credit, env_id))
    if found.credit_settings is not None:  # overrides single keys
        given = mapping("credit_settings", found.credit_settings)
        fixed["credit_settings"] = {**fixed.get("credit_settings", {}), **given}
    own = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in fixed.items()]
    settings = {} if file is None else read_config(file)
    words = [part for word in rest for part in word.split("=", 1)]
    if "--template" in words[:-1] and words[words.index("--template") + 1] != settings.get("template"):
        settings.pop("template_settings", None)  # they belong to the file's template
    if file is not None and found.config is None and file.parent.name == "large":
        settings["output_dir"] = f"runs/{file.stem}_language_model"
        if any(word.startswith(("--steps_per_generation", "--gradient_accumulation_steps")) for word in rest):
            del settings["groups_per_batch"], settings["steps_per_batch"]  # the same in other terms
    if found.env_arg:
        full_id = text_arguments.full_id(str(found.env_id or settings.get("env_id", env_id)))
        single = text_arguments.env_settings(full_id, found.env_arg)
        found.env_kwargs = json.dumps(mapping("env_kwargs", found.env_kwargs) | single)
    chosen = {"env_id": found.env_id, "env_kwargs": found.env_kwargs, "model": found.model}
    chosen |= {"output_dir": found.out, "credit": found.credit}
    given_names = [f"--{name}={value}" for name, value in chosen.items() if value]
    is_of_user = found.config is not None and Path(__file__).parent not in Path(file or "").resolve().parents
    on_line = {word[2:].partition("=")[0].replace("-", "_") for word in rest if word.startswith("--")}
    if (
        "per_device_train_batch_size" in settings and not is_of_user
    ):  # an optimizer step may have no more for each process
        settings["per_device_train_batch_size"] = max(1, settings["per_device_train_batch_size"] // processes())
    return settings, [*own, *given_names, *rest], kind, on_line | {*settings} if is_of_user else on_line


_TYPES: dict[object, str] = {
    dict: "a mapping",
    list: "a list",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
}


def check_types(settings: Mapping[str, Any], kinds: Sequence[type[Any]]) -> None:
    """Raise `BadSetting` naming the first setting of a file whose value does not have the type of its field.

    Texts are accepted everywhere, because the parser reads them as on the command line.
    """
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in fields(kind):
            value = settings.get(field.name, "")
            hint = hints[field.name]
            options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            taken = {get_origin(option) or option for option in options}
            taken |= {NoneType} if field.default is None else set()
            fitting = {float, int} if type(value) is int else {type(value)}
            if not isinstance(value, str) and Any not in taken and not fitting & taken:
                wanted = " or ".join(said for one, said in _TYPES.items() if one in taken) or "a text"
                raise BadSetting(f"{field.name} must be {wanted}, got {shown(value)}")


def resolved(configs: Configs) -> dict[str, Any]:
    """Return the settings that a file needs to repeat the run, as plain data: ours, and TRL's where they differ.

    Leaves out the output folder and the resumed run. Raises `UnknownOption` for an unknown credit function.
    """
    run, warm_start, agent = configs
    standard = _defaults(agent)
    shown = {*AgentConfig.__annotations__, *ALWAYS_SHOWN} - {"bf16"}
    chosen = {name: v for name, v in agent.to_dict().items() if name in shown or v != standard.get(name)}
    for name in DERIVED:
        chosen.pop(name, None)
    chosen["credit_settings"] = settings_of(agent.credit) | agent.credit_keywords
    everything = asdict(run) | asdict(warm_start) | chosen
    del everything["resume"]
    return everything


def _defaults(agent: AgentConfig) -> dict[str, Any]:
    """Return the default settings, with the output folder of `agent` and those of its credit function."""
    with loaded_whole():  # a new configuration would take the place of the run's own, which says whether it is ZeRO-3
        defaults: dict[str, Any] = AgentConfig(output_dir=agent.output_dir).to_dict()
    return defaults | {"credit_settings": settings_of(agent.credit)}


def lasting_settings(agent: AgentConfig) -> dict[str, Any]:
    """Return the settings that must not change when a run is resumed."""
    settings = {name: value for name, value in agent.to_dict().items() if name not in MAY_CHANGE}
    return settings | {"credit_settings": settings_of(agent.credit) | agent.credit_keywords}


def lasting_defaults(agent: AgentConfig) -> dict[str, Any]:
    """Return the defaults of `lasting_settings`, for the credit function of `agent`."""
    return {name: value for name, value in _defaults(agent).items() if name not in MAY_CHANGE}


def write_config(path: Path, configs: Configs) -> None:
    """Write `resolved(configs)` as YAML."""
    with write_atomically(path) as partial:
        partial.write_text(yaml.safe_dump(resolved(configs), sort_keys=False, allow_unicode=True), "utf-8")


def check_config(path: Path, configs: Configs) -> None:
    """Raise `BadSetting` naming the first setting that differs from the config file of the run to resume."""
    made_with = _made_with(path)
    defaults = asdict(RunConfig()) | asdict(WarmStartConfig()) | _defaults(configs[2])
    before, now = (
        {name: value for name, value in settings.items() if name not in MAY_CHANGE}
        for settings in (made_with, resolved(configs))
    )
    check_same(path.parent, before, now, defaults)


def recorded_date(path: Path, otherwise: str | None) -> str | None:
    """Return the date in the config file of the run to resume. Raises `BadSetting` if the file cannot be read."""
    return str(_made_with(path).get("date", otherwise))


def _made_with(path: Path) -> dict[str, Any]:
    try:
        return read_config(path)
    except BadSetting as error:
        raise BadSetting(f"resume: {error}") from error
