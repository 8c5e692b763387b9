"""Ctrl-C while training: the batch under way is finished and a checkpoint is written; a second one stops at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

if TYPE_CHECKING:
    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.trainer import AgentTrainer


class StopAfterBatch(TrainerCallback):  # type: ignore[misc]
    """Ends training with a checkpoint, at the end of the batch in which Ctrl-C was pressed.

    Args:
        trainer: which training; with several processes all stop together, whichever was told.
        tell: called with a sentence for the person who pressed the keys.

    Attributes:
        pressed: whether it was.
        together: whether all processes have stopped for it, at the same step.
    """

    def __init__(self, trainer: AgentTrainer, tell: Callable[[str], None]) -> None:
        self._trainer = trainer
        self._tell = tell
        self.pressed = self.together = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take Ctrl-C over, in the main thread; raise `KeyboardInterrupt` at the end if it was pressed."""
        before = signal.getsignal(signal.SIGINT)
        if before is signal.SIG_IGN:  # in the background of a shell
            yield
            return
        signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if self.pressed:
            raise KeyboardInterrupt

    def _press(self, *_: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        self._tell("Finishing this batch, then saving a checkpoint. Press Ctrl-C again to stop at once.")

    def on_step_end(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop if it was pressed and the batch is used up."""
        if state.global_step % args.steps_per_batch:
            return
        accelerator = self._trainer.accelerator
        anywhere = accelerator.reduce(torch.tensor(float(self.pressed), device=accelerator.device), reduction="sum")
        if anywhere > 0:
            self.pressed = self.together = control.should_save = control.should_training_stop = True
