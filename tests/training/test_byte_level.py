"""A model of a real shape with a real tokenizer: chat template, answers of several tokens, ordinary rows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.prompts import template_for
from agentgym_flow.training.models import load_model
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
    template = template_for(SOKOBAN, "text")
    model, tokenizer = load_model(str(folder), template)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    for text in (HARD, "<action>right</action>"):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.tokenize("<action>right</action>") == ["<action>", "right", "</action>"]
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "up"}], tokenize=False)
    assert asked == "<|im_start|>user\nup<|im_end|>\n"
    tokens = tokenizer.tokenize(asked)
    assert tokens[0] == "<|im_start|>"
    assert tokens[-2] == tokenizer.eos_token == "<|im_end|>"


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["alfworld", "sokoban", "sokoban_pretrained"])
def test_a_language_model_is_cloned_trained_and_cloned_on(
    root: Path, tmp_path: Path, run_processes: Any, folder: Path, name: str
) -> None:
    pretrained = name.endswith("_pretrained")
    settings = {
        "bf16": "false",  # which is slow on many processors
        "warm_start_levels": 60,
        "warm_start_updates": 12,
        "warm_start_batch": 4,
        "warm_start_validation_episodes": 4,
        "eval_episodes": 6,
        "also_on_episodes": 2,
        "groups_per_batch": 2,
        "steps_per_batch": 2,
        "logging_steps": 2,
        "max_steps": 4,
    }
    script = root / "benchmarks" / "learning_from_text.py"
    command = [sys.executable, script, name, "--seeds=1", "--output", tmp_path]
    command += [f"--{key}={value}" for key, value in settings.items()]
    if pretrained:
        short = {"dtype": "float32", "per_device_train_batch_size": 8, "warm_start_learning_rate": 0.02}
        short["env_kwargs"] = json.dumps({"size": 5, "max_steps": 4})
        command += ["--shots=0,1", "--model", folder, *(f"--{key}={value}" for key, value in short.items())]
    said = run_processes(command)
    tables = [table.splitlines() for table in said.split("\n\n| ")[1:]]
    games = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", ""), "alfworld_official")
    has_official = name == "alfworld" and games.is_dir()
    assert [table[0].split(" | ")[0] for table in tables] == ["sampled", "greedy", *["official"] * has_official]
    stages = [*["| 0 shots", "| 1 shots"] * pretrained, "| cloned", "| rewardflow", "| cloned on"]
    for table in tables:
        assert [line.split(" | ")[0] for line in table[2 : 2 + len(stages)]] == stages
    losses = json.loads((tmp_path / "seed-0" / "cloned" / "warm_start" / "warm_start.json").read_text("utf-8"))[
        "losses"
    ]
    assert losses[-1] < losses[0] / (1.2 if pretrained else 2), losses  # adapters of random weights learn slowly
    summary = json.loads((tmp_path / "seed-0" / "rewardflow" / "summary.json").read_text("utf-8"))
    assert summary["status"] == "finished"
    records = [
        json.loads(line)
        for line in (tmp_path / "seed-0" / "rewardflow" / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    assert [record["step"] for record in records] == [2, 4]
    assert all(record["grad_norm"] > 0 for record in records)
    if pretrained:
        hints = [sys.executable, root / "benchmarks" / "read_hints.py", tmp_path / "seed-0" / "cloned" / "warm_start"]
        said = run_processes([*hints, "--env=Sokoban-v0", f"--env-kwargs={short['env_kwargs']}", "--episodes=2"])
        assert [
            line.count(" of 2 |") for line in said.splitlines() if line.startswith(("| none", "| its", "| the"))
        ] == [2, 2, 2]


@pytest.mark.nightly
def test_the_call_for_a_gpu_works_at_small_size(root: Path, tmp_path: Path, run_processes: Any) -> None:
    command = [sys.executable, root / "benchmarks" / "gpu.py", "--small", "--output", tmp_path]
    said = run_processes([*command, "--batches=1", "--generators=transformers"])
    for row in ("turn | 29 | tree", "conversation | 2 | tree", "float32 | sampled", "bfloat16 | TRL"):
        assert f"| {row} | " in said
    for name in ("sokoban-grpo", "sokoban-rewardflow", "alfworld-grpo", "alfworld-rewardflow"):
        lines = [line for line in said.splitlines() if line.startswith(f"| {name}-transformers | ")]
        assert len(lines) == 2, said  # success and costs
        assert lines[0].split(" | ")[1:3] == ["1", "16"]  # batches, episodes
        assert (
            json.loads((tmp_path / f"{name}-transformers" / "summary.json").read_text("utf-8"))["status"] == "finished"
        )


@pytest.mark.nightly
def test_the_call_for_a_gpu_ends_by_itself(root: Path, tmp_path: Path, run_processes: Any) -> None:
    command = [sys.executable, root / "benchmarks" / "gpu.py", "--small", "--output", tmp_path]
    said = run_processes([*command, "--parts=sokoban", "--generators=transformers", "--deadline=8"])
    assert "no time left" in said or "cut short by the deadline" in said
