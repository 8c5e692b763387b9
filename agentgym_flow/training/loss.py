"""The loss of merged rows, and log-probabilities of ordinary rows.

TRL's own loss covers ordinary rows. A merged row has several sampled tokens at one position, each with the sums of its
positive and negative advantages, which are all that the clipped objective needs (see `agentgym_flow.training.rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from agentgym_flow.generation.padding import next_logits, positions
from agentgym_flow.training import scoring
from agentgym_flow.training._trl import fused_lm_head
from agentgym_flow.training.rows import Batch, TrainingRow, collate, trim_padding

if TYPE_CHECKING:
    from transformers import PreTrainedModel


PASS_COST = {"cpu": 256, "cuda": 1 << 14}
"""Fixed cost of a forward and backward pass, in positions: of the tiny model (measured), and of 0.5B (a guess)."""


class MergedLoss(NamedTuple):
    """Sums over one micro-batch, not normalised.

    Attributes:
        policy: minus the clipped objective (Schulman et al., 2017), with gradient.
        entropy: the entropy of the next-token distribution in nats, summed over turns, with gradient.
        kl: the estimated KL divergence to the reference, summed over turns, with gradient; 0 without a reference.
        turns: the weighted number of turns.
        clipped_low: the sum of absolute advantages whose gradient was clipped at the lower bound.
        clipped_high: the same at the upper bound.
        total: the sum of absolute advantages.
        apart: the absolute differences of the log-probabilities from those of sampling, summed over turns.
    """

    policy: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor
    turns: torch.Tensor
    clipped_low: torch.Tensor
    clipped_high: torch.Tensor
    total: torch.Tensor
    apart: torch.Tensor

    def metrics(self, summed: Callable[[torch.Tensor], list[float]], *, kl: bool) -> dict[str, float]:
        """Return means over the turns of all processes; nothing without turns.

        Args:
            summed: sums a tensor over the processes.
            kl: whether there is a reference.
        """
        own = (self.entropy.detach(), self.kl.detach(), self.turns, self.clipped_low, self.clipped_high, self.total)
        entropy, divergence, turns, low, high, total = summed(torch.stack(own))
        if not turns:
            return {}
        total = total or 1.0  # without advantages nothing is clipped
        clipped = {"": (low + high) / total, "/low": low / total, "/high": high / total}
        figures = {"entropy": entropy / turns, **{f"clip_fraction{which}": share for which, share in clipped.items()}}
        return {**figures, "kl": divergence / turns} if kl else figures


def merged_loss(
    model: torch.nn.Module,
    batch: Batch,
    *,
    temperature: float,
    epsilon_low: float,
    epsilon_high: float,
    reference_logprobs: torch.Tensor | None = None,
    corrected: bool = True,
    by_length: bool = False,
) -> MergedLoss:
    """Return the loss sums of a batch made by `collate_merged`.

    Args:
        model: the causal language model.
        batch: the tensors.
        temperature: the logits are divided by it, as in sampling.
        epsilon_low: for negative advantages the ratio is clipped below at 1 minus this.
        epsilon_high: for positive advantages the ratio is clipped above at 1 plus this.
        reference_logprobs: log-probabilities of `tokens` by the reference, (R, A); None for no KL term.
        corrected: multiply the KL estimate by the probability ratio (TRL's `use_bias_correction_kl`).
        by_length: split the rows into passes of similar length, see `next_logprobs`.
    """
    logprobs = next_logprobs(model, batch, temperature, by_length=by_length)
    chosen = logprobs.gather(1, batch["tokens"])
    weights = batch["weights"]
    ratio = (chosen - batch["old_logprobs"]).exp().masked_fill(weights == 0, 1.0)  # padding
    positive, negative = batch["positive"], batch["negative"]
    objective = positive * ratio.clamp(max=1 + epsilon_high) + negative * ratio.clamp(min=1 - epsilon_low)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    kl = torch.zeros_like(chosen)
    if reference_logprobs is not None:
        above = reference_logprobs - chosen
        kl = above.exp() - above - 1  # the estimate k3 (Schulman, 2020), as in TRL
        kl = kl * ratio if corrected else kl
    with torch.no_grad():
        low, high = -negative[ratio < 1 - epsilon_low].sum(), positive[ratio > 1 + epsilon_high].sum()
        total = positive.sum() - negative.sum()
        apart = ((chosen - batch.get("sampling_logprobs", batch["old_logprobs"])).abs() * weights).sum()
    turns_at = weights.sum(-1)
    turns = turns_at.sum()
    return MergedLoss(
        -objective.sum(), (entropy * turns_at).sum(), (kl * weights).sum(), turns, low, high, total, apart
    )


def next_logprobs(model: torch.nn.Module, batch: Batch, temperature: float, *, by_length: bool = False) -> torch.Tensor:
    """Return the tempered log-probabilities of all next tokens after the prompts of `batch`; (R, vocabulary).

    With `by_length`, prompts of similar length share a forward pass, which saves padding and changes results in their
    last bits only. Processes then make unequal numbers of passes, which DDP and ZeRO-3 do not support.
    """
    ids, mask = batch["prompt_ids"], batch["prompt_mask"]
    if not by_length:
        return _next_logprobs(model, ids, mask, temperature)
    lengths = mask.sum(1)
    parts = passes_by_length(lengths)
    found = [_next_logprobs(model, ids[p, -width:], mask[p, -width:], temperature) for p, width in parts]
    return torch.cat(found)[torch.cat([part for part, _ in parts]).argsort()]


def passes_by_length(lengths: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """Return the row indices and the width of each forward pass, for the split of least cost.

    The cost is the number of positions computed, including padding, plus `PASS_COST` for each pass.

    Args:
        lengths: the lengths of the prompts in tokens, (R,).
    """
    cost = PASS_COST.get(lengths.device.type, PASS_COST["cuda"])
    ascending, order = lengths.sort(stable=True)
    widths, counts = (found.cpu().numpy() for found in ascending.unique_consecutive(return_counts=True))  # type: ignore[no-untyped-call]
    ends = np.concatenate([[0], counts.cumsum()])  # the number of rows up to each width
    least, cut = np.zeros(len(ends)), np.zeros(len(ends), dtype=int)
    for last in range(1, len(ends)):  # dynamic programming: the cheapest passes for all rows up to this width
        costs = least[:last] + cost + max(1, widths[last - 1]) * (ends[last] - ends[:last])
        cut[last] = costs.argmin()
        least[last] = costs[cut[last]]
    passes: list[tuple[torch.Tensor, int]] = []
    last = len(widths)
    while last:
        passes.append((order[ends[cut[last]] : ends[last]], max(1, int(widths[last - 1]))))
        last = int(cut[last])
    return passes


def _next_logprobs(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, temperature: float) -> torch.Tensor:
    return torch.log_softmax(next_logits(model, ids, mask).float() / temperature, dim=-1)


def completion_logprobs(
    model: PreTrainedModel, batch: Batch, temperature: float = 1.0, *, share: bool = False
) -> torch.Tensor:
    """Return the tempered log-probability of every sampled token of a batch made by `collate`; (R, C).

    Where logits are few (`scoring.is_small`), those of other tokens are computed too; elsewhere they are 0. With
    `share`, every distinct prefix of the rows is computed once.
    """
    rows, columns = batch["completion_ids"].shape
    if columns == 1 and not share:
        return _next_logprobs(model, batch["prompt_ids"], batch["prompt_mask"], temperature).gather(
            1, batch["completion_ids"]
        )
    few = scoring.is_small(model, rows * (columns + 1))
    if share or not (few or is_deepspeed_zero3_enabled()):
        return scoring.sampled_scores(model, batch, temperature, share=share).logprobs
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions(mask), "use_cache": False}
    if not few:  # under ZeRO-3 all processes must use the output layer equally often
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, :-columns] = -100
        with fused_lm_head(model, temperature):
            found: torch.Tensor = model(**inputs, labels=labels, fused_lm_head=True).log_probs[:, -columns:]
        return found
    logits = model(**inputs, logits_to_keep=columns + 1).logits[:, :-1]
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return logprobs.gather(-1, batch["completion_ids"][..., None])[..., 0]


def batch_logprobs(
    model: PreTrainedModel, batch: Batch, temperature: float, size: int, *, share: bool = False
) -> torch.Tensor:
    """Return the log-probabilities of the tokens of a whole batch, with `model` in evaluation mode.

    Args:
        model: the causal language model.
        batch: the tensors of `collate` or `collate_merged`.
        temperature: the sampling temperature.
        size: rows per forward pass.
        share: compute every distinct prefix of the ordinary rows of a pass once.

    Returns:
        (R, C) for the completions of ordinary rows, (R, A) for the alternatives of merged ones; 0 where padded.
    """
    found = torch.zeros_like(batch["old_logprobs" if "tokens" in batch else "old_per_token_logps"])
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for first in range(0, len(batch["prompt_ids"]), size):
            part = trim_padding({name: tensor[first : first + size] for name, tensor in batch.items() if tensor.dim()})
            if "tokens" in part:
                logprobs = next_logprobs(model, part, temperature).gather(1, part["tokens"])
            else:
                logprobs = completion_logprobs(model, part, temperature, share=share)
            columns = min(logprobs.shape[1], found.shape[1])
            found[first : first + size, :columns] = logprobs[:, :columns]
    model.train(was_training)
    return found


def row_logprobs(
    model: PreTrainedModel,
    some: Sequence[TrainingRow],
    filling: Callable[[int], Mapping[str, Any]],
    *,
    temperature: float,
    passes: int,
    share: bool = False,
) -> list[list[float]]:
    """Return the log-probabilities of the completions of rows, without gradient; equal rows are computed once.

    Args:
        model: the causal language model.
        some: the rows; all processes must call this, with any number of them.
        filling: maps the number of distinct rows to the keyword arguments of `collate`.
        temperature: the sampling temperature.
        passes: the number of forward passes.
        share: compute every distinct prefix of the rows of a pass once.
    """
    keys = [(tuple(row.prompt), tuple(row.completion), tuple(row.sampled or ())) for row in some]
    distinct = dict(zip(keys, some, strict=True))
    if not share:  # rows of similar length share a pass
        distinct = dict(sorted(distinct.items(), key=lambda one: len(one[0][0]) + len(one[0][1])))
    batch = collate([*distinct.values()], **filling(len(distinct)))
    found = batch_logprobs(model, batch, temperature, -(-len(batch["prompt_ids"]) // passes), share=share)
    known = dict(zip(distinct, found.tolist(), strict=False))  # without the rows of padding
    return [known[key][: len(row.completion)] for key, row in zip(keys, some, strict=True)]
