"""From rows to the padded tensors of one batch. Padding does not change the loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentgym_flow.generation.padding import left_padded
from agentgym_flow.training.rows import MergedRow, TrainingRow

Batch = dict[str, torch.Tensor]

COMPLETION = (
    *("completion_ids", "completion_mask", "tool_mask", "advantages", "old_per_token_logps"),
    "sampling_per_token_logps",  # only where it differs from the old ones
)
"""Tensors of ordinary rows that have one column per completion token."""


def collate(
    batch: Sequence[TrainingRow], *, pad: int, multiple: int, least: int = 0, device: torch.device | None = None
) -> Batch:
    """Return TRL's tensors for ordinary rows: prompts padded on the left, completions on the right.

    Rows of weight zero are added up to `least` and to a multiple of `multiple`. `completion_mask` is 1 on every token
    that is not padding. TRL's sums and means use `tool_mask`, which is the row's weight on sampled tokens and 0 on
    observations.

    Args:
        batch: the rows; may be empty.
        pad: the padding token.
        multiple: the number of minibatches.
        least: the minimal number of rows, which is the same in all processes.
        device: the device of the tensors.

    Returns:
        `prompt_ids`, `prompt_mask` (R, P); `completion_ids`, `completion_mask`, `tool_mask`, `advantages`,
        `old_per_token_logps` (R, C).
    """
    padding = [TrainingRow([pad], [pad], [0.0], [0.0], weight=0.0)] * _missing(len(batch), multiple, least)
    every = [*batch, *padding]
    prompt_ids, prompt_mask = left_padded([row.prompt for row in every], pad)
    lengths = torch.tensor([len(row.completion) for row in every])
    present = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    weights = torch.tensor([row.weight for row in every])
    mask = present & (weights > 0)[:, None]
    sampled = _right([row.sampled or [1] * len(row.completion) for row in every], 0.0)
    tensors = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": _right([row.completion for row in every], pad).long(),
        "completion_mask": mask.long(),
        "tool_mask": sampled * weights[:, None],
        "advantages": _right([row.advantages for row in every], 0.0),
        "old_per_token_logps": _right([row.logprobs for row in every], 0.0),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def collate_merged(
    batch: Sequence[MergedRow], *, pad: int, multiple: int, least: int = 0, device: torch.device | None = None
) -> Batch:
    """Return the tensors of merged rows, padded like ordinary ones; unused alternatives have weight zero.

    Returns:
        `prompt_ids`, `prompt_mask` (R, P); `tokens`, `old_logprobs`, `positive`, `negative`, `weights` (R, A).
    """
    padding = [MergedRow([pad], [pad], [0.0], [0.0], [0.0], [0.0])] * _missing(len(batch), multiple, least)
    every = [*batch, *padding]
    prompt_ids, prompt_mask = left_padded([row.prompt for row in every], pad)
    weights = _right([row.weights for row in every], 0.0)
    tensors = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "tokens": _right([row.tokens for row in every], pad).long(),
        "old_logprobs": _right([row.logprobs for row in every], 0.0),
        "positive": _right([row.positive for row in every], 0.0),
        "negative": _right([row.negative for row in every], 0.0),
        "weights": weights,
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def trim_padding(batch: Batch) -> Batch:
    """Remove the columns that are padding in all rows of `batch`, which both `collate` functions may have made.

    A batch is padded to its longest row, which most minibatches do not contain. Processes may get different widths.
    """
    longest = int(batch["prompt_mask"].sum(1).max())
    cut = {name: batch[name][:, -longest:] for name in ("prompt_ids", "prompt_mask")}
    if "completion_mask" in batch:
        # Never a single column: TRL's metrics would read it as one value per sequence and count padding rows.
        longest = max(2, int(batch["completion_mask"].sum(1).max()))
        cut |= {name: batch[name][:, :longest] for name in COMPLETION if name in batch}
    return {**batch, **cut}


def _missing(count: int, multiple: int, least: int) -> int:
    wanted = max(count, least, 1)
    return wanted - count + -wanted % multiple


def _right(sequences: Sequence[Sequence[float]], fill: float) -> torch.Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([list(s) + [fill] * (longest - len(s)) for s in sequences], dtype=torch.float32)
