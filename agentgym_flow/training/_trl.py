"""The interface to TRL: the only module that uses members of TRL that are not documented for users.

TRL has no public way to train on custom rows, so `RowTrainer` overrides the two methods that TRL's own experimental
trainers override too: the one that makes a batch and the one that computes the loss. It overrides a third, which saves
a checkpoint, to make resumption exact; a fourth, which computes log-probabilities, to compute those of sampled tokens
only; and a fifth, which hands out the parts of a batch, so that rows with common prefixes are in the same part. Their
signatures are checked on import, so that an incompatible version of TRL raises a clear error.
`tests/training/test_trl_contract.py` has a test for each behaviour that this module relies on.
"""

from __future__ import annotations

import inspect
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import GRPOTrainer

from agentgym_flow.errors import UnsupportedTRL
from agentgym_flow.generation.padding import positions_from_mask
from agentgym_flow.training import scoring
from agentgym_flow.training.config import LOSS_TYPES, AgentConfig
from agentgym_flow.training.processes import PLAY, Processes, out_of_memory, take_state
from agentgym_flow.training.run_folder import PARTIAL, STEP_FOLDER, UNLOGGED, keep_last, writing

TESTED = ("1.16",)
"""Minor versions of TRL that were tested."""

REQUIRED = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_compute_loss": ("self", "model", "inputs"),
    "_save_checkpoint": ("self", "model", "trial"),
    "_prepare_inputs": ("self", "generation_batch"),
    "_get_per_token_logps_and_entropies": (
        *("self", "model", "input_ids", "attention_mask", "logits_to_keep"),
        *("batch_size", "compute_entropy", "compute_aux_loss", "pixel_values", "image_grid_thw", "num_images"),
        *("pixel_attention_mask", "spatial_shapes", "num_tiles", "image_sizes", "token_type_ids"),
        *("mm_token_type_ids", "image_position_ids"),
    ),
}
"""Overridden methods of `GRPOTrainer`, with their parameters."""

ATTRIBUTES = (
    *("_metrics", "_step", "_buffered_inputs", "aux_loss_enabled"),
    *("loss_type", "entropy_coef", "num_generations"),
)
"""Attributes of a `GRPOTrainer` instance that are read or set here."""


def check_trl(trainer: type) -> None:
    """Raise `UnsupportedTRL` unless `trainer` has the methods of `REQUIRED`, with the same parameters."""
    for name, expected in REQUIRED.items():
        member = getattr(trainer, name, None)
        found = None if member is None else tuple(inspect.signature(member).parameters)
        if found != expected:
            state = "is gone" if found is None else f"now takes ({', '.join(found)})"
            raise _unsupported(f"{trainer.__name__}.{name} {state}")


def _unsupported(what: str) -> UnsupportedTRL:
    return UnsupportedTRL(
        f"TRL {version('trl')}: {what}. Tested with TRL {', '.join(TESTED)}; install a tested version: "
        f"pip install 'trl=={TESTED[-1]}.*'"
    )


check_trl(GRPOTrainer)


def _member(module: str, name: str) -> Any:
    """Return a function of TRL. Raises `UnsupportedTRL` if it does not exist."""
    found = getattr(import_module(module), name, None)
    if found is None:
        raise _unsupported(f"{module}.{name} is gone")
    return found


prepare_deepspeed = _member("trl.models", "prepare_deepspeed")
unwrap_model_for_generation = _member("trl.models", "unwrap_model_for_generation")
add_fused_lm_head = _member("trl.trainer.utils", "add_fused_lm_head")


@contextmanager
def fused_lm_head(model: PreTrainedModel, temperature: float) -> Iterator[None]:
    """Within the context, `model(..., labels=labels, fused_lm_head=True)` returns `log_probs` of labels, not logits.

    TRL computes them in tiles of the vocabulary, at labels other than -100, so the full logits are never in memory. The
    policy in training already has such a head for the loss, at the sampling temperature.
    """
    plain = model.get_base_model() if hasattr(model, "peft_config") else model
    before = vars(plain).get("forward")
    add_fused_lm_head(plain, temperature=temperature)
    try:
        yield
    finally:
        del plain.forward
        if before is not None:
            plain.forward = before


