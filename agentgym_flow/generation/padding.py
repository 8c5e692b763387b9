"""Padding of token sequences."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch


def left_padded(
    sequences: Sequence[Sequence[int]], pad: int, width: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and mask of left-padded sequences, both (R, width); without `width`, of the longest length."""
    longest = max(map(len, sequences)) if width is None else width
    ids = torch.tensor([[pad] * (longest - len(s)) + list(s) for s in sequences])
    lengths = torch.tensor([len(s) for s in sequences])
    mask = torch.arange(longest)[None, :] >= longest - lengths[:, None]
    return ids, mask.long()


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Return position ids that count from the first token that is not padding; `mask` is (R, T)."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


@cache
def cache_argument() -> str:
    """Return what the installed Transformers calls cached keys and values: `cache`; before 5.24 `past_key_values`."""
    from transformers.masking_utils import create_causal_mask

    return "cache" if "cache" in inspect.signature(create_causal_mask).parameters else "past_key_values"


def positions_from_mask(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward pre-hook: add position ids that count from the first token that is not padding.

    TRL pads prompts on the left and passes no position ids, so a model with learned positions would see prompts at
    other positions than in sampling.
    """
    mask, cached = kwargs.get("attention_mask"), kwargs.get(cache_argument())
    if mask is None or kwargs.get("position_ids") is not None or cached is not None or mask.dim() != 2:
        return None
    if mask[:, 0].all():  # no padding on the left: the model's default positions are right, and cheaper
        return None
    return args, {**kwargs, "position_ids": positions(mask)}
