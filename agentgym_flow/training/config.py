"""Settings of the trainer: a dataclass that extends TRL's `GRPOConfig` and checks its values.

Settings of the run around the trainer are in `training.run_config`. `training.config_file` reads and writes both.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from trl import GRPOConfig

from agentgym_flow._util.openai_access import checked_url
from agentgym_flow.core import check_integer
from agentgym_flow.errors import BadSetting, MissingExtra, UnknownOption
from agentgym_flow.prompts import CONVERSATION, LAYOUTS, TURN
from agentgym_flow.rewards.credit import CREDIT, OFFICIAL_READS, credit_function, settings_of
from agentgym_flow.rewards.credit.comparison import Advantages, check_penalty
from agentgym_flow.rewards.structure import StructureScore
from agentgym_flow.training.conversation import checked_date
from agentgym_flow.training.main_settings import NOT_USED
from agentgym_flow.training.off_policy import Bounds
from agentgym_flow.training.processes import isolated_state, processes, share_out
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig, check_rate, mapping

NATIVE, STRUCTURE = REWARDS = ("native", "structure")
"""The rewards of training: the environment's own, or a score of the workflow's design."""

TRANSFORMERS, VLLM, SERVERS = "transformers", "vllm", ("http://", "https://")
"""Values of `generator`: two names, and the prefixes of server URLs."""

VLLM_SETTINGS = {
    "vllm_gpu_memory_utilization": (VLLM,),
    "vllm_max_model_length": (VLLM, *SERVERS),
    "vllm_server_timeout": SERVERS,
}
"""TRL's vLLM settings that are supported -> the prefixes of `generator` that read them."""

REPORTERS = ("tensorboard", "trackio", "wandb")
"""Packages whose presence is checked when `report_to` names them. Transformers checks the others."""

LOSS_TYPES = {"dapo": "turns", "cispo": "turns", "vespo": "turns", "bnpo": "rows"}
"""TRL's losses that ignore padding rows -> what each is a mean over: all turns, or the rows trained on."""

NUMBERS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "seed": ("at least 0 and below 2**32", lambda value: 0 <= value < 2**32),
    **dict.fromkeys(
        ("epsilon", "epsilon_high", "max_grad_norm", "weight_decay"), ("at least 0", lambda value: value >= 0)
    ),
    "final_lr_ratio": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "entropy_coef": ("a finite number", math.isfinite),
    "temperature": ("above 0", lambda value: value > 0),
    "beta": ("a finite number, at least 0", lambda value: math.isfinite(value) and value >= 0),
    "zero_advantage_share": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "replay_share": ("at least 0 and below 1", lambda value: 0 <= value < 1),
    "fork_share": ("from 0 to 1", lambda value: 0 <= value <= 1),
    **dict.fromkeys(
        ("credit_weight", "opsd_weight"), ("a finite number, at least 0", lambda v: math.isfinite(v) and v >= 0)
    ),
    "opsd_clip": ("above 0", lambda value: value > 0),
}
"""Settings that are numbers -> their range in words, and whether a value is in it."""

MERGEABLE = {
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "delta": None,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "use_adaptive_entropy": False,
}
"""The values of settings of the loss that work on merged rows."""


def checked_generator(name: str) -> str:
    """Return a value of `generator`, with tidy addresses. Raises `UnknownOption` or `BadSetting` if it is none."""
    if name.startswith(SERVERS):
        urls = [checked_url(url.strip()).rstrip("/") for url in name.split(",")]
        if len(set(urls)) < len(urls):
            raise BadSetting(f"generator names a server twice: {name}")
        return ",".join(urls)
    if name not in (TRANSFORMERS, VLLM):
        known = (TRANSFORMERS, VLLM, "http://HOST:PORT")
        raise UnknownOption.among(name, known, "generator is the backend that samples.")
    return name


