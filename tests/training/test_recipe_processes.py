"""A recipe in several processes: the run of one; stopped, it goes on; if one fails or gets a signal, all end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentgym_flow.training.run_folder import checkpoints

pytestmark = pytest.mark.heavy

Launcher = Callable[[str], list[str]]
Processes = Callable[..., str]
Start = Callable[..., "subprocess.Popen[str]"]

WORKER = Path(__file__).with_name("recipe_worker.py")
SMALL = {
    "env_kwargs": '{"size": 6, "boxes": 1, "min_pushes": 1}',
    "threads": 1,  # two test processes share two cores
    "warm_start_levels": 100,
    "warm_start_updates": 80,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 4,
    "max_steps": 8,
    "steps_per_generation": 1,
    "save_strategy": "steps",
    "save_steps": 2,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "muon_learning_rate": "null",
    "logging_steps": 1,
    "eval_episodes": 12,
    "validations": 2,
    "validation_episodes": 8,
}


def recipe(folder: Path, **settings: Any) -> list[str]:
    return [f"--{name}={value}" for name, value in {**SMALL, "output_dir": folder, **settings}.items()]


def baseline(folder: Path, **settings: Any) -> list[str]:
    every_row = {"zero_advantage_share": 1}  # else each process has rows of its own stand for others
    return ["-m", "baselines.rewardflow", *recipe(folder, **every_row, **settings)]


def curve(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.startswith(("time/", "step_time"))} for r in records]


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    found.pop("seconds", None)
    return found


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    return found


def log(folder: Path, name: str) -> bytes:
    return (folder / "evaluations" / f"{name}.jsonl.gz").read_bytes()


def check_same_run(whole: Path, other: Path) -> None:
    assert summary(whole)["status"] == "finished"
    assert summary(whole) == summary(other)
    assert curve(whole) == curve(other)
    before, after = weights(whole / "checkpoint"), weights(other / "checkpoint")
    assert all(torch.equal(before[name], after[name]) for name in before)


def in_the_middle(start: Start, command: list[str], folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a run; return its launcher and the processes that it started, once it has two checkpoints."""
    launcher = start(command)
    while len(checkpoints(folder)) < 2:
        assert launcher.poll() is None, launcher.communicate()[0][-4000:]
        time.sleep(0.02)
    workers = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    assert len(workers) == 2
    return launcher, [int(worker) for worker in workers]


def kill_in_the_middle(start: Start, command: list[str], folder: Path) -> None:
    launcher, workers = in_the_middle(start, command, folder)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    launcher.communicate(timeout=120)
    assert summary(folder) == {"status": "running"}
    assert 4 <= len(curve(folder)) < 8


def terminate_in_the_middle(start: Start, command: list[str], folder: Path) -> None:
    """End a run as SLURM does: SIGTERM to the launcher and to its processes, which get it from the launcher again."""
    launcher, workers = in_the_middle(start, command, folder)
    for process in (*workers, launcher.pid):
        os.kill(process, signal.SIGTERM)
    launcher.communicate(timeout=120)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert summary(folder) == {"status": "interrupted"}
    assert checkpoints(folder)[-1].name == f"checkpoint-{curve(folder)[-1]['step']}"  # nothing is lost
    assert (folder / "checkpoint").is_dir()


