"""The plan of a comparison: named settings from a file, and one cell per training run or control."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]

from agentgym_flow._util.values import is_number
from agentgym_flow.core import check_positive, stable_hash
from agentgym_flow.envs import text_env_class
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards.credit import CREDIT, settings_of
from agentgym_flow.training.config import AgentConfig, Configs
from agentgym_flow.training.config_file import parse_configs, resolved
from agentgym_flow.training.main_settings import MAY_CHANGE
from agentgym_flow.training.tiny import TINY

WARM_START, CONTINUED, EVERYTHING = "warm start", "cloning continued", "cloning of all tasks"
CONTROLS = (WARM_START, CONTINUED, EVERYTHING)
"""The control rows, by their names in the tables."""

RANDOM, SCRIPT, EXPERT = "random", "script", "expert"
FIXED, FIXED_BY_TYPE = "best fixed strategy", "best fixed strategy by task type"
REFERENCES = (RANDOM, SCRIPT, FIXED, FIXED_BY_TYPE, EXPERT)
"""The rows of untrained policies; an environment has those that exist for it."""

CONFIGS = Path(__file__).parents[1] / "configs"
"""The folder of the following files."""

STRATEGIES: Mapping[str, str] = {"agentgym_flow/Canvas-v0": "fixed_canvas.yaml"}
"""The file of an environment's fixed strategies, see `comparison.strategies`."""

FILES: Mapping[str, str] = {
    "agentgym_flow/Sokoban-v0": "compare_sokoban.yaml",
    "agentgym_flow/ALFWorld-v0": "compare_alfworld.yaml",
    "agentgym_flow/WebShop-v0": "compare_webshop.yaml",
    "agentgym_flow/Search-v0": "compare_search.yaml",
    "agentgym_flow/Canvas-v0": "compare_canvas.yaml",
}
"""The default settings file of an environment, in `baselines/configs`."""

LATER: Mapping[str, Any] = {
    "credit_weight": 1.0,
    "opsd_weight": 0.0,
    "opsd_hint": "attempt",
    "opsd_clip": None,
    "warm_start_hints": False,
}
"""Settings that came after recorded runs and registered comparisons, with the values of those."""

OWN = ("about", "num_generations", "tasks", "batches", "core_seconds")

HALF, SHARE = "-half", "batches_share"
"""The end of the name of an algorithm that is trained with fewer batches, and the setting that says how many.

Its schedule of learning rates is as much shorter. Half of the batches can be more than half of the environment steps of
another algorithm, whose episodes get shorter later, so the share is a little below one half."""


