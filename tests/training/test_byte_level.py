"""A model of a real shape with a real tokenizer: chat template, answers of several tokens, ordinary rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.prompts import profile_for
from agentgym_flow.training.run import load_model
from tests.training.conftest import SOKOBAN

HARD = "√ ⟨héllo⟩\t\r\n 12 cafés\u0301 <action>up</action> 🙂"
"""Text that no prompt has."""


@pytest.fixture(scope="module")
def folder(import_benchmark: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 and its tokenizer on disk."""
    made = import_benchmark("_byte_level")
    tokenizer = made.byte_level_tokenizer(SOKOBAN, {"size": 5}, episodes=10)
    path = tmp_path_factory.mktemp("byte_level") / "model"
    made.write_model(path, tokenizer, width=32, layers=1, heads=2, context=512, theta=100.0)
    return path


def test_the_tokenizer_writes_any_text_and_is_what_was_saved(folder: Path) -> None:
    profile = profile_for(SOKOBAN, "text")
    model, tokenizer = load_model(str(folder), profile)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert type(tokenizer).__name__ == "Qwen2Tokenizer"  # Qwen3's too
    for text in (HARD, "<action>right</action>"):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert len(ids) > 3
        assert tokenizer.decode(ids) == tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "up"}], tokenize=False)
    assert asked == "<|im_start|>user\nup<|im_end|>\n"
    tokens = tokenizer.tokenize(asked)
    assert tokens[0] == "<|im_start|>"
    assert tokens[-2] == tokenizer.eos_token == "<|im_end|>"


@pytest.mark.heavy
def test_cloning_and_training_by_the_ordinary_command(root: Path, tmp_path: Path, run_processes: Any) -> None:
    settings = {
        "threads": 1,
        "warm_start_levels": 60,
        "warm_start_updates": 40,
        "warm_start_batch": 16,
        "warm_start_validations": 1,
        "warm_start_validation_episodes": 4,
        "eval_episodes": 24,
        "groups_per_batch": 2,
        "per_device_train_batch_size": 8,
        "max_steps": 4,
        "validations": 0,
    }
    script = root / "benchmarks" / "byte_level.py"
    said = run_processes(
        [sys.executable, script, "--seeds=1", "--output", tmp_path, *(f"--{k}={v}" for k, v in settings.items())]
    )
    assert "| 0 | " in said
    summary = json.loads((tmp_path / "seed-0" / "summary.json").read_text("utf-8"))
    assert summary["status"] == "finished"
    losses = summary["warm_start"]["losses"]
    assert losses[-1] < losses[0] / 4, losses
    assert summary["before"]["sampled"]["invalid_rate"] < 0.5  # most answers are read as an action
    records = [json.loads(line) for line in (tmp_path / "seed-0" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [record["step"] for record in records] == [2, 4]
    assert all(record["grad_norm"] > 0 for record in records)


@pytest.mark.heavy
def test_the_call_for_a_gpu_works_at_small_size(root: Path, tmp_path: Path, run_processes: Any) -> None:
    command = [sys.executable, root / "benchmarks" / "gpu.py", "--small", "--output", tmp_path]
    said = run_processes([*command, "--batches=1", "--generators=transformers"])
    for name in ("sokoban-grpo", "sokoban-rewardflow", "alfworld-grpo", "alfworld-rewardflow"):
        lines = [line for line in said.splitlines() if line.startswith(f"| {name}-transformers | ")]
        assert len(lines) == 2, said  # success and costs
        assert lines[0].split(" | ")[1:3] == ["1", "16"]  # batches, episodes
        assert (
            json.loads((tmp_path / f"{name}-transformers" / "summary.json").read_text("utf-8"))["status"] == "finished"
        )


@pytest.mark.heavy
def test_the_call_for_a_gpu_ends_by_itself(root: Path, tmp_path: Path, run_processes: Any) -> None:
    command = [sys.executable, root / "benchmarks" / "gpu.py", "--small", "--output", tmp_path]
    said = run_processes([*command, "--envs=sokoban", "--generators=transformers", "--deadline=8"])
    assert "no time left" in said or "cut short by the deadline" in said