def test_two_processes_run_the_recipe_of_one(
    launcher: Launcher, run_processes: Processes, start: Start, tmp_path: Path
) -> None:
    one, two, killed, terminated = (tmp_path / name for name in ("one", "two", "killed", "terminated"))
    run_processes([sys.executable, *baseline(one, per_device_train_batch_size=16)])
    said = run_processes([*launcher("processes.yaml"), *baseline(two)])
    assert said.count("Run folder") == said.count("After training") == 1  # only the main process speaks
    assert summary(one)["status"] == summary(two)["status"] == "finished"
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}  # and all write into one folder
    for name in ("before_sampled", "before_greedy"):
        assert log(one, name) == log(two, name)
    alone, both = curve(one), curve(two)
    assert any(record["success"] for record in alone)
    for record, other in zip(alone, both, strict=True):
        exact = ("step", "success", "turns", "valid_success")
        assert [record.get(name) for name in exact] == [other.get(name) for name in exact]
        close = ("loss", "grad_norm", "entropy")
        assert [other.get(name) for name in close] == pytest.approx([record.get(name) for name in close], rel=2e-3)
    start_, mine, theirs = (weights(folder) for folder in (one / "warm_start", one / "checkpoint", two / "checkpoint"))
    moved, apart = (sum((mine[n] - other[n]).square().sum() for n in mine) ** 0.5 for other in (start_, theirs))
    assert apart < 0.05 * moved  # Adam divides small gradients by small numbers

    command = [*launcher("processes.yaml"), *baseline(killed)]
    kill_in_the_middle(start, command, killed)
    run_processes([*command, "--resume=true"])
    check_same_run(two, killed)

    command = [*launcher("processes.yaml"), *baseline(terminated)]
    terminate_in_the_middle(start, command, terminated)
    run_processes([*command, "--resume=true"])
    check_same_run(two, terminated)


