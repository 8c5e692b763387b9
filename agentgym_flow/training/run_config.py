"""The settings of a training run that are not the trainer's: what to train on and where, and the cloning before it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentgym_flow.core import TextEnv
from agentgym_flow.data import DataSet, resolve
from agentgym_flow.envs import DEFAULT_ENV, make_text_env
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.prompts import PromptTemplate, profile_for
from agentgym_flow.training.lora import ALL_LINEAR, is_adapter
from agentgym_flow.training.run import TINY

DTYPES = ("float32", "bfloat16")
"""What `dtype` may be."""

LAST_RUN = "true"
"""The value of `resume` that stands for the last run at `output_dir`."""


@dataclass
class RunConfig:
    """What to train, on what, and where the results go.

    Attributes:
        env_id: the id of a text environment.
        env_kwargs: its arguments, without the split; on the command line as JSON. `data` names official data, a path or
            a registered name, which then gives the tasks of all splits.
        model: `tiny`, a Hugging Face causal language model (a folder, or a name with `HF_HUB_OFFLINE=0`), or
            `module:function`, which makes one; see `load_model`.
        dtype: in what the weights are kept: `float32`, whatever the model was saved in, or `bfloat16`, only for a model
            that stays as it is under adapters. Adapters are float32 always. With `bf16` (the default on GPUs that can)
            the computation is in bfloat16 either way. Weights in bfloat16 could not be trained: a step of the size that
            large models are trained with is less than half of the distance to the next number, and is rounded away.
        lora: train adapters on the model's linear layers (LoRA) and freeze the model. Not for `tiny`. A folder
            with trained adapters is given as `model`, without this.
        lora_rank: the inner dimension of the adapters.
        lora_alpha: their output is scaled by `lora_alpha / lora_rank`.
        lora_dropout: the share of their inputs that is dropped in updates; play never drops any.
        lora_targets: the layers that get one: `all-linear`, or the ends of their names, with commas between them.
        profile: the prompt profile of the environment.
        profile_settings: fields of the profile that get other values, such as `rules` and `think` of profile `text`; on
            the command line as JSON.
        threads: threads of torch on the CPU; none leaves the choice to torch. A tiny model gains little from more than
            one and loses much where other programs are running.
        validations: how often validation success is measured during training; 0 for never.
        validation_episodes: validation episodes each time.
        eval_episodes: at most so many test tasks are played before and after training, sampled and greedy.
        also_on: further tasks to evaluate on before and after training, sampled: a name for each -> the environment's
            arguments, `env_kwargs` aside; on the command line as JSON. The split is `test`, or `valid` for data without
            test tasks, unless `split` is among them.
        also_on_episodes: at most so many tasks of each are played.
        resume: the folder of a killed or interrupted run to go on with, or `true` for the last one at `output_dir`;
            none for a new run. The other settings must be those of that run.
    """

    env_id: str = DEFAULT_ENV
    env_kwargs: dict[str, Any] | str | None = field(default_factory=dict)
    model: str = "tiny"
    dtype: str = "float32"
    lora: bool = False
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: str = ALL_LINEAR
    profile: str = "compact"
    profile_settings: dict[str, Any] | str | None = field(default_factory=dict)
    threads: int | None = None
    validations: int = 10
    validation_episodes: int = 200
    eval_episodes: int = 500
    also_on: dict[str, Any] | str | None = field(default_factory=dict)
    also_on_episodes: int = 100
    resume: str | None = None

    def __post_init__(self) -> None:
        self.env_kwargs = mapping("env_kwargs", self.env_kwargs)
        self.profile_settings = mapping("profile_settings", self.profile_settings)
        self.also_on = _named_settings(self.also_on)
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
        at_least("also_on_episodes", self.also_on_episodes, 1)

    @cached_property
    def env_settings(self) -> dict[str, Any]:
        """The environment's arguments as a mapping; data on disk is found, read and hashed once.

        Raises `UnknownData` or `BadData` when there is none.
        """
        settings = mapping("env_kwargs", self.env_kwargs)
        return _with_data(settings)

    @cached_property
    def also_settings(self) -> dict[str, dict[str, Any]]:
        """The arguments of `also_on` by name; data on disk is found, read and hashed once. Raises as `env_settings`."""
        return {name: _with_data(settings) for name, settings in mapping("also_on", self.also_on).items()}

    @property
    def data(self) -> DataSet | None:
        """The data on disk that tasks come from; None for tasks of the package. Raises what `env_settings` raises."""
        return self.env_settings.get("data")

    def make_profile(self) -> PromptTemplate:
        """Return the prompt profile. Raises what `profile_for` raises."""
        return profile_for(self.env_id, self.profile, mapping("profile_settings", self.profile_settings))

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


@dataclass
class WarmStartConfig:
    """Cloning of a limited, noisy set of expert episodes before reinforcement learning.

    Attributes:
        warm_start_levels: training tasks the expert plays, once each; 0 for no warm start.
        warm_start_noise: the probability with which a step is a random valid action instead of the expert's.
        warm_start_imitate_noise: imitate random actions, too; false only shows them, as what to go on from.
        warm_start_text_weight: what a token that was given, of prompts and observations, weighs in the loss, in [0, 1];
            one of an answer weighs 1. Above 0 the model learns to write whole episodes, as in pre-training.
        warm_start_updates: optimizer steps.
        warm_start_batch: turns per step, drawn with replacement.
        warm_start_learning_rate: of AdamW.
        warm_start_muon_learning_rate: of Muon.
        warm_start_validations: how often validation success is measured during cloning.
        warm_start_validation_episodes: validation episodes each time.
    """

    warm_start_levels: int = 300
    warm_start_noise: float = 0.3
    warm_start_imitate_noise: bool = True
    warm_start_text_weight: float = 0.0
    warm_start_updates: int = 120
    warm_start_batch: int = 128
    warm_start_learning_rate: float = 2e-3
    warm_start_muon_learning_rate: float = 0.02
    warm_start_validations: int = 4
    warm_start_validation_episodes: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.warm_start_noise <= 1:
            raise BadSetting(f"warm_start_noise is a probability, got {self.warm_start_noise}")
        if self.warm_start_noise == 1 and not self.warm_start_imitate_noise:
            raise BadSetting("with a warm_start_noise of 1 all actions are random: imitate them, or lower it")
        if not 0 <= self.warm_start_text_weight <= 1:
            raise BadSetting(f"warm_start_text_weight must be from 0 to 1, got {self.warm_start_text_weight}")
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


def _named_settings(value: Mapping[str, Any] | str | None) -> dict[str, dict[str, Any]]:
    """Return `also_on` as a mapping. Raises `BadSetting` for what is none, and for names that cannot be a file's."""
    named = mapping("also_on", value)
    for name in named:
        if not re.fullmatch(r"[\w-]+", str(name)) or name in ("sampled", "greedy"):
            raise BadSetting(f"also_on: {name!r} cannot be a name: use letters, digits, - and _, such as other_levels")
    return {name: mapping(f"also_on: {name}", settings) for name, settings in named.items()}


def _with_data(settings: Mapping[str, Any]) -> dict[str, Any]:
    data = settings.get("data")
    return dict(settings) if data is None else {**settings, "data": resolve(data)}


def at_least(name: str, value: int | None, least: int) -> int:
    """Return `value`; raise `BadSetting` naming the setting unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or value < least:
        raise BadSetting(f"{name} must be a whole number, at least {least}, got {value!r}")
    return value
