"""Token sequences as rectangular tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def left_padded(
    sequences: Sequence[Sequence[int]], pad: int, width: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and mask of sequences filled up with `pad` on the left, both (R, width); None: of the longest."""
    longest = max(map(len, sequences)) if width is None else width
    ids = torch.tensor([[pad] * (longest - len(s)) + list(s) for s in sequences])
    lengths = torch.tensor([len(s) for s in sequences])
    mask = torch.arange(longest)[None, :] >= longest - lengths[:, None]
    return ids, mask.long()


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Return the position ids that count from the first token that is not padding; `mask` is (R, T)."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)
