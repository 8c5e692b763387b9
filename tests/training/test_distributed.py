"""Several processes on the CPU: two equal one, ranks may have unequal numbers of turns, and DeepSpeed really runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentgym_flow.errors import BadSetting
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.run import save_model

Run = Callable[..., list[dict[str, Any]]]

WORKER = Path(__file__).with_name("distributed_worker.py")
SETTINGS = {
    "num_generations": 4,
    "per_device_train_batch_size": 36,
    "steps_per_generation": 1,
    "max_steps": 3,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "entropy_coef": 0.01,
}


@pytest.fixture
def model(tiny: tuple[Any, Any], tmp_path: Path) -> Path:
    """A model that mostly plays the four words, so that some episodes succeed."""
    model, tokenizer = tiny
    with torch.no_grad():
        actions = model.transformer.wte.weight[3:7]
        direction = actions.mean(0) / actions.mean(0).norm()
        actions += 3.0 * direction
        model.transformer.ln_f.bias += 3.0 * direction
    save_model(tmp_path / "start", model, tokenizer)
    return tmp_path / "start"


@pytest.fixture
def run(run_processes: Callable[..., None], model: Path) -> Run:
    """Runs the worker with `launcher` and returns what each process wrote into `out`."""

    def run_worker(out: Path, launcher: list[str], **told: Any) -> list[dict[str, Any]]:
        out.mkdir()
        run_processes([*launcher, WORKER, json.dumps({"out": str(out), "model": str(model), **told})])
        return [json.loads(path.read_text()) for path in sorted(out.glob("[0-9].json"))]

    return run_worker


def launch(root: Path, config: str) -> list[str]:
    """Return the command that starts the processes of one of our Accelerate configurations, on any free port."""
    file = root / "baselines" / "configs" / "accelerate" / config
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(file)]
    return [*command, "--main_process_port", "0"]


def curve(said: dict[str, Any], *names: str) -> list[list[float]]:
    return [[log[name] for name in names] for log in said["history"] if "success" in log]


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return float(sum((one[name] - other[name]).square().sum() for name in one) ** 0.5)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "settings",
    [
        {"muon_learning_rate": 5e-3},
        {"merge_prompts": False},
        {"dynamic_sampling": True, "max_sampling_rounds": 3},  # rounds of any size, shared out unevenly
    ],
)
def test_two_processes_equal_one(root: Path, run: Run, tmp_path: Path, model: Path, settings: dict[str, Any]) -> None:
    chosen = {**SETTINGS, **settings}
    [alone] = run(tmp_path / "one", [sys.executable], settings=chosen)
    chosen["per_device_train_batch_size"] = 18  # 4 groups each, and half of the one in the middle
    both = run(tmp_path / "two", launch(root, "processes.yaml"), settings=chosen)
    assert [said["processes"] for said in (alone, *both)] == [1, 2, 2]
    assert [said["backend"] for said in both] == ["gloo", "gloo"]
    assert both[0]["lengths"] == both[1]["lengths"] == alone["lengths"]
    played = [length for group in alone["lengths"] for length in group]
    assert sum(played[:18]) != sum(played[18:])  # unequal numbers of turns
    exact = ("success", "return", "turns", "zero_variance_groups", "episodes", "env_steps")
    assert curve(both[0], *exact) == curve(alone, *exact)
    assert any(success for success, *_ in curve(alone, *exact))
    close = ("loss", "grad_norm")
    for mine, theirs in zip(curve(alone, *close), curve(both[0], *close), strict=True):
        assert theirs == pytest.approx(mine, rel=2e-3)
    before = AutoModelForCausalLM.from_pretrained(model).state_dict()
    one, two = (torch.load(tmp_path / name / "weights.pt") for name in ("one", "two"))
    moved, apart = distance(one, before), distance(one, two)
    assert moved > 0.1
    assert apart < 0.05 * moved  # Muon rounds to bfloat16, and Adam divides small gradients by small numbers


UNEQUAL = {"num_generations": 2, "per_device_train_batch_size": 1, "max_steps": 2}
"""One episode a process: with `one_turn_rank` that process has a single turn, and a single row."""


@pytest.mark.heavy
@pytest.mark.parametrize("merge", [True, False])
def test_one_process_may_have_a_single_turn(root: Path, run: Run, tmp_path: Path, merge: bool) -> None:
    settings = {**SETTINGS, **UNEQUAL, "merge_prompts": merge}
    launcher = launch(root, "processes.yaml")
    for said in run(tmp_path / "out", launcher, settings=settings, one_turn_rank=1):
        check_unequal(said)


def check_unequal(said: dict[str, Any]) -> None:
    [[many, one]] = said["lengths"]
    assert one == 1 < many
    logs = [log for log in said["history"] if "turns" in log]
    assert len(logs) == 2
    assert logs[-1]["turns"] == many + 1  # of both processes, and no padding among them
    assert all(log["grad_norm"] > 0 for log in logs)
    assert all(log["entropy"] > 0 for log in logs)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where DeepSpeed compiles its CPU communication: not where a killed build may have left a lock."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ninja may be installed with pip
    return {"TORCH_EXTENSIONS_DIR": str(tmp_path_factory.mktemp("torch_extensions")), "PATH": path}


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs the extra deepspeed")
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_takes_two_updates(
    root: Path,
    run: Run,
    tmp_path: Path,
    model: Path,
    stage: int,
    built: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in built.items():
        monkeypatch.setenv(name, value)
    launcher = launch(root, f"zero{stage}.yaml")
    for said in run(tmp_path / "out", launcher, settings={**SETTINGS, **UNEQUAL}, one_turn_rank=1):
        assert (said["distributed_type"], said["backend"], said["stage"]) == ("DEEPSPEED", "gloo", stage)
        assert said["processes"] == 2
        check_unequal(said)
    gathered = torch.load(tmp_path / "out" / "weights.pt")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model").state_dict()
    before = AutoModelForCausalLM.from_pretrained(model).state_dict()
    assert all(torch.equal(plain[name], gathered[name]) for name in plain)
    assert all(not torch.equal(plain[name], before[name]) for name in plain)


def test_deepspeed_is_never_switched_off_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(BadSetting, match="use_cpu would switch DeepSpeed off"):
        AgentConfig(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(BadSetting, match="set muon_learning_rate to null"):
        AgentConfig(output_dir=str(tmp_path), muon_learning_rate=5e-3)
