"""A run that was killed and resumed is the run that never stopped; what does not fit is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadSetting
from agentgym_flow.training.callbacks import MetricsFile
from agentgym_flow.training.checkpoints import checkpoints, progress_of
from agentgym_flow.training.run import load_model
from agentgym_flow.training.trainer import AgentTrainer

Trainers = Callable[..., AgentTrainer]
SAVING = {"save_strategy": "steps", "save_steps": 4, "max_steps": 12}


class Killed(Exception):
    """Stands for the end of the process."""


class KillAt(TrainerCallback):  # type: ignore[misc]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Killed


def warm(profile: Any) -> tuple[Any, Any]:
    model, tokenizer = load_model("tiny", profile, seed=0)
    with torch.no_grad():  # it mostly plays the four words, so that some episodes succeed
        actions = model.transformer.wte.weight[3:7]
        direction = actions.mean(0) / actions.mean(0).norm()
        actions += 3.0 * direction
        model.transformer.ln_f.bias += 3.0 * direction
    return model, tokenizer


def lines(path: Path) -> list[dict[str, Any]]:
    """The curve without what a clock measured."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.startswith(("time/", "step_time"))} for r in records]


def run(
    make_trainer: Trainers,
    profile: Any,
    folder: Path,
    kill_at: int | None = None,
    resume: bool = False,
    make_env: Any = None,
    **settings: Any,
) -> AgentTrainer:
    torch.manual_seed(99 if resume else 1)  # nothing may depend on the state a process happens to start with
    trainer = make_trainer(model=warm(profile), output_dir=str(folder), **{**SAVING, **settings})
    checkpoint = checkpoints(folder)[-1] if resume else None
    at = None if checkpoint is None else progress_of(checkpoint).step
    trainer.add_callback(MetricsFile(folder / "metrics.jsonl", at))
    folder.mkdir(exist_ok=True)
    if kill_at is None:
        trainer.train(checkpoint)
        return trainer
    trainer.add_callback(KillAt(kill_at))
    with pytest.raises(Killed):
        trainer.train(checkpoint)
    return trainer


@pytest.mark.parametrize(
    ("kill_at", "settings"),
    [
        (4, {}),  # at a checkpoint
        (7, {"logging_steps": 3}),  # within a batch, with values measured and not yet logged in the checkpoint
        (11, {"muon_learning_rate": None, "merge_prompts": False, "num_iterations": 2}),
        (7, {"gradient_accumulation_steps": 2, "logging_steps": 1, "save_steps": 3}),
        (7, {"replay_share": 0.5}),
    ],
)
def test_a_resumed_run_equals_one_that_never_stopped(
    make_trainer: Trainers, profile: Any, tmp_path: Path, kill_at: int, settings: dict[str, Any]
) -> None:
    whole = run(make_trainer, profile, tmp_path / "whole", **settings)
    run(make_trainer, profile, tmp_path / "killed", kill_at, **settings)
    again = run(make_trainer, profile, tmp_path / "killed", resume=True, **settings)
    assert lines(tmp_path / "killed" / "metrics.jsonl") == lines(tmp_path / "whole" / "metrics.jsonl")
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True))
    assert [e.digest for g in again.groups for e in g] == [e.digest for g in whole.groups for e in g]
    moved, start = whole.model.state_dict(), warm(profile)[0].state_dict()
    assert any(not torch.equal(moved[name], start[name]) for name in start)