@dataclass
class AgentConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings with defaults for agents, and additional settings.

    A batch has `groups_per_batch` groups and is used for `steps_per_batch` optimizer steps, for any number of
    processes. Names kept from TRL: `num_generations` is the group size; `per_device_train_batch_size` is the number of
    episodes in one forward pass of one process; `max_steps` counts optimizer steps; `max_completion_length` is the
    longest answer of one turn, in tokens. If `groups_per_batch` is not given, each process has
    `per_device_train_batch_size * steps_per_generation` episodes of a batch. If `steps_per_batch` is not given, there
    is one optimizer step every `gradient_accumulation_steps` passes.

    `beta` is the weight of the KL divergence to the model at the start of training, estimated on sampled tokens at the
    sampling temperature. `entropy_coef` is the weight of the policy's entropy at the same tokens. Both terms are sums
    over sampled tokens, normalised like the objective. `chat_template_kwargs` sets variables of the chat template, such
    as `{"enable_thinking": false}`; they are written into the template, which is saved with the model.

    Attributes:
        date: the date, in ISO format, that chat templates write into prompts if they read the clock. None: the day on
            which the run begins. A resumed run keeps its date.
        groups_per_batch: groups in a batch, see above.
        steps_per_batch: optimizer steps per batch, see above. All passes over the batch count (`num_iterations`).
        layout: `turn` makes one row per turn, each with its own prompt. `conversation` makes one row per episode, whose
            prompts grow from turn to turn; the prompt template needs a `follow_up` message.
        mask_observations: exclude observations from the loss. False trains on them as if the policy had written them,
            which is an ablation; only for conversations.
        reward: `native`, or `structure` to reward training episodes for the design of their workflow
            (`agentgym_flow.rewards.structure`). Credit is then computed from returns; evaluation and logs stay native.
        reward_settings: keyword arguments of `StructureScore`; JSON on the command line.
        invalid_action_penalty: subtracted from the advantage of every turn with an invalid action, see
            `agentgym_flow.rewards.credit.comparison`. With verl-agent's prompts, of every turn with a malformed answer.
        credit: the function that computes advantages from a batch of groups: one of `agentgym_flow.rewards.CREDIT`, or
            `module:function`.
        credit_settings: its keyword arguments; JSON on the command line.
        fork_share: the mean probability, in [0, 1], that the advantage of a turn is measured by playing on from the
            states before and after it (`play.forks.corrected_advantages`). Advantages then have the true ones as their
            expectation; `credit` lowers their variance. Needs the outcome `success`, the trainer's own rollout and
            one process. The steps of continuations count as environment steps.
        fork_continuations: the number of continuations of each of these states.
        credit_weight: multiplies the advantages of `credit` and the penalty. 0 with `opsd_weight` leaves distillation
            alone.
        opsd_weight: the weight of on-policy self-distillation (`agentgym_flow.training.self_distillation`): of the
            reverse KL divergence to the same model with a hint in its prompts; 0 for none.
        opsd_hint: the hint: `attempt`, what another attempt of the group did to succeed; `expert`, what the
            environment's expert does; or `module:function`, which maps the `PolicyInput` of a turn to a text or None.
        opsd_clip: the largest absolute difference of log-probabilities, in nats; None for no limit.
        muon_learning_rate: learning rate of Muon on hidden matrices; AdamW with `learning_rate` trains the other
            parameters. None: AdamW trains all of them.
        final_lr_ratio: the learning rate at the end of the linear schedule, as a fraction of the full one.
        merge_prompts: let rows with equal prompts share one forward pass where answers are single tokens. Exact, and
            much cheaper where prompts repeat. Conversations are never merged.
        share_prefixes: compute every distinct prefix of the rows of a pass once, forward and backward, and put rows
            with common prefixes into the same pass. The gradient is the same up to rounding. None: off, except in
            `agentgym-flow train` with a model other than `tiny`.
        zero_advantage_share: the fraction, in [0, 1], of the rows with zero advantages that is computed. Only the
            entropy bonus and the KL term act on these rows, and each computed row is weighted up for those left out;
            0 leaves all of them out. The objective is divided by the number of all turns in any case.
        stop_when: a key of `info` that ends a training episode early when true (Sokoban: `deadlock`). None: episodes
            end by the environment's rules, as they always do in evaluation.
        replay_share: the fraction of a batch's tasks, in [0, 1), that are replayed because their last group had mixed
            outcomes. The others are new: every task once, in random order, before any repeats.
        dynamic_sampling: replace groups with equal outcomes by groups of further tasks, until the batch is full of
            groups with mixed outcomes or `max_sampling_rounds` is reached. Discarded episodes count as played.
        max_sampling_rounds: the most rounds of play for one batch, at least 2; only with `dynamic_sampling`.
        num_envs: environments that run at the same time. The default of `generation_rows` depends on it.
        activation_checkpointing: store only the inputs of layers and recompute the other activations in the backward
            pass: a third more work for a fraction of the memory. None: off, except in `agentgym-flow train` with a
            model other than `tiny`.
        wants_gpu: whether bfloat16 or half precision was requested without `use_cpu`.
        generation_rows: the exact number of rows in each forward pass that samples, best a power of two, which makes
            answers bitwise independent of concurrent requests; 0: no fixed number. None: on the CPU 16, or the power of
            two that fewer `num_envs` need; 0 on a GPU.
        generator: the backend that samples in rollouts and evaluations: `transformers`; `vllm`, an engine in every
            process; or the URLs of vLLM servers, separated by commas, which all receive new weights. An engine reads
            `vllm_gpu_memory_utilization`, its fraction of the memory, and `vllm_max_model_length`, prompt and answer in
            tokens. For servers `vllm_server_timeout` is the number of seconds after which a silent one counts as down.
        log_rollouts: the number of rollouts of a batch that the trackers in `report_to` get as readable traces, beside
            the metrics; 0 for none. See `agentgym_flow.report.traces.traces` for which.

    `vllm_importance_sampling_correction` corrects for turns sampled by older weights or another backend, vLLM or not
    (see `agentgym_flow.training.off_policy`); `vllm_importance_sampling_mode`, `_clip_min` and `_clip_max` configure
    it. Turns sampled by the model in training itself need no correction.

    `save_strategy="steps"` writes a checkpoint every `save_steps` optimizer steps and keeps the last
    `save_total_limit`. `save_steps` must be a multiple of the optimizer steps per batch.
    """

    learning_rate: float = 5e-4
    max_steps: int = 100
    steps_per_generation: int | None = None
    per_device_train_batch_size: int = 32
    max_completion_length: int | None = 1
    epsilon_high: float | None = 0.28
    activation_checkpointing: bool | None = None
    gradient_checkpointing: bool | None = None
    disable_tqdm: bool | None = True
    dataloader_pin_memory: bool = False
    save_strategy: str = "no"
    vllm_importance_sampling_mode: str = "token_truncate"
    date: str | None = None
    groups_per_batch: int = None  # type: ignore[assignment]  # each follows from other settings where it is not given
    steps_per_batch: float = None  # type: ignore[assignment]
    layout: str = TURN
    mask_observations: bool = True
    reward: str = NATIVE
    reward_settings: dict[str, Any] | str | None = field(default_factory=dict)
    invalid_action_penalty: float = 0.0
    credit: str = "rewardflow"
    credit_settings: dict[str, Any] | str | None = field(default_factory=dict)
    fork_share: float = 0.0
    fork_continuations: int = 4
    credit_weight: float = 1.0
    opsd_weight: float = 0.0
    opsd_hint: str = "attempt"
    opsd_clip: float | None = None
    muon_learning_rate: float | None = None
    final_lr_ratio: float = 0.0
    merge_prompts: bool = True
    share_prefixes: bool | None = None
    zero_advantage_share: float = 1.0
    stop_when: str | None = None
    replay_share: float = 0.0
    dynamic_sampling: bool = False
    max_sampling_rounds: int = 10
    num_envs: int = 256
    generation_rows: int | None = None
    generator: str = TRANSFORMERS
    log_rollouts: int = 4

    def __post_init__(self) -> None:
        checkpointing = self.gradient_checkpointing
        if self.activation_checkpointing is not None:
            checkpointing = self.activation_checkpointing
        self.use_checkpointing(bool(checkpointing))  # None would select TRL's own default
        self.wants_gpu = (bool(self.bf16) or self.fp16) and not self.use_cpu
        self.credit_settings = mapping("credit_settings", self.credit_settings)
        self.reward_settings = mapping("reward_settings", self.reward_settings)
        if self.stop_when == "null":  # on the command line; in YAML it is None already
            self.stop_when = None
        self.date = checked_date(self.date)
        check_integer("num_envs", self.num_envs, 1)
        check_integer("generation_rows", self.generation_rows or 0, 0)
        check_integer("max_sampling_rounds", self.max_sampling_rounds, 2)
        check_integer("fork_continuations", self.fork_continuations, 1)
        check_integer("log_rollouts", self.log_rollouts, 0)
        check_integer("num_generations", self.num_generations, 2)  # credit compares the attempts of a group
        for name in ("max_steps", "num_iterations", "per_device_train_batch_size", "gradient_accumulation_steps"):
            check_integer(name, getattr(self, name), 1)
        for name in ("steps_per_generation", "max_completion_length"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        for name, (wanted, fits) in NUMBERS.items():
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise BadSetting(f"{name} must be {wanted}, got {value}")
        if self.muon_learning_rate is not None:
            check_rate("muon_learning_rate", self.muon_learning_rate)
        if self.muon_learning_rate is not None or self.learning_rate != 0:  # AdamW alone may measure without training
            check_rate("learning_rate", self.learning_rate)
        if self.layout not in LAYOUTS:
            raise UnknownOption.among(self.layout, LAYOUTS)
        if not self.mask_observations and self.layout != CONVERSATION:
            raise BadSetting("only layout conversation can train on observations: in layout turn they are prompts")
        self._check_reward()
        self._check_generator()
        check_penalty(self.invalid_action_penalty)
        _ = self.importance_bounds
        self._check_used()
        self._check_combinations()
        self._check_processes()
        share_out(self, processes())
        self.bf16: bool | None
        self.gradient_accumulation_steps: int
        self.use_cpu: bool
        self.ddp_backend: str | None
        if self.bf16 is None and not torch.cuda.is_available():
            self.bf16 = False
        try:
            with isolated_state():
                super().__post_init__()
        except ValueError as error:
            raise BadSetting(str(error)) from error
        self.groups_per_batch = self.generation_batch_size // self.num_generations
        self.steps_per_batch = self.steps_per_generation * self.num_iterations / self.gradient_accumulation_steps
        self.use_checkpointing(checkpointing)
        if self.mixed_precision == "bf16":  # set by the launcher; DeepSpeed reads it here, on a CPU too
            self.bf16 = True
        self._check_checkpoints()

    @property
    def credit_keywords(self) -> dict[str, Any]:
        """Keyword arguments of the credit function. A reward that is not native makes `return` the default outcome."""
        given = mapping("credit_settings", self.credit_settings)
        return given if self.reward == NATIVE else {"outcome": "return", **given}

    @property
    def structure_score(self) -> StructureScore | None:
        """The score that replaces native rewards in training; None for native rewards.

        Raises `BadSetting` or `UnknownOption` for an invalid setting.
        """
        if self.reward == NATIVE:
            return None
        try:
            return StructureScore(**mapping("reward_settings", self.reward_settings))
        except TypeError as error:
            raise BadSetting(f"reward_settings: {str(error).partition(') ')[2]}") from None

    @property
    def importance_bounds(self) -> Bounds:
        """Bounds of the importance ratios. Raises `UnknownOption` for an unknown mode."""
        return Bounds(
            self.vllm_importance_sampling_mode,
            self.vllm_importance_sampling_clip_min,
            self.vllm_importance_sampling_clip_max,
        )

    @property
    def info_keys(self) -> tuple[str, ...]:
        """The keys of `info` that reward and credit read from the turns."""
        of_reward = () if self.structure_score is None else self.structure_score.reads
        of_credit = OFFICIAL_READS.get(self.credit, ()) if self.credit_keywords.get("reproduce_official") else ()
        return (*of_reward, *of_credit)

    @property
    def credit_function(self) -> Callable[..., Advantages]:
        """The function that computes advantages from a batch of groups.

        Raises `UnknownOption` for an unknown function or word, and `BadSetting` for a keyword argument it does not have
        or a number out of range. The values of a user's function are unknown here, so the function checks them itself.
        """
        known, settings = settings_of(self.credit), self.credit_keywords
        for name in settings:
            if name not in known:
                raise BadSetting(
                    f"credit function {self.credit!r} has no setting {name!r}; it has {', '.join(known)}: change "
                    "credit_settings"
                )
        function: Callable[..., Advantages] = partial(credit_function(self.credit), **settings)
        if self.credit in CREDIT:
            function([])  # checks the values before any work
        return function

    @property
    def outcome(self) -> str:
        """The value of an episode that the credit function compares: `success` (its default) or `return`.

        Raises `UnknownOption` for an unknown function.
        """
        return str((settings_of(self.credit) | self.credit_keywords).get("outcome", "success"))

    def _check_reward(self) -> None:
        if self.reward not in REWARDS:
            raise UnknownOption.among(self.reward, REWARDS, "These are the rewards of training.")
        if self.reward == NATIVE:
            if self.reward_settings:
                raise BadSetting("reward_settings are for reward structure: leave them out for native rewards")
            return
        _ = self.structure_score
        if self.outcome != "return":
            raise BadSetting(
                f"reward {self.reward} needs outcome return, but credit_settings have {self.outcome!r}: leave it out"
            )

    def _check_generator(self) -> None:
        self.generator = checked_generator(self.generator)
        for setting in fields(self):
            readers = VLLM_SETTINGS.get(setting.name, ("",))
            if not self.generator.startswith(readers) and getattr(self, setting.name) != setting.default:
                raise BadSetting(f"{setting.name} has no effect with generator {self.generator!r}: leave it out")

    def _check_used(self) -> None:
        self.report_to: list[str] | str | None
        if isinstance(self.report_to, str):
            self.report_to = [name.strip() for name in self.report_to.split(",")]
        for name in self.report_to or []:
            if name not in (*INTEGRATION_TO_CALLBACK, "all", "none"):
                raise UnknownOption.among(name, [*REPORTERS, "none"], "report_to names trackers, separated by commas.")
            if name in REPORTERS and find_spec(name) is None:
                raise MissingExtra(f"report_to: {name} is not installed. Install it with: pip install {name}")
        for setting in fields(self):
            if setting.name in NOT_USED and getattr(self, setting.name) != setting.default:
                raise BadSetting(f"{setting.name} is for a part of TRL that is not used here: leave it out")
        if self.loss_type not in LOSS_TYPES:
            raise UnknownOption.among(self.loss_type, LOSS_TYPES, "These are the losses that ignore padding.")
        if self.zero_advantage_share != 1 and LOSS_TYPES[self.loss_type] == "rows":
            raise BadSetting(
                f"zero_advantage_share below 1 would change the scale of loss_type {self.loss_type!r}, a "
                "mean over rows: use dapo, or keep all rows"
            )

    def _check_combinations(self) -> None:
        if self.credit_weight != 1 and not self.opsd_weight:
            raise BadSetting("credit_weight weighs credit against self-distillation: set opsd_weight too")
        if self.opsd_weight and not self.mask_observations:
            raise BadSetting("a teacher scores the answers of the policy only: leave mask_observations on, or opsd off")
        if self.fork_share and (self.outcome != "success" or processes() > 1):
            raise BadSetting(
                "fork_share measures success in one process: leave it at 0 for returns or several processes"
            )
        if self.muon_learning_rate is not None and self.optim != GRPOConfig.optim:
            raise BadSetting(f"muon_learning_rate brings its own optimizers: leave out optim={self.optim!r}")
        if self.final_lr_ratio and self.lr_scheduler_type != "linear":
            raise BadSetting("final_lr_ratio belongs to lr_scheduler_type linear; leave it at 0 for another schedule")
        if self.merge_prompts and self.max_completion_length == 1 and self.layout == TURN:
            for name, only in MERGEABLE.items():
                if getattr(self, name) != only:
                    raise BadSetting(
                        f"{name}={getattr(self, name)!r} does not work on merged rows: set merge_prompts to false"
                    )

    def ends_batch(self, step: int) -> bool:
        """Return whether optimizer step number `step` is the last one of a batch."""
        return bool(step * self.gradient_accumulation_steps % (self.steps_per_generation * self.num_iterations) == 0)

    def use_checkpointing(self, on: bool | None) -> None:
        """Set `activation_checkpointing` and `gradient_checkpointing`, its name in Transformers before 5.23."""
        self.activation_checkpointing, self.gradient_checkpointing = on, bool(on)

    def _check_checkpoints(self) -> None:
        if self.save_strategy not in ("no", "steps"):
            raise BadSetting(f"save_strategy must be no or steps, got {self.save_strategy!r}")
        if self.save_strategy == "steps" and (self.save_steps < 1 or not self.ends_batch(int(self.save_steps))):
            raise BadSetting(
                f"save_steps={self.save_steps} is inside a batch, and checkpoints hold whole batches only: use a "
                f"multiple of {self.steps_per_batch:g}, the optimizer steps of one batch"
            )

    def _check_processes(self) -> None:
        if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" or self.deepspeed is not None:
            if self.use_cpu:
                raise BadSetting("use_cpu would silently switch DeepSpeed off: leave it out, also on a CPU")
            if self.muon_learning_rate is not None:
                raise BadSetting(
                    "ZeRO does not support Muon beside AdamW: set muon_learning_rate to null, which uses AdamW alone"
                )
        elif not torch.accelerator.is_available():
            self.use_cpu = True
        if not torch.accelerator.is_available() and processes() > 1:
            self.ddp_backend = self.ddp_backend or "gloo"  # without one Accelerate would not connect the processes


Configs = tuple[RunConfig, WarmStartConfig, AgentConfig]
