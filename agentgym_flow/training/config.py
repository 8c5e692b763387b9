"""The settings of a training run, as typed dataclasses that check themselves.

Three of them: what to train on and where (`RunConfig`), the cloning that comes first (`WarmStartConfig`), and the
trainer (`AgentConfig`, every setting of TRL's `GRPOConfig` and ours). `training.config_file` reads and writes them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

import torch
from trl import GRPOConfig

from agentgym_flow.core import TextEnv
from agentgym_flow.data import DataSet, resolve
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.source import ENV_ID as SOKOBAN
from agentgym_flow.episode import Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards.credit import CREDIT, Advantages, settings_of
from agentgym_flow.rewards.penalty import check_penalty
from agentgym_flow.training.lora import is_adapter
from agentgym_flow.training.rows import LAYOUTS, TURN
from agentgym_flow.training.run import TINY

GENERATED, BOXOBAN = "generated", "boxoban:"
"""The values of `levels`: the first as it is, the second with a path after it."""

LAST_RUN = "true"
"""The value of `resume` that stands for the last run at `output_dir`."""


@dataclass
class RunConfig:
    """What to train, on what, and where the results go.

    Attributes:
        env_id: the id of a text environment.
        env_kwargs: its arguments, without the split; on the command line as JSON.
        levels: for Sokoban, where levels come from: `generated`, as `env_kwargs` says, or `boxoban:PATH` for real ones,
            a Boxoban file or folder or a registered name. A folder with sub-folders named after the splits is trained
            and evaluated on by split; other levels serve every split, so evaluation plays those trained on. What
            `env_kwargs` says of generated levels is then left out.
        model: `tiny`, or a Hugging Face causal language model (a folder, or a name with `HF_HUB_OFFLINE=0`).
        lora: train adapters on the model's linear layers (LoRA) and leave the model as it is. Not for `tiny`. A folder
            with trained adapters is given as `model`, without this.
        lora_rank: the inner dimension of the adapters.
        lora_alpha: their output is scaled by `lora_alpha / lora_rank`.
        profile: the prompt profile of the environment.
        threads: threads of torch on the CPU; none leaves the choice to torch. A tiny model gains little from more than
            one and loses much where other programs are running.
        validations: how often validation success is measured during training; 0 for never.
        validation_episodes: validation episodes each time.
        eval_episodes: test episodes before and after training, sampled and greedy.
        boxoban: for Sokoban, a Boxoban level file or folder or a registered name to evaluate on as well; none to skip.
        boxoban_episodes: levels of it to play before and after training.
        resume: the folder of a killed or interrupted run to go on with, or `true` for the last one at `output_dir`;
            none for a new run. The other settings must be those of that run.
    """

    env_id: str = SOKOBAN
    env_kwargs: dict[str, Any] | str | None = field(default_factory=dict)
    levels: str = GENERATED
    model: str = "tiny"
    lora: bool = False
    lora_rank: int = 16
    lora_alpha: int = 32
    profile: str = "compact"
    threads: int | None = None
    validations: int = 10
    validation_episodes: int = 200
    eval_episodes: int = 500
    boxoban: str | None = None
    boxoban_episodes: int = 100
    resume: str | None = None

    def __post_init__(self) -> None:
        self.env_kwargs = _mapping("env_kwargs", self.env_kwargs)
        self._check_levels()
        if isinstance(self.resume, bool) or str(self.resume).lower() in ("true", "false"):  # YAML has real booleans
            self.resume = LAST_RUN if str(self.resume).lower() == "true" else None
        if self.lora and (self.model == TINY or is_adapter(self.model)):
            raise BadSetting(
                f"lora adds adapters to a whole model in a folder or on the Hub, and model {self.model!r} is none: "
                "leave lora out, or give another model"
            )
        _at_least("lora_rank", self.lora_rank, 1)
        _at_least("lora_alpha", self.lora_alpha, 1)
        _at_least("validations", self.validations, 0)
        _at_least("threads", self.threads or 1, 1)
        _at_least("validation_episodes", self.validation_episodes, 1)
        _at_least("eval_episodes", self.eval_episodes, 1)
        _at_least("boxoban_episodes", self.boxoban_episodes, 1)

    @cached_property
    def env_settings(self) -> dict[str, Any]:
        """The environment's arguments as a mapping; data on disk is found, read and hashed once.

        Raises `UnknownData` or `BadData` when there is none.
        """
        settings = _mapping("env_kwargs", self.env_kwargs)
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
            if _mapping("env_kwargs", self.env_kwargs).get(name) is not None:
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
        _at_least("warm_start_levels", self.warm_start_levels, 0)
        for name in ("updates", "batch", "validations", "validation_episodes"):
            _at_least(f"warm_start_{name}", getattr(self, f"warm_start_{name}"), 1)


NOT_USED = (
    "cache_implementation",
    "chat_template_kwargs",
    "ds3_gather_for_generation",
    "eval_strategy",
    "generation_kwargs",
    "log_completions",
    "mask_truncated_completions",
    "min_p",
    "model_init_kwargs",
    "multi_objective_aggregation",
    "repetition_penalty",
    "resume_from_checkpoint",
    "reward_weights",
    "scale_rewards",
    "sync_ref_model",
    "top_k",
    "top_p",
    "use_transformers_continuous_batching",
    "use_vllm",
)
"""Settings of TRL for parts of it that are replaced here (its sampling and its rewards): refused."""

LOSS_TYPES = {"dapo": "turns", "cispo": "turns", "vespo": "turns", "bnpo": "rows"}
"""TRL's losses that padding rows cannot reach, and what each is a mean over: all turns, or the rows trained on."""


