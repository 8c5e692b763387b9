"""Callbacks of a training run: metrics file, progress display, validation."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow._util.files import naming, whole

if TYPE_CHECKING:
    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.trainer import AgentTrainer

Logs = dict[str, float]

SHOWN = ("success", "valid_success", "entropy", "zero_variance_groups")
"""Metrics in a printed line. The progress bar has room for the first two in a terminal of 80 columns."""

LIMITS = {"cut_answers": "max_completion_length", "out_of_context": "max_steps"}
"""Metrics that are shown if they are not 0 -> the setting that changes them."""

_LINES = 10  # the least number of lines printed in a run without a terminal
_SECONDS = 300.0  # the most seconds between two lines


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
        with whole(self.path) as partial:
            partial.write_text("".join(json.dumps(record) + "\n" for record in self.records), "utf-8")

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs | None = None, **_: Any) -> None:
        """Write `logs`, except the totals at the end of training."""
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        record: dict[str, float | None] = {"step": state.global_step}
        for name, value in sorted(logs.items()):
            record[name] = value if value is not None and math.isfinite(value) else None
        self.records.append(record)
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class LiveProgress(TrainerCallback):  # type: ignore[misc]
    """A progress bar with success and remaining time; without a terminal, a line with them from time to time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("Training"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            TextColumn("to go"),
            console=console,
            transient=True,
        )
        self._lines = 0
        self._began = (0, 0.0)  # step and time
        self._printed = 0.0  # when the last line was

    def on_train_begin(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Open the bar."""
        self._printed = time.monotonic()
        self._began = state.global_step, self._printed  # a resumed run begins in the middle
        self._lines = state.global_step * _LINES // state.max_steps
        if state.is_world_process_zero and self._console.is_terminal:
            self._bar = self._progress.add_task("training", total=state.max_steps, metrics="")
            self._progress.start()

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs | None = None, **_: Any) -> None:
        """Show the newest metrics."""
        if not state.is_world_process_zero or not logs or "success" not in logs:
            return
        names = SHOWN[:2] if self._console.is_terminal else SHOWN
        metrics = "  ".join(f"{name} {logs[name]:.2f}" for name in names if logs.get(name) is not None)
        if logs.get("lost_episodes"):
            metrics += f"  lost episodes {logs['lost_episodes']:.0f}"
        for name, setting in LIMITS.items():
            if logs.get(name):
                metrics += f"  {name} {logs[name]:.2f} (see {setting})"
        if self._console.is_terminal:
            self._progress.update(self._bar, completed=state.global_step, metrics=metrics)
        else:
            self._print_line(state, metrics)

    def _print_line(self, state: TrainerState, metrics: str) -> None:
        now, lines = time.monotonic(), state.global_step * _LINES // state.max_steps
        if lines == self._lines and now - self._printed < _SECONDS:
            return
        self._lines, self._printed = lines, now
        (first, began), total = self._began, state.max_steps
        to_go = (now - began) / max(1, state.global_step - first) * (total - state.global_step)
        took, left = (timedelta(seconds=round(seconds)) for seconds in (now - began, to_go))
        line = f"step {state.global_step} of {total}, {took} gone, about {left} to go: {metrics}"
        self._console.print(line, soft_wrap=True, highlight=False)

    def close(self) -> None:
        """Remove the bar. May be called at any time."""
        if self._progress.live.is_started:
            self._progress.stop()


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
