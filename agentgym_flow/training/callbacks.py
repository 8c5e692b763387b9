"""Callbacks of a training run: metrics file, progress display, validation, and Ctrl-C."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow._util.files import named_in_errors, write_atomically
from agentgym_flow._util.signals import Terminated, signals_go_to
from agentgym_flow.episodes import Episode
from agentgym_flow.play import LiveProgress

if TYPE_CHECKING:
    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.trainer import AgentTrainer

Logs = dict[str, float]

SHOWN = ("success", "valid_success", "entropy", "frac_reward_zero_std")
"""Metrics in a printed line. The progress bar has room for the first two in a terminal of 80 columns."""

LIMITS = {"completions/clipped_ratio": "max_completion_length", "out_of_context": "max_steps"}
"""Metrics that are shown if they are not 0 -> the setting that changes them."""


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """Appends one JSON object to a file at every log: `step` and all metrics. NaN becomes null.

    The file is flushed at every log, so it can be followed.

    Args:
        path: the file.
        resumed_at: the optimizer step at which a killed run is resumed; records of later steps are removed, because
            they will be written again. None: keep the file.

    Attributes:
        records: the objects written, in order.
    """

    def __init__(self, path: Path, resumed_at: int | None = None) -> None:
        self.path = path
        self.records: list[dict[str, float | None]] = []
        if resumed_at is not None and path.exists():
            self._keep_until(resumed_at)

    def _keep_until(self, step: int) -> None:
        for line in self.path.read_text("utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # a line cut short by a killed process or a full disk
                break
            if record["step"] <= step:
                self.records.append(record)
        with write_atomically(self.path) as partial:
            partial.write_text("".join(json.dumps(record) + "\n" for record in self.records), "utf-8")

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs | None = None, **_: Any) -> None:
        """Write `logs`, except the totals at the end of training."""
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        record: dict[str, float | None] = {"step": state.global_step}
        for name, value in sorted(logs.items()):
            record[name] = value if value is not None and math.isfinite(value) else None
        self.records.append(record)
        with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class TrainingProgress(TrainerCallback):  # type: ignore[misc]
    """Shows the optimizer steps, the newest metrics and the remaining time, see `LiveProgress`.

    Within a batch it shows the number of episodes played so far: those of a language model can take minutes.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: LiveProgress | None = None
        self._step = self._played = 0
        self._metrics: list[str] = []

    def on_train_begin(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Open the bar. A resumed run begins in the middle."""
        self._step = state.global_step
        if state.is_world_process_zero:
            self._shown = LiveProgress(self._console, "Training", state.max_steps, state.global_step).__enter__()

    def add(self, episode: Episode) -> None:
        """Count an episode that this process has played for the next batch."""
        self._played += 1
        if self._shown is not None:
            self._shown.update(self._step, "  ".join([*self._metrics[:1], f"episodes played {self._played}"]))

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs | None = None, **_: Any) -> None:
        """Show the newest metrics."""
        if self._shown is None or not logs or "success" not in logs:
            return
        names = SHOWN[:2] if self._console.is_terminal else SHOWN
        metrics = [f"{name} {logs[name]:.2f}" for name in names if logs.get(name) is not None]
        if logs.get("lost_episodes"):
            metrics.append(f"lost episodes {logs['lost_episodes']:.0f}")
        for name, setting in LIMITS.items():
            if logs.get(name):
                metrics.append(f"{name} {logs[name]:.2f} (see {setting})")
        self._step, self._metrics, self._played = state.global_step, metrics, 0
        self._shown.update(state.global_step, "  ".join(metrics))

    def close(self) -> None:
        """Remove the bar. May be called at any time."""
        if self._shown is not None:
            self._shown.__exit__(None, None, None)


class Validation(TrainerCallback):  # type: ignore[misc]
    """Measures success on validation tasks at intervals and records it as `valid_success`.

    Args:
        trainer: the trainer whose metrics are extended.
        validate: returns the success rate; it must not change the global random state.
        times: the number of validations, evenly spread; the last is at the end.
    """

    def __init__(self, trainer: AgentTrainer, validate: Callable[[], float], times: int) -> None:
        self._trainer = trainer
        self._validate = validate
        self._times = times

    def on_step_end(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Validate if a validation is due."""
        due, before = (step * self._times // state.max_steps for step in (state.global_step, state.global_step - 1))
        if due > before:
            self._trainer.record({"valid_success": self._validate()})


# ---------------------------------------------------------------- Ctrl-C and SIGTERM
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
