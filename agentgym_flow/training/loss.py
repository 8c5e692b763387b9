"""The policy loss of merged rows: PPO's clipped objective and an entropy bonus, from one forward pass per prompt.

TRL's own loss covers ordinary rows. Here one position has several sampled tokens, each with the sums of its positive
and negative advantages, which is all that the clipped objective needs (see `agentgym_flow.training.rows`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from agentgym_flow.training.collate import Batch, positions


class MergedLoss(NamedTuple):
    """Sums over one micro-batch, not divided by anything.

    Attributes:
        policy: minus the clipped objective (Schulman et al., 2017), with gradient.
        entropy: the entropy of the next-token distribution in nats, summed over turns, with gradient.
        turns: the number of turns, weighted.
        clipped: the sum of absolute advantages whose gradient the clipping has cut.
        total: the sum of absolute advantages.
    """

    policy: torch.Tensor
    entropy: torch.Tensor
    turns: torch.Tensor
    clipped: torch.Tensor
    total: torch.Tensor


def merged_loss(
    model: torch.nn.Module, batch: Batch, *, temperature: float, epsilon_low: float, epsilon_high: float
) -> MergedLoss:
    """Return the loss sums of a batch made by `collate_merged`.

    Args:
        model: the causal language model.
        batch: the tensors.
        temperature: the logits are divided by it, as in sampling.
        epsilon_low: the ratio is clipped from below at 1 minus this where the advantage is negative.
        epsilon_high: and from above at 1 plus this where it is positive.
    """
    logits = model(
        input_ids=batch["prompt_ids"],
        attention_mask=batch["prompt_mask"],
        position_ids=positions(batch["prompt_mask"]),
        logits_to_keep=1,
        use_cache=False,
    ).logits[:, -1]
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    ratio = (logprobs.gather(1, batch["tokens"]) - batch["old_logprobs"]).exp()
    ratio = ratio.masked_fill(batch["weights"] == 0, 1.0)  # padding
    positive, negative = batch["positive"], batch["negative"]
    objective = positive * ratio.clamp(max=1 + epsilon_high) + negative * ratio.clamp(min=1 - epsilon_low)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    turns_at = batch["weights"].sum(-1)
    with torch.no_grad():
        clipped = positive[ratio > 1 + epsilon_high].sum() - negative[ratio < 1 - epsilon_low].sum()
        total = positive.sum() - negative.sum()
    return MergedLoss(-objective.sum(), (entropy * turns_at).sum(), turns_at.sum(), clipped, total)
