"""The loss of a minibatch: TRL's for ordinary rows, ours for merged ones, each with the reference of the KL penalty."""

from __future__ import annotations

from pathlib import Path

import torch

from agentgym_flow.errors import TrainingFailed
from agentgym_flow.training._trl import RowTrainer
from agentgym_flow.training.loss import completion_logprobs, merged_loss, next_logprobs, passes_by_length
from agentgym_flow.training.reference import Reference
from agentgym_flow.training.rows import Batch, trim_padding

FAILED_BATCH = "failed_batch.pt"
"""The file in the output folder with the micro-batch on which training failed."""


class MinibatchTrainer(RowTrainer):
    """A trainer with the losses of both kinds of rows.

    Attributes:
        reference: the weights of the KL penalty; None without one.
    """

    reference: Reference | None
    _alone: bool
    """Whether the run has one process."""

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return the loss of one micro-batch: TRL's for ordinary rows, ours for merged ones.

        Raises `TrainingFailed` if it is not finite, after saving the micro-batch to the output folder.
        """
        batch = trim_padding(batch)
        if not self.shares or "tokens" in batch:
            self._record_padding(batch)
        loss = self._merged_loss(model, batch) if "tokens" in batch else self._row_loss(model, batch)
        if not torch.isfinite(loss):
            path = Path(self.args.output_dir) / FAILED_BATCH
            torch.save({name: tensor.cpu() for name, tensor in batch.items()}, path)
            raise TrainingFailed(
                f"the loss is {loss.item()} at step {self.state.global_step}: lower learning_rate and "
                f"muon_learning_rate, or max_grad_norm. The batch was saved to {path}"
            )
        return loss

    def _record_padding(self, batch: Batch) -> None:
        """Record the fraction of padding among the positions computed for a micro-batch, over all processes."""
        masks = [mask for name in ("prompt_mask", "completion_mask") if (mask := batch.get(name)) is not None]
        filled = batch["weights" if "weights" in batch else "tool_mask"].any(dim=1, keepdim=True)  # not a padding row
        computed = sum(mask.numel() for mask in masks)
        if "tokens" in batch and self._alone:
            computed = sum(len(part) * width for part, width in passes_by_length(batch["prompt_mask"].sum(1)))
        counts = [float(sum((mask * filled).sum() for mask in masks)), float(computed)]
        tokens, positions = self._over_processes(torch.tensor(counts))
        self.record({"padding": 1 - tokens / positions})

    def _over_processes(self, values: torch.Tensor) -> list[float]:
        """Return the sums of `values` over all processes."""
        return [*self.accelerator.reduce(values.to(self.accelerator.device), reduction="sum").tolist()]

    def _row_loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        if self.reference is None:
            return super().loss(model, batch)
        with torch.no_grad(), self.accelerator.autocast(), self.reference.frozen() as reference:
            wanted = completion_logprobs(reference, batch, self.args.temperature, share=self.shares)
        return super().loss(model, {**batch, "ref_per_token_logps": wanted})

    def _merged_loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        args, wanted = self.args, None
        if self.reference is not None:
            with torch.no_grad(), self.accelerator.autocast(), self.reference.frozen() as reference:
                found = next_logprobs(reference, batch, args.temperature, by_length=self._alone)
                wanted = found.gather(1, batch["tokens"])
        with self.accelerator.autocast():
            sums = merged_loss(
                model,
                batch,
                temperature=args.temperature,
                epsilon_low=args.epsilon,
                epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
                reference_logprobs=wanted,
                corrected=args.use_bias_correction_kl,
                by_length=self._alone,
            )
        self.record(sums.metrics(self._over_processes, kl=self.reference is not None))
        self.record_gap(sums.apart / sums.turns)
        # The turns of the batch, divided among processes and optimizer steps (TRL's "dapo").
        share = self.current_gradient_accumulation_steps / args.steps_per_generation / self.accelerator.num_processes
        turns_per_step = batch["num_items_in_batch"].clamp(min=1.0) * share
        loss: torch.Tensor = (sums.policy - args.entropy_coef * sums.entropy + self.beta * sums.kl) / turns_per_step
        return loss
