"""The time of the optimizer steps of a batch, without the time to make the batch in the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState

if TYPE_CHECKING:
    from agentgym_flow.training.config import AgentConfig


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
