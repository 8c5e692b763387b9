"""The metrics of training: each is there, and moves when what it stands for does."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.training.callbacks import MetricsFile, Validation
from agentgym_flow.training.rows import MergedRow, TrainingRow, collate, collate_merged
from agentgym_flow.training.trainer import AgentTrainer

Trainers = Callable[..., AgentTrainer]


def last(trainer: AgentTrainer, name: str) -> float:
    value: float = trainer._metrics["train"][name][-1]
    return value


OF_A_BATCH = {
    *("step", "episodes", "env_steps", "lost_episodes", "success", "return", "length", "frac_reward_zero_std"),
    *("turns", "rows", "dropped_rows", "padding", "entropy", "kl", "invalid_actions", "invalid_penalty"),
    *("reward", "reward_std", "completions/mean_length", "completions/clipped_ratio", "step_time"),
    *("time/env", "time/generate", "time/credit", "time/update", "loss", "grad_norm", "learning_rate"),
}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("merge", "names"),
    [
        (True, {"unique_prompts", "clip_fraction", "clip_fraction/low", "clip_fraction/high"}),
        (False, {"clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"}),
    ],
)
def test_every_metric_is_in_the_file(
    make_trainer: Trainers, warm: tuple[Any, Any], tmp_path: Path, merge: bool, names: set[str]
) -> None:
    trainer = make_trainer(model=warm, merge_prompts=merge, beta=0.01, max_steps=4)
    trainer.add_callback(MetricsFile(tmp_path / "metrics.jsonl"))
    trainer.train()
    first, second = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    for record in (first, second):
        assert record.keys() >= OF_A_BATCH | names
        assert all(value is not None for name, value in record.items() if name in OF_A_BATCH | names)
    assert (first["episodes"], second["episodes"]) == (16, 32)


def test_time_is_split_into_what_it_was_spent_on(
    make_trainer: Trainers, warm: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    calls = Counter[str]()
    monkeypatch.setattr("time.perf_counter", lambda: clock)

    def taking(seconds: float, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any, **kwargs: Any) -> Any:
            nonlocal clock
            clock += seconds
            calls[name] += 1
            return function(*args, **kwargs)

        return slow

    trainer = make_trainer(model=warm, max_steps=2)
    monkeypatch.setattr(SokobanEnv, "_apply", taking(1, "steps", SokobanEnv._apply))
    look_up = trainer.generator._compute_next
    monkeypatch.setattr(trainer.generator, "_compute_next", taking(1e3, "passes", look_up))
    monkeypatch.setattr(trainer, "credit", taking(1e6, "credit", trainer.credit))
    monkeypatch.setattr(trainer, "loss", taking(1e9, "losses", trainer.loss))
    trainer.add_callback(Validation(trainer, taking(1e12, "validations", lambda: 0.5), times=2))
    trainer.train()
    [log] = [log for log in trainer.state.log_history if "success" in log]
    assert calls["losses"] == calls["validations"] == 2
    assert log["time/env"] == calls["steps"] > 16
    assert log["time/generate"] == 1e3 * calls["passes"] > 0
    assert log["time/credit"] == 1e6
    assert log["time/update"] == 2e9


@pytest.mark.parametrize("merge", [True, False])
def test_clipping_is_told_apart_by_its_side(make_trainer: Trainers, warm: tuple[Any, Any], merge: bool) -> None:
    trainer = make_trainer(model=warm, merge_prompts=merge, steps_per_generation=1, per_device_train_batch_size=16)
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer.make_batch()
    if merge:
        names, old = ("clip_fraction/low", "clip_fraction/high"), "old_logprobs"
        sums = -batch["negative"].sum(), batch["positive"].sum()
        low, high = (float(s / sum(sums)) for s in sums)
    else:
        names, old = ("clip_ratio/low_mean", "clip_ratio/high_mean"), "old_per_token_logps"
        share = [(sign * batch["advantages"] > 0).sum() / batch["num_items_in_batch"] for sign in (-1, 1)]
        low, high = map(float, share)
    assert low > 0
    assert high > 0
    for shift, expected in ((0.0, (0.0, 0.0)), (-1.0, (0.0, high)), (1.0, (low, 0.0))):
        trainer.loss(trainer.model, {**batch, old: batch[old] + shift})  # every ratio is exp(-shift)
        assert [last(trainer, name) for name in names] == pytest.approx(expected, abs=1e-6)
    if merge:
        assert last(trainer, "clip_fraction") == pytest.approx(low)


def test_padding_is_the_share_of_positions_without_a_token(make_trainer: Trainers) -> None:
    trainer = make_trainer(merge_prompts=False)
    trainer.current_gradient_accumulation_steps = 1
    items = {"num_items_in_batch": torch.tensor(3.0)}
    plain = collate(
        [TrainingRow([5, 6, 7], [8], [-1.0], [1.0]), TrainingRow([5], [8, 9], [-1.0] * 2, [1.0] * 2)], pad=0, multiple=4
    )
    trainer.loss(trainer.model, {**plain, **items})
    assert last(trainer, "padding") == pytest.approx(1 - 7 / 20)  # two rows more, of padding alone
    row = MergedRow([5, 6, 7], [8], [-1.0], [1.0], [0.0], [1.0])
    trainer.loss(trainer.model, {**collate_merged([row, row], pad=0, multiple=1), **items})
    assert last(trainer, "padding") == 0


@pytest.mark.parametrize("merge", [True, False])
def test_rows_left_out_are_counted(make_trainer: Trainers, warm: tuple[Any, Any], merge: bool) -> None:
    counts = []
    for drop in (False, True):
        trainer = make_trainer(model=warm, merge_prompts=merge, zero_advantage_share=0.0 if drop else 1.0)
        trainer.make_batch()
        counts.append((last(trainer, "rows"), last(trainer, "dropped_rows")))
    (everything, none), (kept, dropped) = counts
    assert none == 0 < dropped
    assert kept + dropped == everything


def test_entropy_falls_where_the_policy_is_sure(make_trainer: Trainers, tiny: tuple[Any, Any], template: Any) -> None:
    entropies = []
    for sure in (False, True):
        if sure:
            with torch.no_grad():
                tiny[0].transformer.wte.weight[3:7] *= 60
        trainer = make_trainer(model=tiny)
        trainer.current_gradient_accumulation_steps = 1
        trainer.loss(trainer.model, trainer.make_batch())
        entropies.append(last(trainer, "entropy"))
    assert entropies[0] == pytest.approx(math.log(len(tiny[1])), rel=0.05)  # hardly trained: nearly uniform
    assert entropies[1] < 0.8 * entropies[0]
