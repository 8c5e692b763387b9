"""Settings of a training run that are not the trainer's: environment, model, evaluation and warm start."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym_flow._util.files import write_atomically
from agentgym_flow.core import TextEnv, check_integer
from agentgym_flow.data import DataSet, resolve
from agentgym_flow.envs import DEFAULT_ENV, make_text_env
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.prompts import PromptTemplate, SettingsTemplate, WordTemplate, template_for
from agentgym_flow.training.conversation import NONE
from agentgym_flow.training.models import ALL_LINEAR, is_adapter, is_gguf
from agentgym_flow.training.tiny import TINY, collect_vocabulary

if TYPE_CHECKING:
    from agentgym_flow.training.processes import Processes

DTYPES = ("float32", "bfloat16")
"""Values of `dtype`."""

LAST_RUN = "true"
"""The value of `resume` that selects the last run at `output_dir`."""


@dataclass
class RunConfig:
    """Environment, model, evaluation and resumption of a run.

    Attributes:
        env_id: the id of a text environment.
        env_kwargs: its keyword arguments, without the split; JSON on the command line. `data` is a path or a registered
            name of official data, which then provides the tasks of all splits.
        model: `tiny`, a Hugging Face causal language model (a folder, or a name with `HF_HUB_OFFLINE=0`), or
            `module:function`, which creates one; see `load_model`.
        dtype: the type of the weights: `float32`, or `bfloat16` for a frozen model under adapters. Adapters are always
            float32. With `bf16` (the default on GPUs that support it) the computation is in bfloat16 for both. Weights
            in bfloat16 cannot be trained: a step at the learning rates of large models is less than half the distance
            to the next number and is rounded away.
        lora: train adapters on the model's linear layers (LoRA) and freeze the model. Not for `tiny`. To continue with
            trained adapters, give their folder as `model` and leave this out.
        lora_rank: the inner dimension of the adapters.
        lora_alpha: the output of the adapters is scaled by `lora_alpha / lora_rank`.
        lora_dropout: dropout on the inputs of the adapters in updates; rollouts have none.
        lora_targets: the layers with adapters: `all-linear`, or the ends of their names, separated by commas.
        template: the prompt template of the environment.
        template_settings: fields of the template to override, such as `rules` and `think` of the template `text`; JSON
            on the command line.
        chat_template: `none` replaces the chat template of the model by plain text, which suits base models; None: the
            model's own, or plain text if it has none.
        threads: CPU threads of PyTorch; None: PyTorch's default. A tiny model gains little from a second thread. In our
            commands, waiting threads sleep, unless `OMP_WAIT_POLICY` or its like is set.
        validations: the number of validations during training; 0 for none.
        validation_episodes: episodes of each validation.
        eval_episodes: the most test tasks to play before and after training, sampled and greedy.
        also_on: further evaluations before and after training, sampled: name -> keyword arguments that override
            `env_kwargs`; JSON on the command line. The split is `test`, or `valid` for data without test tasks, unless
            the arguments name a `split`.
        also_on_episodes: the most tasks to play in each of them.
        resume: the folder of a killed or interrupted run to resume, or `true` for the last one at `output_dir`; None
            for a new run. The other settings must equal those of that run.
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
    template: str = "compact"
    template_settings: dict[str, Any] | str | None = field(default_factory=dict)
    chat_template: str | None = None
    threads: int | None = None
    validations: int = 10
    validation_episodes: int = 200
    eval_episodes: int = 500
    also_on: dict[str, Any] | str | None = field(default_factory=dict)
    also_on_episodes: int = 100
    resume: str | None = None

    def __post_init__(self) -> None:
        self.env_kwargs = mapping("env_kwargs", self.env_kwargs)
        self.template_settings = mapping("template_settings", self.template_settings)
        self.also_on = _named_settings(self.also_on)
        if isinstance(self.resume, bool) or str(self.resume).lower() in ("true", "false"):  # YAML has real booleans
            self.resume = LAST_RUN if str(self.resume).lower() == "true" else None
        if self.lora and (self.model == TINY or is_adapter(self.model)):
            raise BadSetting(
                f"lora adds adapters to a whole model from a folder or the Hub, and model {self.model!r} is not one: "
                "leave lora out, or use another model"
            )
        if self.chat_template not in (None, NONE):
            raise UnknownOption.among(self.chat_template, [NONE], "chat_template replaces that of the model.")
        if is_gguf(self.model):
            raise BadSetting(
                f"model {self.model} is a GGUF file, which can play but not be trained: write it as a folder with "
                "agentgym-flow export"
            )
        self._check_dtype()
        if not 0 <= self.lora_dropout < 1:
            raise BadSetting(f"lora_dropout must be at least 0 and below 1, got {self.lora_dropout}")
        check_integer("validations", self.validations, 0)
        if self.threads is not None:
            check_integer("threads", self.threads, 1)
        for name in ("lora_rank", "lora_alpha", "validation_episodes", "eval_episodes", "also_on_episodes"):
            check_integer(name, getattr(self, name), 1)

    @cached_property
    def env_settings(self) -> dict[str, Any]:
        """Keyword arguments of the environment. Data on disk is found, read and hashed once.

        Raises `UnknownData` or `BadData` if it does not exist.
        """
        settings = mapping("env_kwargs", self.env_kwargs)
        return _with_data(settings)

    @cached_property
    def also_settings(self) -> dict[str, dict[str, Any]]:
        """Keyword arguments of `also_on` by name. Data on disk is read once. Raises what `env_settings` raises."""
        return {name: _with_data(settings) for name, settings in mapping("also_on", self.also_on).items()}

    @property
    def lora_settings(self) -> dict[str, Any]:
        """Keyword arguments of `with_lora`, except the seed."""
        return {
            "rank": self.lora_rank,
            "alpha": self.lora_alpha,
            "dropout": self.lora_dropout,
            "targets": self.lora_targets,
        }

    @property
    def data(self) -> DataSet | None:
        """The data on disk that provides the tasks; None for built-in tasks. Raises what `env_settings` raises."""
        return self.env_settings.get("data")

    def make_template(self) -> PromptTemplate:
        """Return the prompt template. Raises what `template_for` raises."""
        return template_for(self.env_id, self.template, mapping("template_settings", self.template_settings))

    def make_env(self, split: str = "train") -> TextEnv:
        """Make an environment of a split. Raises what its constructor raises."""
        return make_text_env(self.env_id, split=split, **self.env_settings)

    def _check_dtype(self) -> None:
        if self.dtype not in DTYPES:
            raise UnknownOption.among(self.dtype, DTYPES, "dtype is the type of the weights.")
        if self.dtype != "float32" and not (self.lora or is_adapter(self.model)):
            raise BadSetting(
                f"dtype {self.dtype} would round small updates away: keep float32 (with bf16=true the computation is "
                "in bfloat16 all the same), or train adapters with lora"
            )


