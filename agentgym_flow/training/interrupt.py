"""Ctrl-C and SIGTERM while training: the first finishes the batch and writes a checkpoint, a second stops at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow._util.signals import Terminated, signals_go_to

if TYPE_CHECKING:
    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.trainer import AgentTrainer

ADVICE = {
    signal.SIGINT: "Finishing this batch, then saving a checkpoint. Press Ctrl-C again to stop at once.",
    signal.SIGTERM: "SIGTERM: finishing this batch, then saving a checkpoint. A second one stops at once.",
}
"""What to say after the first signal."""

PASSED_ON = 5.0
"""Seconds in which a launcher passes a signal on to processes that a terminal or SLURM has sent it to already."""


class StopAfterBatch(TrainerCallback):  # type: ignore[misc]
    """Ends training with a checkpoint, at the end of the batch in which Ctrl-C was pressed or SIGTERM came.

    Args:
        trainer: which training; with several processes all stop together, whichever got the signal.
        tell: called with a sentence for whoever sent it.

    Attributes:
        received: the signal; None without one.
        together: whether all processes have stopped for it, at the same step.
    """

    def __init__(self, trainer: AgentTrainer, tell: Callable[[str], None]) -> None:
        self._trainer = trainer
        self._tell = tell
        self._at = 0.0
        self.received: signal.Signals | None = None
        self.together = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take both signals over, and raise at the end what the first one stands for.

        Raises `KeyboardInterrupt` after Ctrl-C and `Terminated` after SIGTERM.
        """
        with signals_go_to(self._receive):
            yield
        if self.received is not None:
            raise self._interrupt(self.received)

    def _receive(self, number: int, *_: Any) -> None:
        if self.received is None:
            self.received, self._at = signal.Signals(number), time.monotonic()
            self._tell(ADVICE[self.received])
        elif self._trainer.accelerator.num_processes == 1 or time.monotonic() - self._at > PASSED_ON:
            raise self._interrupt(number)

    def _interrupt(self, number: int) -> KeyboardInterrupt:
        return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()

    def on_step_end(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop if a signal came to any process and the batch is used up."""
        if not args.ends_batch(state.global_step):
            return
        accelerator = self._trainer.accelerator
        mine = torch.tensor([float(self.received == number) for number in ADVICE], device=accelerator.device)
        anywhere = [number for number, count in zip(ADVICE, accelerator.reduce(mine), strict=True) if count]
        if anywhere:
            self.received = anywhere[-1]
            self.together = control.should_save = control.should_training_stop = True
