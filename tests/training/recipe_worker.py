"""One process of a recipe in which things happen: the first argument says what, the others are settings.

A JSON list of objects: `rank`, the process; `step`, `clone`, `evaluate`, `learn`, `play` or `keep`; `does`, `fail`,
a number of seconds to wait, or the name of the signal that the process gets. Each happens once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from accelerate import PartialState

from agentgym_flow.errors import TrainingFailed
from agentgym_flow.training import group_source, model_evaluation, recipe
from agentgym_flow.training.command import command
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.trainer import AgentTrainer


def main() -> int:
    told: list[dict[str, Any]] = json.loads(sys.argv[1])
    clone, make_batch, play = recipe.warm_start, AgentTrainer.make_batch, model_evaluation.play_split
    collect = group_source.rollout  # type: ignore[attr-defined]
    save_model = recipe.save_model  # type: ignore[attr-defined]

    def happen(step: str) -> None:
        rank = PartialState().process_index
        for event in [event for event in told if (event["rank"], event["step"]) == (rank, step)]:
            told.remove(event)
            does = event["does"]
            sys.stderr.write(f"process {rank}: {does}\n")
            if does == "fail":
                raise TrainingFailed(f"no luck in process {rank}")
            if isinstance(does, str):
                os.kill(os.getpid(), signal.Signals[does])
            else:
                time.sleep(does)

    def warm_start(*args: Any, **kwargs: Any) -> Any:
        happen("clone")
        return clone(*args, **kwargs)

    def batch(self: AgentTrainer) -> Any:
        happen("learn")
        return make_batch(self)

    def play_split(*args: Any, **kwargs: Any) -> Any:
        happen("evaluate")
        return play(*args, **kwargs)

    def rollout(*args: Any, **kwargs: Any) -> Any:
        happen("play")
        return collect(*args, **kwargs)

    def save(folder: Any, *args: Any, **kwargs: Any) -> None:
        save_model(folder, *args, **kwargs)
        if folder.name == "checkpoint":
            happen("keep")

    recipe.save_model = save  # type: ignore[attr-defined]
    group_source.rollout = rollout  # type: ignore[attr-defined]
    model_evaluation.play_split = play_split  # type: ignore[attr-defined]
    recipe.warm_start = warm_start  # type: ignore[attr-defined]
    AgentTrainer.make_batch = batch  # type: ignore[method-assign]
    return command(AgentConfig, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