@dataclass
class WarmStartConfig:
    """Settings of the warm start: behaviour cloning of expert episodes, which may be noisy.

    Attributes:
        warm_start_levels: training tasks that the expert plays, once each; 0 for no warm start. In commands, a default
            is lowered to the number of training tasks; a larger number that the user chose is an error.
        warm_start_noise: the probability that a step is a random valid action instead of the expert's.
        warm_start_imitate_noise: whether random actions are imitated. False shows them as context only.
        warm_start_text_weight: the weight in the loss, in [0, 1], of tokens of prompts and observations; tokens of
            answers have weight 1. Above 0 the model learns to write whole episodes, as in pre-training.
        warm_start_hints: whether each turn, or in layout conversation each episode, is also imitated with a hint in
            its prompt, so that the policy learns to read hints. They are worded as those of `opsd_hint`, and say what
            the demonstration then does.
        warm_start_updates: optimizer steps.
        warm_start_batch: turns per step, drawn with replacement.
        warm_start_learning_rate: learning rate of AdamW.
        warm_start_muon_learning_rate: learning rate of Muon on hidden matrices. None: AdamW trains these too.
        warm_start_validations: the number of validations during cloning.
        warm_start_validation_episodes: episodes of each validation.
    """

    levels_are_chosen = True  # no setting: whether the user chose warm_start_levels, which is then not lowered
    warm_start_levels: int = 300
    warm_start_noise: float = 0.3
    warm_start_imitate_noise: bool = True
    warm_start_text_weight: float = 0.0
    warm_start_hints: bool = False
    warm_start_updates: int = 120
    warm_start_batch: int = 128
    warm_start_learning_rate: float = 2e-3
    warm_start_muon_learning_rate: float | None = 0.02
    warm_start_validations: int = 4
    warm_start_validation_episodes: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.warm_start_noise <= 1:
            raise BadSetting(f"warm_start_noise is a probability, got {self.warm_start_noise}")
        if self.warm_start_noise == 1 and not self.warm_start_imitate_noise:
            raise BadSetting("with a warm_start_noise of 1 all actions are random: imitate them, or lower the noise")
        if not 0 <= self.warm_start_text_weight <= 1:
            raise BadSetting(f"warm_start_text_weight must be from 0 to 1, got {self.warm_start_text_weight}")
        check_integer("warm_start_levels", self.warm_start_levels, 0)
        for name in ("updates", "batch", "validations", "validation_episodes"):
            check_integer(f"warm_start_{name}", getattr(self, f"warm_start_{name}"), 1)
        check_rate("warm_start_learning_rate", self.warm_start_learning_rate)
        if self.warm_start_muon_learning_rate is not None:
            check_rate("warm_start_muon_learning_rate", self.warm_start_muon_learning_rate)