@pytest.mark.nightly
@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize("stage", [2, 3])
def test_a_killed_recipe_goes_on_under_deepspeed(
    launcher: Launcher, run_processes: Processes, start: Start, tmp_path: Path, stage: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = launcher(f"zero{stage}.yaml")
    run_processes([*command, *baseline(whole)])
    kill_in_the_middle(start, [*command, *baseline(killed)], killed)
    # Each process keeps its part of the optimizer, so it really was DeepSpeed; of the weights too with ZeRO-3.
    for part, count in (("*optim_states.pt", 2), ("zero_pp_rank_*model_states.pt", 2 * (stage == 3))):
        assert len(list(checkpoints(killed)[-1].rglob(part))) == count
    run_processes([*command, *baseline(killed), "--resume=true"])
    check_same_run(whole, killed)
    moved, start_ = weights(whole / "checkpoint"), weights(whole / "warm_start")
    assert all(not torch.equal(moved[name], start_[name]) for name in moved)


@pytest.mark.nightly
@pytest.mark.usefixtures("deepspeed")
def test_adapters_under_zero3_are_resumed_with_their_reference(
    launcher: Launcher, run_processes: Processes, start: Start, tmp_path: Path, acting_model: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    adapters = {"model": acting_model, "lora": "true", "lora_rank": 4, "beta": 0.1}
    command = launcher("zero3.yaml")
    run_processes([*command, *baseline(whole, **adapters)])
    kill_in_the_middle(start, [*command, *baseline(killed, **adapters)], killed)
    run_processes([*command, *baseline(killed, **adapters), "--resume=true"])
    check_same_run(whole, killed)
    kls = [record["kl"] for record in curve(whole) if "kl" in record]
    assert kls[0] == 0 < kls[-1]  # the adapter as cloning left it is the reference
    assert (whole / "checkpoint" / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize(
    ("rank", "step"),
    [
        pytest.param(0, "clone", id="main alone", marks=pytest.mark.nightly),
        pytest.param(1, "evaluate", id="a share", marks=pytest.mark.nightly),
        pytest.param(1, "learn", id="another"),
    ],
)
def test_a_process_that_fails_ends_all(
    launcher: Launcher, run_processes: Processes, tmp_path: Path, rank: int, step: str
) -> None:
    told = json.dumps([{"rank": rank, "step": step, "does": "fail"}])
    command = [*launcher("processes.yaml"), WORKER, told, *recipe(tmp_path / "run", warm_start_levels=10)]
    said = run_processes(command, fails=True)
    assert summary(tmp_path / "run") == {"status": "failed", "error": f"TrainingFailed: no luck in process {rank}"}
    assert f"TrainingFailed: no luck in process {rank}" in said


@pytest.mark.parametrize("signal_name", [pytest.param("SIGINT", marks=pytest.mark.nightly), "SIGTERM"])
def test_a_signal_to_one_process_stops_all_after_the_batch(
    launcher: Launcher, run_processes: Processes, tmp_path: Path, signal_name: str
) -> None:
    told = json.dumps([{"rank": 1, "step": "learn", "does": signal_name}])
    folder = tmp_path / "run"
    run_processes([*launcher("processes.yaml"), WORKER, told, *recipe(folder, warm_start_levels=10)], fails=True)
    assert summary(folder) == {"status": "interrupted"}
    [record, *_] = curve(folder)
    assert record["step"] == 1
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-1"]
    assert weights(folder / "checkpoint").keys() == weights(folder / "warm_start").keys()


TRAINED: list[tuple[str, dict[str, Any]]] = [
    ("processes.yaml", {}),
    ("zero3.yaml", {}),
    ("zero3.yaml", {"lora": "true", "lora_rank": 4, "beta": 0.1}),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "settings"), TRAINED, ids=["plain", "zero3", "adapters"])
def test_processes_that_a_signal_stops_at_the_end_only_evaluate(
    request: pytest.FixtureRequest,
    launcher: Launcher,
    run_processes: Processes,
    tmp_path: Path,
    acting_model: Path,
    kind: str,
    settings: dict[str, Any],
) -> None:
    if kind == "zero3.yaml":
        request.getfixturevalue("deepspeed")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    settings = {"model": acting_model, "warm_start_levels": 10, "max_steps": 4, "save_strategy": "no", **settings}
    told = json.dumps([{"rank": 0, "step": "keep", "does": "SIGTERM"}])
    run_processes([*launcher(kind), WORKER, "[]", *recipe(whole, **settings)])
    run_processes([*launcher(kind), WORKER, told, *recipe(stopped, **settings)], fails=True)
    assert summary(stopped) == {"status": "interrupted"}
    told = json.dumps([{"rank": rank, "step": "learn", "does": "fail"} for rank in (0, 1)])
    run_processes([*launcher(kind), WORKER, told, *recipe(stopped, **settings), "--resume=true"])
    check_same_run(whole, stopped)
    assert log(whole, "after_sampled") == log(stopped, "after_sampled") != log(whole, "before_sampled")


@pytest.mark.nightly
def test_nothing_waits_longer_than_the_timeout(launcher: Launcher, run_processes: Processes, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    quick = {"warm_start_levels": 10, "max_steps": 2, "validations": 1, "save_strategy": "no"}
    # The behaviour cloning of the main process, and the share of one process in an evaluation and in a batch, take
    # longer than a collective operation may.
    told = [{"rank": rank, "step": step, "does": 25} for rank, step in ((0, "clone"), (1, "evaluate"), (1, "play"))]
    command = [*launcher("processes.yaml"), WORKER, json.dumps(told)]
    run_processes([*command, *recipe(two, ddp_timeout=20, **quick)])
    run_processes([sys.executable, WORKER, "[]", *recipe(one, per_device_train_batch_size=16, **quick)])
    assert summary(two)["status"] == "finished"
    for name in ("before_sampled", "before_greedy"):
        assert log(one, name) == log(two, name)


@pytest.mark.parametrize("step", [pytest.param("evaluate", marks=pytest.mark.nightly), "play"])
def test_a_killed_process_ends_the_run_and_is_named(
    launcher: Launcher, run_processes: Processes, tmp_path: Path, step: str
) -> None:
    told = json.dumps([{"rank": 1, "step": step, "does": "SIGKILL"}])
    command = [*launcher("processes.yaml"), WORKER, told, *recipe(tmp_path / "run", warm_start_levels=10)]
    said = run_processes(command, fails=True)
    assert "process 1: SIGKILL" in said  # what it printed last
    assert re.search(r"rank\s*: 1 .*exitcode\s*: -9", said, re.DOTALL)
    assert summary(tmp_path / "run")["status"] in ("running", "failed", "interrupted")  # all of these can be resumed
