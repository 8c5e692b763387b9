"""Corrections for turns sampled by older weights or another backend.

The clipped objective keeps the policy close to the *proximal* policy: the model at the beginning of a batch. If other
weights or a generator with different rounding sampled the turns, the decoupled objective (Hilton et al., 2022; AReaL,
Fu et al., 2025) clips the ratio to the proximal policy and weighs each term by the ratio of the proximal to the
sampling policy. This weight is bounded, as in truncated importance sampling (Yao et al., 2025). The settings are TRL's
for vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from agentgym_flow.episodes import Turn
from agentgym_flow.errors import UnknownOption
from agentgym_flow.training.rows import Batch

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
"""The treatment of ratios out of bounds: set to the bound, or to 0; per token, or per row."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of importance ratios.

    Attributes:
        mode: one of `MODES`.
        low: the lower bound; None for no bound.
        high: the upper bound; None for no bound.

    Raises:
        UnknownOption: the mode is unknown.
    """

    mode: str = "token_truncate"
    low: float | None = None
    high: float | None = 3.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UnknownOption.among(self.mode, MODES, "vllm_importance_sampling_mode is one of these.")

    def limited(self, ratios: torch.Tensor) -> torch.Tensor:
        """Return the ratios, with those out of bounds set to the bound or to 0."""
        if self.mode.endswith("truncate"):
            return ratios if self.low is None and self.high is None else ratios.clamp(self.low, self.high)
        low, high = float("-inf") if self.low is None else self.low, float("inf") if self.high is None else self.high
        return ratios.masked_fill((ratios < low) | (ratios > high), 0.0)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Differences between the sampling policy and the model in training, summed over sampled tokens and processes.

    Attributes:
        tokens: the weighted number of tokens.
        ratios: sum of the ratios of the proximal to the sampling policy.
        squares: sum of their squares.
        kl: sum of the estimated KL divergences of the sampling from the proximal policy (k3 of Schulman, 2020).
        limited: number of tokens whose ratio was out of bounds.
        largest: the largest ratio, not a sum.
    """

    tokens: float
    ratios: float
    squares: float
    kl: float
    limited: float
    largest: float

    def metrics(self) -> dict[str, float]:
        """Return means, and the effective sample size as a fraction of the tokens; nothing without tokens."""
        if not self.tokens:
            return {}
        return {
            "importance/ratio": self.ratios / self.tokens,
            "importance/ratio_max": self.largest,
            "importance/kl": self.kl / self.tokens,
            "importance/clipped": self.limited / self.tokens,
            "importance/effective_sample_size": self.ratios**2 / (self.tokens * self.squares),
        }


def corrected(batch: Batch, proximal: torch.Tensor, bounds: Bounds) -> tuple[Batch, Mismatch]:
    """Return a batch for the decoupled objective, and its mismatch with the model in training.

    Advantages are multiplied by the bounded ratio of the proximal to the sampling policy, and the proximal policy
    replaces the sampling policy in the clipped ratio.

    Args:
        batch: the tensors of `collate` or `collate_merged`.
        proximal: the log-probabilities of its tokens by the current model; the shape of the old ones.
        bounds: bounds of the ratios.
    """
    merged = "tokens" in batch
    old = "old_logprobs" if merged else "old_per_token_logps"
    counts = batch["weights"] if merged else batch["completion_mask"] * batch["tool_mask"]
    there = counts > 0
    difference = torch.where(there, proximal - batch[old], 0.0)
    ratios = difference.exp()
    judged = ratios
    if bounds.mode.startswith("sequence") and not merged:  # in merged rows every token is a whole answer
        judged = difference.sum(-1, keepdim=True).exp().expand_as(ratios)
    weights = bounds.limited(judged)
    changed = {old: torch.where(there, proximal, batch[old])}
    # For TRL's `off_policy_mask_threshold`, and for the metric `sampling_gap`.
    changed["sampling_logprobs" if merged else "sampling_per_token_logps"] = batch[old]
    for name in ("positive", "negative") if merged else ("advantages",):
        changed[name] = batch[name] * weights
    mismatch = Mismatch(
        tokens=float(counts.sum()),
        ratios=float((counts * ratios).sum()),
        squares=float((counts * ratios**2).sum()),
        kl=float((counts * (ratios - 1 - difference)).sum()),
        limited=float((counts * (weights != judged)).sum()),
        largest=float(ratios[there].max()) if there.any() else 0.0,
    )
    return {**batch, **changed}, mismatch


def staleness(turns: Iterable[Turn], version: int) -> list[int]:
    """Return for each turn how many versions its weights are behind `version`; 0 if it records no version."""
    return [0 if turn.output.version is None else version - turn.output.version for turn in turns]