@dataclass
class AgentConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings with defaults for agents, and what agents need beside them.

    Of TRL's names: `num_generations` is the size of a group; `per_device_train_batch_size` times `steps_per_generation`
    is the number of episodes per batch and process; `steps_per_generation` is the number of minibatches; `max_steps`
    counts optimizer steps, one per `gradient_accumulation_steps` minibatches; `max_completion_length` is the longest
    answer of one turn.

    Also of TRL's names: `beta` weighs the KL divergence to a copy of the model as it is when training begins, estimated
    on sampled tokens at the temperature of sampling; `entropy_coef` weighs the entropy of the policy there. Both are
    sums over sampled tokens divided as the objective is.

    Attributes:
        layout: `turn` for a row a turn, each with its own prompt; `conversation` for a row an episode, whose prompts
            grow by what was said (the profile needs a `follow_up` message).
        invalid_action_penalty: taken from the advantage of every turn whose action was not valid, see
            `agentgym_flow.rewards.penalty`.
        credit: the function that turns a batch of groups into advantages, one of `agentgym_flow.rewards.CREDIT`.
        credit_settings: its keyword arguments; on the command line as JSON.
        muon_learning_rate: the step of Muon on hidden matrices, next to AdamW with `learning_rate` on the rest; none
            for AdamW alone.
        final_lr_ratio: what the linear schedule ends at, as a share of the full step.
        merge_prompts: let equal prompts share one row where answers are single tokens. Exact, and much cheaper where
            prompts repeat. Conversations are never merged.
        drop_zero_advantages: leave out rows whose advantages are all 0. They would only feel the entropy bonus
            and the KL term; the objective is divided by the number of all turns either way.
        stop_when: a key of `info` that, when true, cuts a training episode short (Sokoban: `deadlock`); none for full
            episodes. Evaluation never stops early.
        replay_share: the share of a batch's tasks that are played again because their last group ended differently, in
            [0, 1); the rest are new. 0 plays the tasks of the data set one after the other.
        dynamic_sampling: play further tasks in place of groups that ended alike, until the batch is full of groups that
            have something to compare or `max_sampling_rounds` are played. All episodes count, also those left out.
        max_sampling_rounds: how often at most is played for one batch, at least 2; only with `dynamic_sampling`.
        num_envs: environments running at a time while collecting.

    `save_strategy="steps"` writes a checkpoint to resume from every `save_steps` optimizer steps, and keeps the last
    `save_total_limit`. `save_steps` must end with a batch.
    """

    learning_rate: float = 5e-4
    max_steps: int = 100
    steps_per_generation: int | None = 4
    per_device_train_batch_size: int = 32
    max_completion_length: int | None = 1
    epsilon_high: float | None = 0.28
    activation_checkpointing: bool | None = False
    disable_tqdm: bool | None = True
    dataloader_pin_memory: bool = False
    save_strategy: str = "no"
    layout: str = TURN
    invalid_action_penalty: float = 0.0
    credit: str = "rewardflow"
    credit_settings: dict[str, Any] | str | None = field(default_factory=dict)
    muon_learning_rate: float | None = None
    final_lr_ratio: float = 0.0
    merge_prompts: bool = True
    drop_zero_advantages: bool = False
    stop_when: str | None = None
    replay_share: float = 0.0
    dynamic_sampling: bool = False
    max_sampling_rounds: int = 10
    num_envs: int = 256

    def __post_init__(self) -> None:
        self.credit_settings = _mapping("credit_settings", self.credit_settings)
        if self.stop_when == "null":  # as the command line says it; in YAML it is None already
            self.stop_when = None
        _at_least("num_envs", self.num_envs, 1)
        _at_least("max_sampling_rounds", self.max_sampling_rounds, 2)
        _at_least("num_generations", self.num_generations, 2)  # an attempt alone has nothing to be compared with
        if self.layout not in LAYOUTS:
            raise UnknownOption.among(self.layout, LAYOUTS)
        check_penalty(self.invalid_action_penalty)
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise BadSetting(f"beta must be a finite number, at least 0, got {self.beta!r}")
        if not 0 <= self.replay_share < 1:
            raise BadSetting(f"replay_share must be at least 0 and below 1, got {self.replay_share}")
        self._check_used()
        if self.muon_learning_rate is not None and self.optim != GRPOConfig.optim:
            raise BadSetting(f"muon_learning_rate brings its own optimizers: leave out optim={self.optim!r}")
        if self.final_lr_ratio and self.lr_scheduler_type != "linear":
            raise BadSetting("final_lr_ratio belongs to lr_scheduler_type linear; leave it at 0 for another schedule")
        if self.merge_prompts and self.max_completion_length == 1 and self.layout == TURN:
            self._check_mergeable()
        self._check_processes()
        self.bf16: bool | None
        self.use_cpu: bool
        self.ddp_backend: str | None
        if self.bf16 is None and not torch.cuda.is_available():
            self.bf16 = False
        try:
            super().__post_init__()
        except ValueError as error:
            raise BadSetting(str(error)) from error
        self._check_checkpoints()

    @property
    def credit_keywords(self) -> dict[str, Any]:
        """The keyword arguments of the credit function as a mapping."""
        return _mapping("credit_settings", self.credit_settings)

    @property
    def credit_function(self) -> Callable[[Sequence[Group]], Advantages]:
        """The function that turns a batch of groups into advantages.

        Raises `UnknownOption` when there is no such function, and `BadSetting` for a keyword that it does not have.
        """
        known, settings = settings_of(self.credit), self.credit_keywords
        for name in settings:
            if name not in known:
                raise BadSetting(
                    f"credit function {self.credit!r} has no setting {name!r}; it has {', '.join(known)}: change "
                    "credit_settings"
                )
        return partial(CREDIT[self.credit], **settings)

    @property
    def outcome(self) -> str:
        """What an episode is worth to the credit function: `success` or `return`."""
        return str(self.credit_keywords.get("outcome", "success"))

    def _check_used(self) -> None:
        for setting in fields(self):
            if setting.name in NOT_USED and getattr(self, setting.name) != setting.default:
                raise BadSetting(f"{setting.name} belongs to a part of TRL that is not used here: leave it out")
        if self.loss_type not in LOSS_TYPES:
            raise UnknownOption.among(self.loss_type, LOSS_TYPES, "These are the losses that padding cannot change.")
        if self.drop_zero_advantages and LOSS_TYPES[self.loss_type] == "rows":
            raise BadSetting(
                f"drop_zero_advantages would change the scale of loss_type {self.loss_type!r}, a mean over rows: use "
                "dapo, or keep all rows"
            )

    @property
    def steps_per_batch(self) -> float:
        """Optimizer steps taken on one batch of episodes."""
        minibatches = self.steps_per_generation * self.num_iterations
        return float(minibatches / self.gradient_accumulation_steps)

    def _check_checkpoints(self) -> None:
        if self.save_strategy not in ("no", "steps"):
            raise BadSetting(f"save_strategy must be no or steps, got {self.save_strategy!r}")
        if self.save_strategy == "steps" and (self.save_steps < 1 or self.save_steps % self.steps_per_batch):
            raise BadSetting(
                f"save_steps={self.save_steps} would stop inside a batch, and half a batch is not kept: give a "
                f"multiple of {self.steps_per_batch:g}, the optimizer steps of one batch"
            )

    def _check_processes(self) -> None:
        if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" or self.deepspeed is not None:
            if self.use_cpu:
                raise BadSetting("use_cpu would switch DeepSpeed off without a word: leave it out, also on a CPU")
            if self.muon_learning_rate is not None:
                raise BadSetting(
                    "ZeRO cannot split Muon and AdamW between processes: set muon_learning_rate to null, which leaves "
                    "AdamW alone"
                )
        elif not torch.accelerator.is_available():
            self.use_cpu = True
        if not torch.accelerator.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            self.ddp_backend = self.ddp_backend or "gloo"  # or Accelerate goes on with each process on its own

    def _check_mergeable(self) -> None:
        needed = {
            "loss_type": "dapo",
            "importance_sampling_level": "token",
            "delta": None,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "use_adaptive_entropy": False,
        }
        for name, value in needed.items():
            if getattr(self, name) != value:
                raise BadSetting(
                    f"{name}={getattr(self, name)!r} does not work on merged rows: set merge_prompts to false"
                )


Configs = tuple[RunConfig, WarmStartConfig, AgentConfig]


def _mapping(name: str, value: Mapping[str, Any] | str | None) -> dict[str, Any]:
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


def _at_least(name: str, value: int | None, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise BadSetting(f"{name} must be a whole number, at least {least}, got {value!r}")
