"""The settings of a training run that are not the trainer's: what to train on and where, and the cloning before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentgym_flow.core import TextEnv
from agentgym_flow.data import DataSet, resolve
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.source import ENV_ID as SOKOBAN
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.training.lora import ALL_LINEAR, is_adapter
from agentgym_flow.training.run import TINY

GENERATED, BOXOBAN = "generated", "boxoban:"
"""The values of `levels`: the first as it is, the second with a path after it."""

DTYPES = ("float32", "bfloat16")
"""What `dtype` may be."""

LAST_RUN = "true"
"""The value of `resume` that stands for the last run at `output_dir`."""


@dataclass
class RunConfig:
    """What to train, on what, and where the results go.

    Attributes:
        env_id: the id of a text environment.
        env_kwargs: its arguments, without the split; on the command line as JSON.
        levels: for Sokoban, where levels come from: `generated`, as `env_kwargs` says, or `boxoban:PATH` for real ones,
            a folder with sub-folders `train`, `valid` and `test`, or a registered name. What `env_kwargs` says of
            generated levels is then left out.
        model: `tiny`, or a Hugging Face causal language model (a folder, or a name with `HF_HUB_OFFLINE=0`).
        dtype: in what the weights are kept: `float32`, whatever the model was saved in, or `bfloat16`, only for a model
            that stays as it is under adapters. Adapters are float32 always. With `bf16` (the default on GPUs that can)
            the computation is in bfloat16 either way. Weights in bfloat16 could not be trained: a step of the size that
            large models are trained with is less than half of the distance to the next number, and is rounded away.
        lora: train adapters on the model's linear layers (LoRA) and leave the model as it is. Not for `tiny`. A folder
            with trained adapters is given as `model`, without this.
        lora_rank: the inner dimension of the adapters.
        lora_alpha: their output is scaled by `lora_alpha / lora_rank`.
        lora_dropout: the share of their inputs that is dropped in updates; play never drops any.
        lora_targets: the layers that get one: `all-linear`, or the ends of their names, with commas between them.
        profile: the prompt profile of the environment.
        threads: threads of torch on the CPU; none leaves the choice to torch. A tiny model gains little from more than
            one and loses much where other programs are running.
        validations: how often validation success is measured during training; 0 for never.
        validation_episodes: validation episodes each time.
        eval_episodes: at most so many test tasks are played before and after training, sampled and greedy.
        boxoban: for Sokoban, a Boxoban level file or folder or a registered name to evaluate on as well; none to skip.
        boxoban_episodes: levels of it to play before and after training.
        resume: the folder of a killed or interrupted run to go on with, or `true` for the last one at `output_dir`;
            none for a new run. The other settings must be those of that run.
    """

    env_id: str = SOKOBAN
    env_kwargs: dict[str, Any] | str | None = field(default_factory=dict)
    levels: str = GENERATED
    model: str = "tiny"
    dtype: str = "float32"
    lora: bool = False
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: str = ALL_LINEAR
    profile: str = "compact"
    threads: int | None = None
    validations: int = 10
    validation_episodes: int = 200
    eval_episodes: int = 500
    boxoban: str | None = None
    boxoban_episodes: int = 100
    resume: str | None = None

    def __post_init__(self) -> None:
        self.env_kwargs = mapping("env_kwargs", self.env_kwargs)
        self._check_levels()
        if isinstance(self.resume, bool) or str(self.resume).lower() in ("true", "false"):  # YAML has real booleans
            self.resume = LAST_RUN if str(self.resume).lower() == "true" else None
        if self.lora and (self.model == TINY or is_adapter(self.model)):
            raise BadSetting(
                f"lora adds adapters to a whole model in a folder or on the Hub, and model {self.model!r} is none: "
                "leave lora out, or give another model"
            )
        self._check_dtype()
        at_least("lora_rank", self.lora_rank, 1)
        at_least("lora_alpha", self.lora_alpha, 1)
        if not 0 <= self.lora_dropout < 1:
            raise BadSetting(f"lora_dropout is a share, at least 0 and below 1, got {self.lora_dropout}")
        at_least("validations", self.validations, 0)
        at_least("threads", self.threads or 1, 1)
        at_least("validation_episodes", self.validation_episodes, 1)
        at_least("eval_episodes", self.eval_episodes, 1)
        at_least("boxoban_episodes", self.boxoban_episodes, 1)

    @cached_property
    def env_settings(self) -> dict[str, Any]:
        """The environment's arguments as a mapping; data on disk is found, read and hashed once.

        Raises `UnknownData` or `BadData` when there is none.
        """
        settings = mapping("env_kwargs", self.env_kwargs)
        if self.levels != GENERATED:
            settings = {name: value for name, value in settings.items() if name not in ("size", "boxes", "min_pushes")}
            settings["data"] = self.levels.removeprefix(BOXOBAN)
        if settings.get("data") is not None:
            settings["data"] = resolve(settings["data"])
        return settings

    @property
    def data(self) -> DataSet | None:
        """The data on disk that tasks come from; None for tasks of the package. Raises what `env_settings` raises."""
        return self.env_settings.get("data")

    def make_env(self, split: str = "train") -> TextEnv:
        """Make an environment of a split. Raises what its constructor raises."""
        return make_text_env(self.env_id, split=split, **self.env_settings)

    def _check_dtype(self) -> None:
        if self.dtype not in DTYPES:
            raise UnknownOption.among(self.dtype, DTYPES, "dtype is what weights are kept in.")
        if self.dtype != "float32" and not (self.lora or is_adapter(self.model)):
            raise BadSetting(
                f"dtype {self.dtype} would round small steps of the weights away: leave it at float32 (with bf16=true "
                "the computation is in bfloat16 all the same), or train adapters with lora"
            )

    def _check_levels(self) -> None:
        if self.levels == GENERATED:
            return
        if not self.levels.startswith(BOXOBAN) or self.levels == BOXOBAN:
            raise UnknownOption.among(
                self.levels, (GENERATED, f"{BOXOBAN}PATH"), "levels says where the levels of Sokoban come from."
            )
        if self.env_id != SOKOBAN:
            raise BadSetting(f"levels are for {SOKOBAN}, not for {self.env_id}: leave the setting out")
        for name in ("level", "data"):
            if mapping("env_kwargs", self.env_kwargs).get(name) is not None:
                raise BadSetting(f"levels and {name} in env_kwargs both say where levels come from: give one of them")


@dataclass
class WarmStartConfig:
    """Cloning of a limited, noisy set of expert episodes before reinforcement learning.

    Attributes:
        warm_start_levels: training tasks the expert plays, once each; 0 for no warm start.
        warm_start_noise: the probability with which a step is a random valid action instead of the expert's.
        warm_start_updates: optimizer steps.
        warm_start_batch: turns per step, drawn with replacement.
        warm_start_learning_rate: of AdamW.
        warm_start_muon_learning_rate: of Muon.
        warm_start_validations: how often validation success is measured during cloning.
        warm_start_validation_episodes: validation episodes each time.
    """

    warm_start_levels: int = 300
    warm_start_noise: float = 0.3
    warm_start_updates: int = 120
    warm_start_batch: int = 128
    warm_start_learning_rate: float = 2e-3
    warm_start_muon_learning_rate: float = 0.02
    warm_start_validations: int = 4
    warm_start_validation_episodes: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.warm_start_noise <= 1:
            raise BadSetting(f"warm_start_noise is a probability, got {self.warm_start_noise}")
        at_least("warm_start_levels", self.warm_start_levels, 0)
        for name in ("updates", "batch", "validations", "validation_episodes"):
            at_least(f"warm_start_{name}", getattr(self, f"warm_start_{name}"), 1)


def mapping(name: str, value: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return the value of a setting that is a mapping, or JSON of one. Raises `BadSetting` naming the setting."""
    # With None among the types, the parser of Hugging Face leaves what the command line says as text.
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadSetting(f"{name} must be a JSON object, got {value!r} ({error})") from None
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name} must be a mapping, got {value!r}")
    return dict(value)


def at_least(name: str, value: int | None, least: int) -> int:
    """Return `value`; raise `BadSetting` naming the setting unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or value < least:
        raise BadSetting(f"{name} must be a whole number, at least {least}, got {value!r}")
    return value
