"""The benchmark of training steps compares what it says: the same rows, from the same policy, to the same weights."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(scope="module")
def benchmark_script(import_benchmark: Callable[[str], Any]) -> Any:
    """The script as a module."""
    return import_benchmark("training_step")


@pytest.fixture(scope="module")
def spoken(benchmark_script: Any) -> Any:
    """Recorded conversations of a narrow model: 2 levels, 4 attempts each."""
    rows = sys.modules["_training_rows"]
    shaped = rows.LlamaConfig

    def narrowed(**settings: Any) -> Any:
        return shaped(**{**settings, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "LlamaConfig", narrowed)
        return benchmark_script.recorded_conversations(2, attempts=4)


@pytest.fixture
def comparison(benchmark_script: Any, spoken: Any, tmp_path: Path) -> Any:
    """Two optimizer steps on them."""
    return benchmark_script.Comparison(spoken, str(tmp_path), steps=2)


def test_rows_are_whole_episodes_with_the_models_own_log_probabilities(spoken: Any) -> None:
    rows = spoken.rows()
    assert len(rows) == len(spoken.episodes) == 8
    assert len({len(row.completion) for row in rows}) > 2  # lengths differ, or there would be no padding to save
    for group in (rows[:4], rows[4:]):
        assert sum(row.advantages[-1] for row in group) == pytest.approx(0.0)
    assert any(any(row.advantages) for row in rows)
    turn = spoken.episodes[-1].turns[-1]
    with torch.no_grad():
        logits = spoken.model(torch.tensor([[*turn.output.prompt_ids, *turn.output.completion_ids]])).logits[0]
    said = logits.log_softmax(-1)[len(turn.output.prompt_ids) - 1 : -1]
    expected = said.gather(1, torch.tensor(turn.output.completion_ids)[:, None])[:, 0]
    assert torch.tensor(turn.output.logprobs) == pytest.approx(expected, abs=1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("alone", [True, False])
def test_both_trainers_arrive_at_the_same_weights(benchmark_script: Any, comparison: Any, alone: bool) -> None:
    if alone:
        makers = partial(comparison.ours, benchmark_script.FromTensors), comparison.trl_from_tensors
    else:
        makers = comparison.ours, partial(comparison.trl, rollout_func=comparison.rollout)
    for name, make in zip(("ours", "trl"), makers, strict=True):
        assert comparison.contestant(name, make, trim=False)() > 0
    assert comparison.apart() < benchmark_script.TOLERANCE
    if not alone:
        return
    # Other rows end the script.
    advantages = comparison.tensors["advantages"]
    comparison.tensors = {**comparison.tensors, "advantages": advantages.roll(1, 0)}
    comparison.contestant("trl", comparison.trl_from_tensors)()
    with pytest.raises(SystemExit, match="ours and trl came to different weights"):
        comparison.apart()