def mapping(name: str, value: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return a setting that is a mapping or JSON of one. Raises `BadSetting` naming the setting."""
    # Settings are annotated as optional, so that the command-line parser of Hugging Face passes JSON through as text.
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
    """Return `also_on` as a mapping. Raises `BadSetting` for another type, or a name that cannot be a file name."""
    named = mapping("also_on", value)
    for name in named:
        if not re.fullmatch(r"[\w-]+", str(name)) or name in ("sampled", "greedy"):
            raise BadSetting(f"also_on: {name!r} is not a valid name: use letters, digits, - and _, as in other_levels")
    return {name: mapping(f"also_on: {name}", settings) for name, settings in named.items()}


def _with_data(settings: Mapping[str, Any]) -> dict[str, Any]:
    data = settings.get("data")
    return dict(settings) if data is None else {**settings, "data": resolve(data)}


def check_rate(name: str, value: float) -> None:
    """Raise `BadSetting` naming the setting unless it is a learning rate: a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise BadSetting(f"{name} must be a finite number above 0, got {value!r}")


def template_of(run: RunConfig, saved: Path | None = None, processes: Processes | None = None) -> PromptTemplate:
    """Return the prompt template of a run, with a vocabulary if the model is the tiny policy.

    Args:
        run: the settings.
        saved: the file of a collected vocabulary: read if it exists, written otherwise.
        processes: the processes of the run; the main process collects or reads the vocabulary for all.

    Raises:
        AgentGymFlowError: the environment or prompt template is unknown, or the environment proposes no actions.
    """
    template = run.make_template()
    if isinstance(template, SettingsTemplate):
        template = template.for_settings(run.env_settings)
    if run.model != TINY or not isinstance(template, WordTemplate):
        return template
    work = partial(_load_or_collect, run, saved)
    return replace(template, vocabulary=work() if processes is None else processes.on_main_process(work))


def _load_or_collect(run: RunConfig, saved: Path | None) -> tuple[str, ...]:
    if saved is not None and saved.exists():
        return tuple(json.loads(saved.read_text("utf-8")))
    vocabulary = collect_vocabulary(run.make_env)
    if saved is not None:
        with write_atomically(saved) as partly:
            partly.write_text(json.dumps(vocabulary, ensure_ascii=False, indent=0) + "\n", "utf-8")
    return vocabulary
