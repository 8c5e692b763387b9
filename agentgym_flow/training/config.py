"""The settings of the trainer, as a typed dataclass that checks itself: every setting of TRL's `GRPOConfig`, and ours.

Those of the run around it are in `training.run_config`; `training.config_file` reads and writes all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from trl import GRPOConfig

from agentgym_flow._util.openai_access import checked_url
from agentgym_flow.errors import BadSetting, MissingExtra, UnknownOption
from agentgym_flow.rewards.credit import COMPAT_READS, credit_function, settings_of
from agentgym_flow.rewards.credit.comparison import Advantages
from agentgym_flow.rewards.credit.penalty import check_penalty
from agentgym_flow.rewards.structure_score import StructureScore
from agentgym_flow.training.batch_shape import processes, share_out
from agentgym_flow.training.off_policy import Bounds
from agentgym_flow.training.processes import state_kept
from agentgym_flow.training.rows import CONVERSATION, LAYOUTS, TURN
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig, at_least, mapping

NOT_USED = (
    "cache_implementation",
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
    "shuffle_dataset",
    "sync_ref_model",
    "top_k",
    "top_p",
    "use_transformers_continuous_batching",
    "use_vllm",
    "vllm_enable_sleep_mode",
    "vllm_group_port",
    "vllm_mode",
    "vllm_model_impl",
    "vllm_server_base_url",
    "vllm_server_host",
    "vllm_server_port",
    "vllm_structured_outputs_regex",
    "vllm_tensor_parallel_size",
)
"""Settings of TRL for parts of it that are replaced here (its sampling and its rewards): refused."""

NATIVE, STRUCTURE = REWARDS = ("native", "structure")
"""What training episodes are rewarded with: by the environment, or for the design of a workflow."""

TRANSFORMERS, VLLM, SERVERS = "transformers", "vllm", ("http://", "https://")
"""What `generator` may be; the addresses of servers begin like this."""

VLLM_SETTINGS = {
    "vllm_gpu_memory_utilization": (VLLM,),
    "vllm_max_model_length": (VLLM,),
    "vllm_server_timeout": SERVERS,
}
"""Settings of TRL that say something to vLLM, and how a `generator` begins that reads them."""

REPORTERS = ("tensorboard", "trackio", "wandb")
"""The packages that `report_to` may name; those that others use are checked by Transformers alone."""

LOSS_TYPES = {"dapo": "turns", "cispo": "turns", "vespo": "turns", "bnpo": "rows"}
"""TRL's losses that padding rows cannot reach, and what each is a mean over: all turns, or the rows trained on."""


