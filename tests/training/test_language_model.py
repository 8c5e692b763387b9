"""A real language model learns for two updates with each algorithm, in two processes, and behind a server."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served_model import serving
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.episodes import read_log
from agentgym_flow.replay import verify_log

pytestmark = pytest.mark.nightly

UPDATES = 2
SMALL = {
    "lora": True,
    "dtype": "bfloat16",
    "threads": 1,
    "template": "text",
    "layout": "conversation",
    "warm_start_levels": 0,
    "num_generations": 2,
    "groups_per_batch": 2,
    "steps_per_batch": 1,
    "per_device_train_batch_size": 4,
    "max_steps": UPDATES,
    "logging_steps": 1,
    "num_envs": 4,
    "eval_episodes": 2,
    "validations": 1,
    "validation_episodes": 2,
    "learning_rate": 1e-4,
    "beta": 0,
    "entropy_coef": 0,  # so that only advantages give a gradient
    "save_strategy": "no",
}
ONE_LINE = {"think": False, "tags_required": False, "history": 0, "numbers_turns": False}
SOKOBAN = {
    "env_id": "agentgym_flow/Sokoban-v0",
    "env_kwargs": {"size": 5, "max_steps": 3},
    "template_settings": ONE_LINE,
    "max_completion_length": 6,
    "invalid_action_penalty": 0.1,
}
CANVAS = {
    "env_id": "agentgym_flow/Canvas-v0",
    "env_kwargs": {"max_steps": 2},
    "template_settings": {"shots": 1},
    "max_completion_length": 32,
    "invalid_action_penalty": 0.1,
    "temperature": 1.0,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "num_envs": 8,
}


def arguments(out: Path, model: Path, **settings: Any) -> list[str]:
    everything = {**SMALL, "model": model, "output_dir": out, **settings}
    return [f"--{name}={json.dumps(value) if isinstance(value, dict) else value}" for name, value in everything.items()]


def check(out: Path) -> None:
    """The run ended, every update is finite and has a gradient where there is an advantage, and its logs verify."""
    assert json.loads((out / "summary.json").read_text())["status"] == "finished"
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    updates = [record for record in records if "grad_norm" in record]
    assert len(updates) == UPDATES
    for update in updates:
        assert math.isfinite(update["loss"])
        assert math.isfinite(update["grad_norm"])
        if update["frac_reward_zero_std"] < 1 or update.get("invalid_penalty"):
            assert update["grad_norm"] > 0
    assert any(update["grad_norm"] > 0 for update in updates)
    logs = sorted((out / "evaluations").glob("*.jsonl.gz"))
    assert len(logs) == 4
    assert all(verify_log(log).ok for log in logs)


@pytest.mark.parametrize(("algorithm", "settings"), [("rloo", SOKOBAN), ("gigpo", SOKOBAN), ("cwrpo", CANVAS)])
def test_every_algorithm_trains_a_real_model(
    algorithm: str, settings: dict[str, Any], language_model: Path, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["train", algorithm, *arguments(tmp_path / "run", language_model, **settings)])
    assert done.exit_code == 0, done.output
    check(tmp_path / "run")


def test_two_processes_train_a_real_model_under_zero_3(
    run_processes: Callable[..., str],
    launcher: Callable[[str], list[str]],
    deepspeed: None,
    language_model: Path,
    tmp_path: Path,
) -> None:
    chosen = {**SOKOBAN, "per_device_train_batch_size": 2, "muon_learning_rate": "null"}
    words = ["-m", "baselines.rewardflow", *arguments(tmp_path / "run", language_model, **chosen)]
    run_processes([*launcher("zero3.yaml"), *words])
    check(tmp_path / "run")


def test_a_real_model_on_canvas_is_answered_by_itself_behind_a_server(language_model: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    done = CliRunner().invoke(app, ["export", str(language_model), str(served), "--dtype", "bfloat16"])
    assert done.exit_code == 0, done.output
    with serving(tmp_path, served) as (name, url):
        executor = {"model": name, "base_url": url, "executor_settings": {"max_tokens": 16}}
        chosen = {**CANVAS, "env_kwargs": {"max_steps": 2, "executor": "openai", **executor}}
        words = arguments(tmp_path / "run", language_model, **chosen)
        done = CliRunner().invoke(app, ["train", "cwrpo", *words])
    assert done.exit_code == 0, done.output
    check(tmp_path / "run")  # the server is gone: the answers are those recorded
    episodes = [logged for log in (tmp_path / "run" / "evaluations").iterdir() for logged in read_log(log)]
    assert any(logged.recording for logged in episodes)