@contextmanager
def _without_step_check(engine: Any) -> Iterator[None]:
    """Let ranks make unequal numbers of forward passes under ZeRO-3 with gathered weights.

    TRL removes DeepSpeed's hooks for sampling except one, which checks at every forward pass that all ranks are at the
    same step. It would wait forever if one rank has longer episodes.
    """
    offload = getattr(getattr(engine, "optimizer", None), "parameter_offload", None)
    hook = getattr(offload, "fwd_pre_hook", None)
    if offload is None or hook is None:
        yield
        return
    hooks = offload.module._forward_pre_hooks
    check = hooks.pop(hook.id)
    try:
        yield
    finally:
        hooks[hook.id] = check


@contextmanager
def frozen_model(trainer: GRPOTrainer) -> Iterator[PreTrainedModel]:
    """Yield the model of a trainer to sample from, under ZeRO-3 with gathered weights.

    It computes in the precision of the updates (`bf16`), so that both have the same log-probabilities.
    """
    kwargs = trainer.args.gradient_checkpointing_kwargs
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped, trainer.accelerator, gradient_checkpointing_kwargs=kwargs
        ) as model,
        _without_step_check(trainer.model_wrapped),
        trainer.accelerator.autocast(),
    ):
        yield model


def _two_columns(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Add a masked second column to `batch` if all completions are single tokens.

    TRL takes a single column for one value per sequence and ignores the mask, so padding would change its metrics.
    """
    columns = batch["completion_ids"].shape
    if columns[1] > 1 or (batch["completion_mask"] * batch["tool_mask"] == 1).all():  # nothing is masked
        return batch
    return {name: pad(value, (0, 1)) if value.shape == columns else value for name, value in batch.items()}


def _neighbours(parts: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """Return the parts of one optimizer step with their rows sorted by tokens; the step's gradient is the same."""
    whole = {
        name: torch.cat([part[name] for part in parts]) if value.dim() else value for name, value in parts[0].items()
    }
    starts = (whole["prompt_mask"].shape[1] - whole["prompt_mask"].sum(1)).tolist()
    rows = torch.cat([whole["prompt_ids"], whole["completion_ids"]], dim=1).tolist()
    order = sorted(range(len(rows)), key=lambda row: rows[row][starts[row] :])
    size = len(rows) // len(parts)
    return [
        {name: value[order[first : first + size]] if value.dim() else value for name, value in whole.items()}
        for first in range(0, len(rows), size)
    ]


def _no_reward(completions: list[Any], **_: Any) -> list[None]:
    # TRL requires a reward function. It is never called: `make_batch` computes the advantages.
    return [None] * len(completions)


class _StartCallback(TrainerCallback):  # type: ignore[misc]
    """Restores a resumed trainer's unlogged metrics and intervals, and calls `RowTrainer.begin` on the ready model."""

    def __init__(self, trainer: RowTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        state.compute_steps(args, state.max_steps)  # a checkpoint has the intervals of the run that wrote it
        self._trainer._restore_unlogged()
        self._trainer.begin(self._trainer._resumed)


class RowTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO trainer for custom batches. A subclass provides `make_batch` and may extend `loss`.

    Args:
        args: the settings.
        processes: the processes of the run; created here if None.
        kwargs: the other arguments of TRL's trainer.
    """

    def __init__(self, args: AgentConfig, processes: Processes | None = None, **kwargs: Any) -> None:
        take_state(args)
        beta, args.beta = args.beta, 0.0  # else TRL loads a reference model by name; subclasses have their own
        try:
            super().__init__(args=args, reward_funcs=_no_reward, **kwargs)
        finally:
            args.beta = beta
        self.beta = beta
        for name in ATTRIBUTES:
            if not hasattr(self, name):
                raise _unsupported(f"GRPOTrainer.{name} is gone")
        self.shares = bool(args.share_prefixes) and not self.aux_loss_enabled
        self.model.register_forward_pre_hook(positions_from_mask, with_kwargs=True)
        self._processes = processes or Processes(args.ddp_timeout)
        self._resumed: Path | None = None
        self._scored: dict[str, torch.Tensor] = {}  # the micro-batch whose loss is computed
        self.add_callback(_StartCallback(self))

    @abstractmethod
    def make_batch(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the next generation batch.

        The first dimension of every tensor is the number of rows, a multiple of `args.steps_per_generation`. Scalars
        are allowed.
        """

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return TRL's loss of one micro-batch. With `beta` the batch must have `ref_per_token_logps`.

        TRL's entropy bonus is a mean over each micro-batch. Here it is divided by the tokens of the whole batch, like
        the objective, so that a batch may be split in any way (unless the bonus adapts or selects tokens).
        """
        args, batch = self.args, _two_columns(batch)
        self._scored = batch
        tokens = (batch["completion_mask"] * batch["tool_mask"]).sum()
        varies = args.entropy_coef and not (args.use_adaptive_entropy or args.top_entropy_quantile < 1)
        if varies and LOSS_TYPES[self.loss_type] == "turns":
            parts = args.steps_per_generation * self.accelerator.num_processes
            share = tokens.clamp(min=1.0) * parts / batch["num_items_in_batch"].clamp(min=1.0)
            self.entropy_coef = args.entropy_coef * share.item()
        is_empty = not self.accelerator.reduce(tokens, reduction="sum").item()
        before = {name: len(values) for name, values in self._metrics["train"].items()}
        loss = super()._compute_loss(model, batch)
        if varies:
            self._metrics["train"].pop("entropy_coef", None)  # it varies only with the size of the micro-batch
        if is_empty:  # rows of padding in all processes: TRL records 0 for the means over their tokens
            for name, values in self._metrics["train"].items():
                if name != "policy_loss":  # a share of a sum
                    del values[before.get(name, 0) :]
        return loss  # type: ignore[no-any-return]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return self.make_batch()

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Score the sampled tokens of the micro-batch in `loss`. TRL scores every position where it has no Triton."""
        few = scoring.is_small(self.model, input_ids.numel()) and not self.shares
        # Under ZeRO-3 all processes must use the output layer equally often, and they have unequal numbers of tiles.
        if kwargs.get("compute_aux_loss") or few or is_deepspeed_zero3_enabled():
            found: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
            found = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
            )
            self._compare_with_sampling(found[0])
            return found
        with self.accelerator.autocast():
            scores = scoring.sampled_scores(model, self._scored, self.temperature, share=self.shares)
        if self.shares:
            counts = attention_mask.new_tensor([scores.positions, int(attention_mask.sum())])
            computed, tokens = self.accelerator.reduce(counts, reduction="sum").tolist()
            self.record({"shared": 1 - computed / tokens})
        self._compare_with_sampling(scores.logprobs)
        return scores.logprobs, scores.entropies, None

    def _compare_with_sampling(self, logprobs: torch.Tensor) -> None:
        batch = self._scored
        if not batch:
            return
        there = (batch["completion_mask"] * batch["tool_mask"]) > 0
        sampled = batch.get("sampling_per_token_logps", batch["old_per_token_logps"])  # a correction replaces the old
        with torch.no_grad():
            apart = (logprobs - sampled).abs()[there]
        self.record_gap(apart.mean())

    def record_gap(self, gap: torch.Tensor) -> None:
        """Record how far the log-probabilities of tokens are from those of sampling, before the batch changes weights.

        `gap` is the mean absolute difference in nats; NaN without tokens.
        """
        if self.state.global_step % max(1, int(self.args.steps_per_batch)) == 0 and torch.isfinite(gap):
            self.record({"sampling_gap": float(gap)})

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, torch.Tensor]:
        inputs: dict[str, torch.Tensor] = super()._prepare_inputs(generation_batch)
        if not self.shares or not self.model.training or "completion_ids" not in inputs:
            return inputs
        parts, place = self._buffered_inputs, self._step % self.args.steps_per_generation
        if self._step % self.args.gradient_accumulation_steps == 0:
            of_step = slice(place, place + self.args.gradient_accumulation_steps)
            parts[of_step] = _neighbours(parts[of_step])
        return parts[place]  # type: ignore[no-any-return]

    def record(self, metrics: Mapping[str, float]) -> None:
        """Add values to the metrics of the current mode; TRL logs their means."""
        mode = "train" if self.model.training else "eval"
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)

    @property
    def is_resumed(self) -> bool:
        """Whether `train` was called with a checkpoint."""
        return self._resumed is not None

    @contextmanager
    def frozen_model(self) -> Iterator[PreTrainedModel]:
        """Yield the model to sample from, see `frozen_model`."""
        with frozen_model(self) as model, out_of_memory(PLAY):
            yield model

    # ---------------------------------------------------------------- checkpoints
    def train(self, resume_from_checkpoint: Path | None = None, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint folder; return what the Hugging Face trainer returns.

        `resume_from_checkpoint` is a folder that this trainer wrote.
        """
        self._resumed = resume_from_checkpoint
        folder = None if resume_from_checkpoint is None else str(resume_from_checkpoint)
        # The callbacks know their trackers. TRL would add an entry with the time of every forward pass.
        trackers, self.args.report_to = self.args.report_to, []
        try:
            return super().train(resume_from_checkpoint=folder, **kwargs)
        finally:
            self.args.report_to = trackers

    def begin(self, resumed: Path | None) -> None:
        """Prepare for the first step, after the model has been moved to its device and, with ZeRO, split.

        `resumed` is the loaded checkpoint. All processes call this.
        """

    def describe(self, folder: Path) -> None:
        """Add the state of a subclass to a new checkpoint; called in the main process."""

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        # After the last step there is nothing to resume; the caller saves the model.
        if self.state.global_step >= self.state.max_steps:
            return
        output, name = Path(self.args.output_dir), STEP_FOLDER.format(self.state.global_step)
        unfinished = output / PARTIAL / name
        # Writing, hashing and flushing a large model takes minutes, so processes wait without a timeout.
        self._processes.share(partial(self._write_checkpoint, model, trial, output / name, unfinished))
        self._processes.on_main_process(partial(self._complete, output / name, unfinished))

    def _complete(self, folder: Path, unfinished: Path) -> None:
        with writing(folder, unfinished):
            self.describe(unfinished)
            keep_last(folder.parent, unfinished, self.args.save_total_limit)

    def _write_checkpoint(self, model: torch.nn.Module, trial: Any, folder: Path, unfinished: Path) -> None:
        output = self.args.output_dir
        self.args.output_dir = str(unfinished.parent)  # the Hugging Face trainer writes a folder of this name there
        unlogged = {
            "metrics": dict(self._metrics["train"]),
            "loss": self._tr_loss.item(),
            "last_logged": self._globalstep_last_logged,
        }
        with writing(folder, unfinished):
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self.args.output_dir = output
            path = unfinished / UNLOGGED.format(self.accelerator.process_index)
            path.write_text(json.dumps(unlogged), "utf-8")

    def _restore_unlogged(self) -> None:
        if self._resumed is None:
            return
        path = self._resumed / UNLOGGED.format(self.accelerator.process_index)
        unlogged = json.loads(path.read_text("utf-8"))
        self._metrics["train"].update(unlogged["metrics"])
        self._tr_loss += unlogged["loss"]
        self._globalstep_last_logged = unlogged["last_logged"]


class UpdateClock(TrainerCallback):  # type: ignore[misc]
    """Measures the metric `time/update`, in seconds per batch, without the time of other callbacks.

    Args:
        record: records metrics, as `RowTrainer.record` does.

    Attributes:
        making: total seconds spent making batches; the trainer adds to it.
    """

    def __init__(self, record: Callable[[dict[str, float]], None]) -> None:
        self._record = record
        self.making = 0.0

    def on_step_begin(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock."""
        self._began = time.perf_counter() - self.making

    def on_step_end(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Record the time of the step, scaled to a batch."""
        step = time.perf_counter() - self.making - self._began
        self._record({"time/update": step * args.steps_per_batch})
