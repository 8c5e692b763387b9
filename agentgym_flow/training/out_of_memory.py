"""Errors for running out of GPU memory that name the setting to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from agentgym_flow.errors import TrainingFailed

PLAY = "play", "lower num_envs or max_completion_length"
"""The kind of work, and advice on how to reduce its memory."""

UPDATE = (
    "an update",
    "lower per_device_train_batch_size, which with groups_per_batch and steps_per_batch computes the same in smaller "
    "parts; or set activation_checkpointing or lora",
)
"""The same for updates."""

CLONING = "cloning", "lower warm_start_batch"
"""The same for the warm start."""


@contextmanager
def out_of_memory(work: tuple[str, str]) -> Iterator[None]:
    """Raise `TrainingFailed` naming the settings to change if PyTorch runs out of GPU memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise TrainingFailed(f"{work[0]} does not fit into the GPU's memory ({reason}): {work[1]}") from error
