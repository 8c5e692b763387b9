"""What a run shows and keeps: the metrics file, the progress line with and without a terminal."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from transformers import TrainerState

from agentgym_flow.episodes import Group
from agentgym_flow.play import EpisodeSpec, Evaluation, progress, rollout
from agentgym_flow.policies import RandomPolicy
from agentgym_flow.testing.example import CaveEnv
from agentgym_flow.training.callbacks import MetricsFile, TrainingProgress, Validation
from agentgym_flow.training.model_evaluation import EvaluationRun, ModelEvaluation
from agentgym_flow.training.results import Results, other_curves

ARGS: Any = SimpleNamespace()


def at(step: int, total: int = 40) -> TrainerState:
    return TrainerState(global_step=step, max_steps=total)


def test_metrics_are_strict_json_and_the_totals_are_left_out(tmp_path: Path) -> None:
    callback = MetricsFile(tmp_path / "metrics.jsonl")
    callback.on_log(ARGS, at(2), None, {"success": 0.5, "loss": math.nan, "entropy": None})
    callback.on_log(ARGS, at(4), None, {"train_runtime": 1.0})
    callback.on_log(ARGS, at(4), None, None)
    [line] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 2, "success": 0.5, "loss": None, "entropy": None}
    assert callback.records == [json.loads(line)]


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_the_newest_metrics(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=200)
    callback = TrainingProgress(console)
    callback.close()
    callback.on_train_begin(ARGS, at(8), None)  # a resumed run
    for step in range(9, 41):
        now += 10
        logs = {"success": step / 40, "entropy": None, "learning_rate": 1.0, "lost_episodes": 3.0 * (step == 40)}
        logs |= {"completions/clipped_ratio": 0.25 * (step == 40), "out_of_context": 0.0}
        callback.on_log(ARGS, at(step), None, logs)
    callback.on_log(ARGS, at(40), None, {"train_runtime": 1.0})
    callback.close()
    callback.close()
    shown = screen.getvalue()
    assert "success 1.00" in shown
    assert "learning_rate" not in shown
    assert "lost episodes 3" in shown
    assert "lost episodes 0" not in shown
    assert "completions/clipped_ratio 0.25 (see max_completion_length)" in shown
    assert "out_of_context" not in shown
    if terminal:
        assert "40/40" in shown
    else:
        assert shown.splitlines()[0] == "Training: 11 of 40, 0:00:30 gone, about 0:04:50 to go, success 0.28"


def test_a_long_batch_shows_how_many_episodes_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    screen = io.StringIO()
    callback = TrainingProgress(Console(file=screen, width=200))
    episode: Any = None  # it is counted
    callback.on_train_begin(ARGS, at(0), None)
    for _ in range(2):
        for _ in range(4):
            now += 40
            callback.add(episode)
        callback.on_log(ARGS, at(4), None, {"success": 0.25})
    assert screen.getvalue().splitlines()[:2] == [
        "Training: 0 of 40, 0:00:40 gone, episodes played 1",
        "Training: 0 of 40, 0:01:20 gone, episodes played 2",
    ]
    # Four steps took 160 seconds, and the next four are under way for 40.
    assert "Training: 4 of 40, 0:03:20 gone, about 0:23:20 to go, success 0.25  episodes played 1" in screen.getvalue()


def test_validation_is_spread_evenly_and_ends_with_the_run() -> None:
    recorded: list[tuple[int, float]] = []
    now = 0
    trainer: Any = SimpleNamespace(record=lambda values: recorded.append((now, values["valid_success"])))
    callback = Validation(trainer, lambda: 0.25, times=4)
    for now in range(1, 11):
        callback.on_step_end(ARGS, at(now, total=10), None)
    assert recorded == [(3, 0.25), (5, 0.25), (8, 0.25), (10, 0.25)]

    recorded.clear()
    resumed = Validation(trainer, lambda: 0.5, times=4)
    for now in range(7, 11):  # what was due before is not made up for
        resumed.on_step_end(ARGS, at(now, total=10), None)
    assert recorded == [(8, 0.5), (10, 0.5)]


def test_the_summary_names_the_settings_of_the_limits_that_were_met() -> None:
    episodes = rollout(RandomPolicy(), lambda: CaveEnv(split="test"), [EpisodeSpec(0, 0), EpisodeSpec(1, 1)])

    def results() -> Results:
        run = EvaluationRun(Evaluation.of(episodes, "model"), episodes, Path("log.jsonl"))
        moment = ModelEvaluation(run, run, {})
        return Results(moment, moment, None, [], Group(episodes[:1]), [], 1.0)

    assert not {"Cut answers", "Out of context"} & results().summary().keys()
    episodes[1].meta["truncated_by"] = "context"
    for turn in episodes[0].turns + episodes[1].turns:
        turn.output.cut = True
    summary = results().summary()
    assert summary["Cut answers"] == "up to 100.0% in an evaluation: max_completion_length is too low"
    assert summary["Out of context"].startswith("up to 50.0% in an evaluation: see layout, max_steps")


def test_the_page_has_a_curve_for_every_metric_that_a_run_has() -> None:
    batch = {"episodes": 16.0, "success": 0.5, "reward": 0.5, "return": 3.0, "entropy": 1.1, "kl": 0.01, "length": 9.0}
    batch |= {"completions/mean_length": 1.0, "completions/clipped_ratio": 0.1, "out_of_context": 0.2}
    batch |= {"clip_ratio/low_mean": 0.01, "clip_ratio/high_mean": 0.02}
    found = {(curve.y_label, curve.name): [*curve.y] for curve in other_curves([batch, {**batch, "kl": 0.02}])}
    assert found == {
        ("reward", "native return"): [3.0, 3.0],
        ("entropy (nats)", "entropy of the next token"): [1.1, 1.1],
        ("KL divergence (nats)", "from the first policy"): [0.01, 0.02],
        ("turns per episode", "mean of a batch"): [9.0, 9.0],
        ("share that was cut", "answers at the token limit"): [0.1, 0.1],
        ("share that was cut", "episodes out of context"): [0.2, 0.2],
        ("share that was clipped", "lower side"): [0.01, 0.01],
        ("share that was clipped", "upper side"): [0.02, 0.02],
    }
    texts = {**batch, "reward": 3.0, "completions/mean_length": 40.0}
    assert {"tokens per answer", "reward"} <= {curve.y_label for curve in other_curves([texts])}
    assert {curve.name for curve in other_curves([texts])} > {"what credit compares"}
    merged = {"episodes": 16.0, "clip_fraction/low": 0.1, "clip_fraction/high": 0.2, "entropy": None}
    assert [curve.name for curve in other_curves([merged])] == ["lower side", "upper side"]
    assert other_curves([]) == other_curves([{"step": 1.0, "loss": 0.1}]) == []  # an old run, or one without a batch