@dataclass
class AgentConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings with defaults for agents, and what agents need beside them.

    A batch is `groups_per_batch` groups, on which `steps_per_batch` optimizer steps are taken, however many processes
    share the work. Of TRL's names: `num_generations` is the size of a group; `per_device_train_batch_size` is the
    number of episodes in one forward pass of one process; `max_steps` counts optimizer steps; `max_completion_length`
    is the longest answer of one turn. Where `groups_per_batch` is not given, each process has
    `per_device_train_batch_size` times `steps_per_generation` episodes in a batch; where `steps_per_batch` is not, an
    optimizer step is taken every `gradient_accumulation_steps` passes.

    Also of TRL's names: `beta` weighs the KL divergence to a copy of the model as it is when training begins, estimated
    on sampled tokens at the temperature of sampling; `entropy_coef` weighs the entropy of the policy there. Both are
    sums over sampled tokens divided as the objective is. `chat_template_kwargs` sets variables of the model's chat
    template, such as `{"enable_thinking": false}`; they are written into the template, which is saved with the model.

    Attributes:
        groups_per_batch: see above.
        steps_per_batch: see above; all passes over the batch count (`num_iterations`).
        layout: `turn` for a row a turn, each with its own prompt; `conversation` for a row an episode, whose prompts
            grow by what was said (the profile needs a `follow_up` message).
        mask_observations: keep what the environment said out of the loss. False trains on it as if the policy had said
            it, which is an ablation; only for conversations.
        reward: `native`, or `structure` to reward training episodes for the design of their workflow
            (`agentgym_flow.rewards.structure`). Credit is then given for returns; evaluation and logs stay native.
        reward_settings: the keyword arguments of `StructureScore`; on the command line as JSON.
        invalid_action_penalty: taken from the advantage of every turn whose action was not valid, see
            `agentgym_flow.rewards.credit.penalty`; with verl-agent's prompts, whose answer was malformed.
        credit: the function that turns a batch of groups into advantages: one of `agentgym_flow.rewards.CREDIT`, or
            `module:function` for one of your own.
        credit_settings: its keyword arguments; on the command line as JSON.
        muon_learning_rate: the step of Muon on hidden matrices, next to AdamW with `learning_rate` on the rest; none
            for AdamW alone.
        final_lr_ratio: what the linear schedule ends at, as a share of the full step.
        merge_prompts: let equal prompts share one row where answers are single tokens. Exact, and much cheaper where
            prompts repeat. Conversations are never merged.
        zero_advantage_share: of the rows whose advantages are all 0, the share that is computed, in [0, 1]. They feel
            only the entropy bonus and the KL term, and each that is computed counts for those that are not; 0 leaves
            all of them out. The objective is divided by the number of all turns in any case.
        stop_when: a key of `info` that, when true, cuts a training episode short (Sokoban: `deadlock`); none for full
            episodes. Evaluation never stops early.
        replay_share: the share of a batch's tasks that are played again because their last group ended differently, in
            [0, 1); the rest are new: every task once, in random order, before any comes again.
        dynamic_sampling: play further tasks in place of groups that ended alike, until the batch is full of groups that
            have something to compare or `max_sampling_rounds` are played. All episodes count, also those left out.
        max_sampling_rounds: how often at most is played for one batch, at least 2; only with `dynamic_sampling`.
        num_envs: environments running at a time while collecting.
        activation_checkpointing: keep the activations of layers' inputs only, and compute the others again in the
            backward pass: a third more work for a fraction of the memory. None leaves it off; a run of
            `agentgym-flow train` then has it on, but for the model `tiny`.
        wants_gpu: bfloat16 or half precision was asked for, and not on a CPU.
        generation_rows: the exact number of rows in each forward pass of sampling, so that no bit of an answer depends
            on what else is asked; 0 for as many as there are. None: 16 on the CPU, 0 on a GPU. With 0 on the CPU,
            conversations go on from the keys and values of their last turn.
        generator: what runs the model in rollouts and evaluations: `transformers`; `vllm` for an engine in every
            process; or the addresses of vLLM servers, with commas between them, which get all new weights. Of TRL's
            names, an engine reads `vllm_gpu_memory_utilization`, its share of the memory, and `vllm_max_model_length`,
            prompt and answer in tokens; with servers `vllm_server_timeout` is for how many seconds one may be silent.

    Also of TRL's names: `vllm_importance_sampling_correction` corrects for turns that older weights or another program
    have sampled, vLLM or not (see `agentgym_flow.training.off_policy`); `vllm_importance_sampling_mode`, `_clip_min`
    and `_clip_max` say how. Nothing is corrected where the model in training has sampled all turns itself.

    `save_strategy="steps"` writes a checkpoint to resume from every `save_steps` optimizer steps, and keeps the last
    `save_total_limit`. `save_steps` must end with a batch.
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
    groups_per_batch: int = None  # type: ignore[assignment]  # each follows from other settings where it is not given
    steps_per_batch: float = None  # type: ignore[assignment]
    layout: str = TURN
    mask_observations: bool = True
    reward: str = NATIVE
    reward_settings: dict[str, Any] | str | None = field(default_factory=dict)
    invalid_action_penalty: float = 0.0
    credit: str = "rewardflow"
    credit_settings: dict[str, Any] | str | None = field(default_factory=dict)
    muon_learning_rate: float | None = None
    final_lr_ratio: float = 0.0
    merge_prompts: bool = True
    zero_advantage_share: float = 1.0
    stop_when: str | None = None
    replay_share: float = 0.0
    dynamic_sampling: bool = False
    max_sampling_rounds: int = 10
    num_envs: int = 256
    generation_rows: int | None = None
    generator: str = TRANSFORMERS

    def __post_init__(self) -> None:
        checkpointing = self.gradient_checkpointing
        if self.activation_checkpointing is not None:
            checkpointing = self.activation_checkpointing
        self.use_checkpointing(bool(checkpointing))  # to leave it open would give TRL's own default
        self.wants_gpu = (bool(self.bf16) or self.fp16) and not self.use_cpu
        self.credit_settings = mapping("credit_settings", self.credit_settings)
        self.reward_settings = mapping("reward_settings", self.reward_settings)
        if self.stop_when == "null":  # as the command line says it; in YAML it is None already
            self.stop_when = None
        at_least("num_envs", self.num_envs, 1)
        at_least("generation_rows", self.generation_rows or 0, 0)
        at_least("max_sampling_rounds", self.max_sampling_rounds, 2)
        at_least("num_generations", self.num_generations, 2)  # an attempt alone has nothing to be compared with
        if self.layout not in LAYOUTS:
            raise UnknownOption.among(self.layout, LAYOUTS)
        if not self.mask_observations and self.layout != CONVERSATION:
            raise BadSetting("in layout turn observations are prompts: only layout conversation can train on them")
        self._check_reward()
        self._check_generator()
        check_penalty(self.invalid_action_penalty)
        _ = self.importance_bounds
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise BadSetting(f"beta must be a finite number, at least 0, got {self.beta!r}")
        if not 0 <= self.zero_advantage_share <= 1:
            raise BadSetting(f"zero_advantage_share must be from 0 to 1, got {self.zero_advantage_share}")
        if not 0 <= self.replay_share < 1:
            raise BadSetting(f"replay_share must be at least 0 and below 1, got {self.replay_share}")
        self._check_used()
        self._check_reporters()
        if self.muon_learning_rate is not None and self.optim != GRPOConfig.optim:
            raise BadSetting(f"muon_learning_rate brings its own optimizers: leave out optim={self.optim!r}")
        if self.final_lr_ratio and self.lr_scheduler_type != "linear":
            raise BadSetting("final_lr_ratio belongs to lr_scheduler_type linear; leave it at 0 for another schedule")
        if self.merge_prompts and self.max_completion_length == 1 and self.layout == TURN:
            self._check_mergeable()
        self._check_processes()
        share_out(self)
        self.bf16: bool | None
        self.gradient_accumulation_steps: int
        self.use_cpu: bool
        self.ddp_backend: str | None
        if self.bf16 is None and not torch.cuda.is_available():
            self.bf16 = False
        try:
            with state_kept():
                super().__post_init__()
        except ValueError as error:
            raise BadSetting(str(error)) from error
        self.groups_per_batch = self.generation_batch_size // self.num_generations
        self.steps_per_batch = self.steps_per_generation * self.num_iterations / self.gradient_accumulation_steps
        self.use_checkpointing(checkpointing)
        if self.mixed_precision == "bf16":  # as the launcher said, on a CPU too, where DeepSpeed must find it here
            self.bf16 = True
        self._check_checkpoints()

    @property
    def credit_keywords(self) -> dict[str, Any]:
        """The keyword arguments of the credit function as a mapping; a reward that is not native is read as return."""
        given = mapping("credit_settings", self.credit_settings)
        return given if self.reward == NATIVE else {"outcome": "return", **given}

    @property
    def structure_score(self) -> StructureScore | None:
        """What training episodes are rewarded with in place of native rewards; None for these.

        Raises `BadSetting` or `UnknownOption` for a setting that it does not have or that cannot work.
        """
        if self.reward == NATIVE:
            return None
        try:
            return StructureScore(**mapping("reward_settings", self.reward_settings))
        except TypeError as error:
            raise BadSetting(f"reward_settings: {str(error).partition(') ')[2]}") from None

    @property
    def importance_bounds(self) -> Bounds:
        """How the ratios of importance sampling are limited. Raises `UnknownOption` for a mode that there is not."""
        return Bounds(
            self.vllm_importance_sampling_mode,
            self.vllm_importance_sampling_clip_min,
            self.vllm_importance_sampling_clip_max,
        )

    @property
    def info_keys(self) -> tuple[str, ...]:
        """The keys of `info` that reward and credit read from the turns."""
        of_reward = () if self.structure_score is None else self.structure_score.reads
        of_credit = COMPAT_READS.get(self.credit, ()) if self.credit_keywords.get("compat") else ()
        return (*of_reward, *of_credit)

    @property
    def credit_function(self) -> Callable[..., Advantages]:
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
        return partial(credit_function(self.credit), **settings)

    @property
    def outcome(self) -> str:
        """What an episode is worth to the credit function: `success` or `return`; `success` if it has no such setting.

        Raises `UnknownOption` when there is no such function.
        """
        return str((settings_of(self.credit) | self.credit_keywords).get("outcome", "success"))

    def _check_reward(self) -> None:
        if self.reward not in REWARDS:
            raise UnknownOption.among(self.reward, REWARDS, "These are the rewards of training.")
        if self.reward == NATIVE:
            if self.reward_settings:
                raise BadSetting("reward_settings belong to reward structure: leave them out for native rewards")
            return
        _ = self.structure_score
        if self.outcome != "return":
            raise BadSetting(
                f"reward {self.reward} is a return, and credit_settings ask for outcome {self.outcome!r}: leave it out"
            )

    def _check_generator(self) -> None:
        if self.generator.startswith(SERVERS):
            urls = [checked_url(url.strip()).rstrip("/") for url in self.generator.split(",")]
            if len(set(urls)) < len(urls):
                raise BadSetting(f"generator names a server twice: {self.generator}")
            self.generator = ",".join(urls)
        elif self.generator not in (TRANSFORMERS, VLLM):
            known = (TRANSFORMERS, VLLM, "http://HOST:PORT")
            raise UnknownOption.among(self.generator, known, "generator is what runs the model.")
        for setting in fields(self):
            readers = VLLM_SETTINGS.get(setting.name, ("",))
            if not self.generator.startswith(readers) and getattr(self, setting.name) != setting.default:
                raise BadSetting(f"{setting.name} says nothing to generator {self.generator!r}: leave it out")

    def _check_reporters(self) -> None:
        names = [self.report_to] if isinstance(self.report_to, str) else self.report_to or []
        for name in names:
            if name in REPORTERS and find_spec(name) is None:
                raise MissingExtra(f"report_to: {name} is not installed. Install it with: pip install {name}")

    def _check_used(self) -> None:
        for setting in fields(self):
            if setting.name in NOT_USED and getattr(self, setting.name) != setting.default:
                raise BadSetting(f"{setting.name} belongs to a part of TRL that is not used here: leave it out")
        if self.loss_type not in LOSS_TYPES:
            raise UnknownOption.among(self.loss_type, LOSS_TYPES, "These are the losses that padding cannot change.")
        if self.zero_advantage_share != 1 and LOSS_TYPES[self.loss_type] == "rows":
            raise BadSetting(
                f"zero_advantage_share below 1 would change the scale of loss_type {self.loss_type!r}, a "
                "mean over rows: use dapo, or keep all rows"
            )

    def ends_batch(self, step: int) -> bool:
        """Return whether a batch is used up after so many optimizer steps."""
        return bool(step * self.gradient_accumulation_steps % (self.steps_per_generation * self.num_iterations) == 0)

    def use_checkpointing(self, on: bool | None) -> None:
        """Set `activation_checkpointing`, under the name that Transformers had for it before 5.23 as well."""
        self.activation_checkpointing, self.gradient_checkpointing = on, bool(on)

    def _check_checkpoints(self) -> None:
        if self.save_strategy not in ("no", "steps"):
            raise BadSetting(f"save_strategy must be no or steps, got {self.save_strategy!r}")
        if self.save_strategy == "steps" and (self.save_steps < 1 or not self.ends_batch(int(self.save_steps))):
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
        if not torch.accelerator.is_available() and processes() > 1:
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