@dataclass(frozen=True)
class Setting:
    """A setting in which all algorithms are trained with the same number of episodes.

    Attributes:
        name: its name in `--settings`.
        about: a short description.
        env_id: the environment.
        num_generations: attempts per task.
        tasks: tasks per batch.
        batches: batches of a training run.
        core_seconds: the rough cost of a training run, for the estimate before any run.
        others: settings of `training.config` that differ from the environment's defaults.
        variants: additional algorithms by name: a credit function, `credit`, with settings such as a reward.

    Raises `BadSetting` if the numbers do not fit together or a setting does not exist.
    """

    name: str
    about: str
    env_id: str
    num_generations: int
    tasks: int
    batches: int
    core_seconds: float
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """All algorithms: the variants and every credit function, and each with half of the batches."""
        whole = tuple(dict.fromkeys((*self.variants, *CREDIT)))
        return (*whole, *(f"{name}{HALF}" for name in whole))

    def own(self, algo: str) -> Mapping[str, Any]:
        """Return an algorithm's own settings: those of the variant, or those of the environment for it."""
        if algo in self.variants:
            return self.variants[algo]
        if algo.endswith(HALF):
            return {**self.own(algo.removesuffix(HALF)), SHARE: 0.48}
        return {"credit": algo, **text_env_class(self.env_id).card.algorithm_settings.get(algo, {})}

    @property
    def episodes(self) -> int:
        """Training episodes of a run."""
        return self.num_generations * self.tasks * self.batches

    def configs(self, algo: str, seed: int, output_dir: Path) -> Configs:
        """Return the settings of a run of one of `algorithms`."""
        return self._configs(self.own(algo), seed, output_dir)

    def plain_configs(self, seed: int = 0, output_dir: Path = Path("runs")) -> Configs:
        """Return the settings that all algorithms share, for runs without training."""
        return self._configs({}, seed, output_dir)

    def _configs(self, own: Mapping[str, Any], seed: int, output_dir: Path) -> Configs:
        # AgentConfig, without an algorithm's own defaults: a comparison measures credit functions, and its file states
        # any other difference of variants.
        own = dict(own)
        batches = round(self.batches * own.pop(SHARE, 1.0))
        base = ["--env_id", self.env_id, *_words({**self.others, **own, "save_strategy": "no"})]
        agent = parse_configs(base, AgentConfig)[2]
        passes, steps = int(agent.steps_per_generation or 1), int(agent.steps_per_batch)
        self._check_batches(agent, passes)
        ours = {
            "num_generations": self.num_generations,
            "per_device_train_batch_size": self.num_generations * self.tasks // passes,
            "max_steps": batches * steps,
            "logging_steps": steps,  # one record per batch
            "seed": seed,
            "output_dir": str(output_dir),
        }
        return parse_configs([*base, *_words(ours)], AgentConfig)

    def _check_batches(self, agent: AgentConfig, passes: int) -> None:
        """Raise `BadSetting` unless all runs can have the batches of this setting."""
        if agent.dynamic_sampling:
            raise BadSetting(
                f"setting {self.name!r}: with dynamic_sampling, algorithms would play different numbers of episodes: "
                "leave it out"
            )
        batch = self.num_generations * self.tasks
        if batch % passes:
            raise BadSetting(
                f"setting {self.name!r}: a batch of {self.num_generations} x {self.tasks} episodes cannot be divided "
                f"into {passes} passes: change tasks or steps_per_generation"
            )
        if agent.steps_per_batch % 1:
            raise BadSetting(
                f"setting {self.name!r}: {agent.steps_per_batch:g} optimizer steps per batch are not a whole number: "
                "change gradient_accumulation_steps, steps_per_generation or num_iterations"
            )

    @cached_property
    def lasting(self) -> dict[str, Any]:
        """The settings that runs of all algorithms and seeds share, flat, without those of `LATER` at their values."""
        everything = resolved(self.plain_configs())
        own = ("credit", "credit_settings", "seed", *MAY_CHANGE)
        plain: dict[str, Any] = json.loads(json.dumps(everything, default=str))
        changed = {name for name, value in plain.items() if name not in LATER or value != LATER[name]}
        return {name: value for name, value in plain.items() if name not in own and name in changed}

    @cached_property
    def references(self) -> tuple[str, ...]:
        """The rows of `REFERENCES` that exist for the environment.

        Raises `BadSetting` if there is no expert for a model that can have no other warm start.
        """
        run = self.plain_configs()[0]
        with closing(run.make_env("test")) as env:
            if run.model != TINY and not env.has_expert:
                raise BadSetting(
                    f"setting {self.name!r}: {self.env_id} has no expert, so model {run.model!r} has no warm start to "
                    f"compare with: use model {TINY}"
                )
            has_strategies = self.env_id in STRATEGIES
            there = {
                RANDOM: True,
                SCRIPT: env.card.script is not None,
                FIXED: has_strategies,
                FIXED_BY_TYPE: has_strategies,
                EXPERT: env.has_expert,
            }
        return tuple(name for name in REFERENCES if there[name])

    @cached_property
    def warm_start(self) -> str:
        """The name of the warm start. Settings with equal cloning share it, so their runs start with equal weights."""
        cloning = ("env_id", "env_kwargs", "model", "dtype", "layout", "stop_when", "temperature")
        counted = ("max_completion_length", "eval_episodes", "validation_episodes")
        kinds = ("warm_start_", "template", "chat_template", "lora")
        wanted = {k: v for k, v in self.lasting.items() if k in (*cloning, *counted) or k.startswith(kinds)}
        wanted = {k: v for k, v in wanted.items() if k != "chat_template" or v}  # came later than recorded names
        return f"warm_start-{stable_hash(json.dumps(wanted, sort_keys=True))[:8]}"


