"""The trainer of one run of `dataflow_study.py`: `agentgym-flow`, which also records when each batch was ready.

    python benchmarks/_study_trainer.py RULE TIMES LOCK train ALGO ...

RULE determines when the trainer plans and trains:

    plain     by the settings of the dataflow
    overlap   batch n + 1 is planned when batch n is complete, and played while batch n is trained on
    turns     trainers with the same LOCK train one after the other, as on one device

TIMES gets a line for each batch: its number, and the machine's clock in seconds when it was requested and when it was
ready; the last line has no number.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from pathlib import Path
from typing import Any

from agentgym_flow.cli import main
from agentgym_flow.dataflow import run
from agentgym_flow.dataflow.batches import LeasedGroups
from agentgym_flow.dataflow.batches.inbox import Inbox
from agentgym_flow.training.group_source import GroupBatch

RULE, TIMES, LOCK = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])


def note(*values: float | int | None) -> None:
    """Add a line to TIMES."""
    with TIMES.open("a", encoding="utf-8") as out:
        out.write(json.dumps(values) + "\n")


class Timed(LeasedGroups):
    """Records when each batch was requested and when it was ready."""

    def take(self, batch: int, version: int) -> GroupBatch:
        asked = time.time()
        taken = super().take(batch, version)
        note(batch, asked, time.time())
        return taken

    def close(self) -> None:
        note(None, time.time(), None)
        super().close()


class Overlapping(Timed):
    """Plans the next batch when the current one is complete."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._staleness = 0  # that of the ledger stays 1

    def _take_fixed(self, batch: int, inbox: Inbox) -> GroupBatch:
        taken = super()._take_fixed(batch, inbox)
        self._plan_next()
        return taken


class TakingTurns(Timed):
    """Holds a lock while it trains."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lock = LOCK.open("w")

    def take(self, batch: int, version: int) -> GroupBatch:
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        taken = super().take(batch, version)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return taken

    def close(self) -> None:
        super().close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    vars(run)["LeasedGroups"] = {"plain": Timed, "overlap": Overlapping, "turns": TakingTurns}[RULE]
    sys.argv = ["agentgym-flow", *sys.argv[4:]]
    main()
