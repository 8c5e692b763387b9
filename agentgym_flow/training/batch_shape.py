"""How a batch is divided among processes, forward passes and optimizer steps."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from agentgym_flow.errors import BadSetting
from agentgym_flow.training.run_config import at_least

if TYPE_CHECKING:
    from trl import GRPOConfig


def processes() -> int:
    """Return the number of processes that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def share_out(args: GRPOConfig) -> None:
    """Set `steps_per_generation` and `gradient_accumulation_steps` from `groups_per_batch` and `steps_per_batch`.

    The first is the number of passes of each process over its share of a batch, the second the number of passes per
    optimizer step. Raises `BadSetting` if the numbers do not divide or contradict each other.
    """
    if args.groups_per_batch is None:
        args.steps_per_generation = args.steps_per_generation or 4
    else:
        episodes = at_least("groups_per_batch", args.groups_per_batch, 1) * args.num_generations
        count = processes()
        passes, left = divmod(episodes, count * args.per_device_train_batch_size)
        if left:
            raise BadSetting(
                f"a batch of {episodes} episodes cannot be divided among {count} processes with "
                f"{args.per_device_train_batch_size} per pass: change groups_per_batch, num_generations or "
                "per_device_train_batch_size"
            )
        if args.steps_per_generation not in (None, passes):
            raise BadSetting(
                f"a batch of {episodes} episodes takes {passes} passes (groups_per_batch={args.groups_per_batch}, "
                f"num_generations={args.num_generations}, per_device_train_batch_size="
                f"{args.per_device_train_batch_size}), but steps_per_generation is {args.steps_per_generation}: set "
                f"steps_per_generation to {passes}, or another per_device_train_batch_size"
            )
        args.steps_per_generation = passes
    if args.steps_per_batch is None:
        return
    passes = args.steps_per_generation * args.num_iterations
    accumulated = round(passes / args.steps_per_batch) if args.steps_per_batch > 0 else 0
    if not accumulated or not math.isclose(accumulated * args.steps_per_batch, passes):
        raise BadSetting(
            f"steps_per_batch={args.steps_per_batch:g} must divide the {passes} passes of a process over a batch: "
            "change it, groups_per_batch or per_device_train_batch_size"
        )
    if args.gradient_accumulation_steps not in (1, accumulated):
        raise BadSetting(
            f"steps_per_batch={args.steps_per_batch:g} takes a step every {accumulated} passes, and "
            f"gradient_accumulation_steps says {args.gradient_accumulation_steps}: leave one of them out"
        )
    args.gradient_accumulation_steps = accumulated