def _words(settings: Mapping[str, Any]) -> list[str]:
    return [f"--{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in settings.items()]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: an algorithm, a control or a reference, in one setting, with one seed.

    Attributes:
        group: the name of the setting; for a warm start or reference the name of the warm start, because several
            settings may share it.
        name: the algorithm, the control or the reference.
        seed: the seed of the run. References are not trained and have only seed 0.
    """

    group: str
    name: str
    seed: int

    @property
    def folder(self) -> str:
        """Its folder, relative to the output folder."""
        return f"{self.group}/{self.name.replace(' ', '_')}-seed{self.seed}"


@dataclass(frozen=True)
class Plan:
    """All runs of a comparison.

    Attributes:
        env_id: the environment.
        algos: names of credit functions, or of variants that all settings have; the first is the reference.
        seeds: seeds of the runs of every algorithm; each has its own warm start.
        settings: the settings to compare in.
        controls_too: whether there are also runs of controls and of untrained policies.

    Raises `UnknownOption` for an unknown algorithm, and `BadSetting` for a repeated name.
    """

    env_id: str
    algos: Sequence[str]
    seeds: Sequence[int]
    settings: Sequence[Setting]
    controls_too: bool = True

    split: ClassVar[str] = "test"
    """The split to evaluate on at the end of a run."""

    def __post_init__(self) -> None:
        for setting in self.settings:
            for algo in self.algos:
                if algo not in setting.algorithms:
                    raise UnknownOption.among(algo, setting.algorithms)
        for names in (self.algos, [setting.name for setting in self.settings]):
            if len(set(names)) != len(names) or not names:
                raise BadSetting(f"algos and settings must be named once each, got {', '.join(names)}")

    def setting(self, cell: Cell) -> Setting:
        """Return the setting of a cell; for a shared warm start, the first that uses it."""
        return next(s for s in self.settings if cell.group in (s.name, s.warm_start))

    def warm_starts(self) -> list[Cell]:
        """Return the cells of the warm starts, each once."""
        groups = dict.fromkeys(setting.warm_start for setting in self.settings)
        return [Cell(group, WARM_START, seed) for group in groups for seed in self.seeds]

    def training(self) -> list[Cell]:
        """Return the training runs. Each seed is run everywhere before the next, so all cells progress alike."""
        return [Cell(s.name, algo, seed) for seed in self.seeds for s in self.settings for algo in self.algos]

    def controls(self) -> list[Cell]:
        """Return the controls that clone for the time of a training run; those of all tasks need an expert."""
        return [
            Cell(setting.name, name, seed)
            for setting in self.settings
            for name in CONTROLS[1:]
            if name != EVERYTHING or EXPERT in setting.references
            for seed in self.seeds
        ]

    def references(self) -> list[Cell]:
        """Return the untrained policies; settings that share a warm start share them."""
        firsts = {setting.warm_start: setting for setting in reversed(self.settings)}
        return [Cell(group, name, 0) for group, setting in reversed(firsts.items()) for name in setting.references]

    def phases(self) -> tuple[list[Cell], ...]:
        """Return all cells in the order of their dependencies.

        Everything starts with the warm starts; the time of controls depends on the training runs.
        """
        references, controls = (self.references(), self.controls()) if self.controls_too else ([], [])
        return self.warm_starts(), references, self.training(), controls

    def cells(self) -> Iterator[Cell]:
        """Yield all cells in the order of their dependencies."""
        for phase in self.phases():
            yield from phase

    def made_with(self, cell: Cell) -> dict[str, Any]:
        """Return the settings of a cell as plain data, for comparison with those of a finished run."""
        setting = self.setting(cell)
        learnt: dict[str, Any] = {}
        if cell.name in setting.algorithms:
            own = setting.own(cell.name)
            learnt = {"credit_settings": settings_of(own["credit"]), **own}
        lasting: dict[str, Any] = json.loads(json.dumps(setting.lasting))
        if cell.group == setting.warm_start:  # other settings may differ between settings that share it
            lasting = {"warm_start": cell.group}
        if cell.name in (FIXED, FIXED_BY_TYPE):
            lasting["strategies"] = stable_hash((CONFIGS / STRATEGIES[self.env_id]).read_text("utf-8"))[:16]
        if self.split != Plan.split:
            lasting["split"] = self.split
        return {**lasting, **learnt, "seed": cell.seed}


def read_settings(env_id: str, file: Path | None = None, names: Sequence[str] | None = None) -> list[Setting]:
    """Read named settings from a YAML file; by default all settings of the environment's file.

    Raises:
        BadSetting: the file does not exist or cannot be read, or a setting lacks something.
        UnknownOption: the file has no setting of a given name.
    """
    if file is None:
        if env_id not in FILES:
            raise BadSetting(f"{env_id} has no settings file yet: write one and name it with --config")
        file = CONFIGS / FILES[env_id]
    try:
        read = yaml.safe_load(file.read_text("utf-8"))
        common, named = dict(read["common"] or {}), dict(read["settings"])
        variants = {name: dict(own) for name, own in (read.get("variants") or {}).items()}
    except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise BadSetting(f"{file} must have the mappings common and settings ({error!r})") from error
    if not named:
        raise BadSetting(f"{file} has no settings: add at least one")
    chosen = list(named) if names is None else list(names)
    for name in chosen:
        if name not in named:
            raise UnknownOption.among(name, named)
    for name, own in variants.items():
        if own.get("credit") not in tuple(CREDIT):  # in a tuple, because YAML can also give a list
            raise UnknownOption.among(own.get("credit"), CREDIT, f"{file}: variant {name!r} needs one as its credit.")
    return [replace(_setting(env_id, name, common, named[name], file), variants=variants) for name in chosen]


def _setting(env_id: str, name: str, common: Mapping[str, Any], found: Any, file: Path) -> Setting:
    if not isinstance(found, Mapping) or (missing := [key for key in OWN if key not in found]):
        lacking = ", ".join(missing) if isinstance(found, Mapping) else "everything"
        raise BadSetting(f"{file}: setting {name!r} lacks {lacking}")
    others = {key: value for key, value in {**common, **found}.items() if key not in OWN}
    for key in OWN[1:4]:
        check_positive(f"{file}: {key} of setting {name!r}", found[key])
    if not is_number(found["core_seconds"]) or not found["core_seconds"] > 0:
        raise BadSetting(f"{file}: core_seconds of setting {name!r} must be a number above 0")
    setting = Setting(name, env_id=env_id, others=others, **{key: found[key] for key in OWN})
    if not setting.lasting["warm_start_levels"]:  # `lasting` also raises for invalid settings, before any run
        raise BadSetting(f"{file}: setting {name!r} has no warm start to compare with: raise warm_start_levels")
    return setting
