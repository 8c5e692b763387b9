"""Ctrl-C and SIGTERM during training: the first finishes the batch and writes a checkpoint, a second stops at once."""

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
"""Messages after the first signal."""

PASSED_ON = 5.0
"""Seconds in which a repeated signal is ignored: a launcher forwards the signal of a terminal or SLURM."""


class StopAfterBatch(TrainerCallback):  # type: ignore[misc]
    """Ends training with a checkpoint at the end of the batch in which a signal arrived.

    Args:
        trainer: the trainer to stop; in several processes all stop together, whichever received the signal.
        tell: shows a message to the user.

    Attributes:
        received: the first signal; None without one.
    """

    def __init__(self, trainer: AgentTrainer, tell: Callable[[str], None]) -> None:
        self._trainer = trainer
        self._tell = tell
        self._at = 0.0
        self.received: signal.Signals | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle both signals within the context, and raise the exception of the first one at its end.

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
        """Stop at the end of a batch if any process received a signal."""
        if not args.ends_batch(state.global_step):
            return
        accelerator = self._trainer.accelerator
        mine = torch.tensor([float(self.received == number) for number in ADVICE], device=accelerator.device)
        anywhere = [number for number, count in zip(ADVICE, accelerator.reduce(mine), strict=True) if count]
        if anywhere:
            self.received = anywhere[-1]
            control.should_save = control.should_training_stop = True
