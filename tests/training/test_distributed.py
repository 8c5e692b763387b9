"""Several processes on the CPU: two equal one, ranks may have unequal numbers of turns, and DeepSpeed really runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentgym_flow.errors import BadSetting
from agentgym_flow.training.config import AgentConfig

Launcher = Callable[[str], list[str]]
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
def run(run_processes: Callable[..., str], acting_model: Path) -> Run:
    """Runs the worker with the command `before` it and returns what each process wrote into `out`."""

    def run_worker(out: Path, before: list[str], **told: Any) -> list[dict[str, Any]]:
        out.mkdir()
        run_processes([*before, WORKER, json.dumps({"out": str(out), "model": str(acting_model), **told})])
        return [json.loads(path.read_text()) for path in sorted(out.glob("[0-9].json"))]

    return run_worker


def curve(said: dict[str, Any], *names: str) -> list[list[float]]:
    return [[log[name] for name in names] for log in said["history"] if "success" in log]


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return float(sum((one[name] - other[name]).square().sum() for name in one) ** 0.5)


PLAIN = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 1e9}
"""The update is the gradient itself, so what is wrong with one shows in the other."""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        # Muon rounds to bfloat16, Adam divides small gradients by small numbers.
        pytest.param({"muon_learning_rate": 5e-3}, 0.05, marks=pytest.mark.nightly),
        ({**PLAIN, "merge_prompts": False, "beta": 0.1}, 1e-3),
        ({**PLAIN, "merge_prompts": False, "beta": 0.1, "share_prefixes": True}, 1e-3),
        ({**PLAIN, "opsd_weight": 0.1, "opsd_hint": "expert"}, 1e-3),
        # Rounds of any size, shared out unevenly. With the default seed a draw lies within rounding of the border
        # between two tokens, so on some machines two processes sample another token than one does.
        pytest.param(
            {**PLAIN, "dynamic_sampling": True, "max_sampling_rounds": 3, "seed": 1}, 1e-3, marks=pytest.mark.nightly
        ),
    ],
)
def test_two_processes_equal_one(
    run: Run, launcher: Launcher, tmp_path: Path, acting_model: Path, settings: dict[str, Any], tolerance: float
) -> None:
    chosen = {**SETTINGS, **settings}
    [alone] = run(tmp_path / "one", [sys.executable], settings=chosen)
    chosen["per_device_train_batch_size"] = 18  # 4 groups each, and half of the one in the middle
    both = run(tmp_path / "two", launcher("processes.yaml"), settings=chosen)
    assert [said["processes"] for said in (alone, *both)] == [1, 2, 2]
    assert [said["backend"] for said in both] == ["gloo", "gloo"]
    assert both[0]["lengths"] == both[1]["lengths"] == alone["lengths"]
    played = [length for group in alone["lengths"] for length in group]
    assert sum(played[:18]) != sum(played[18:])  # unequal numbers of turns
    exact = ("success", "return", "turns", "frac_reward_zero_std", "episodes", "env_steps")
    assert curve(both[0], *exact) == curve(alone, *exact)
    assert any(success for success, *_ in curve(alone, *exact))
    close = ("loss", "grad_norm", "entropy", *(["kl"] if "beta" in settings else []))
    for mine, theirs in zip(curve(alone, *close), curve(both[0], *close), strict=True):
        assert theirs == pytest.approx(mine, rel=2e-3, abs=1e-7)
    if "beta" in settings:
        assert curve(alone, "kl")[-1][0] > 1e-5
    before = AutoModelForCausalLM.from_pretrained(acting_model).state_dict()
    one, two = (torch.load(tmp_path / name / "weights.pt") for name in ("one", "two"))
    moved, apart = distance(one, before), distance(one, two)
    assert moved > 0.02
    assert apart < tolerance * moved


UNEQUAL = {"num_generations": 2, "per_device_train_batch_size": 1, "max_steps": 2}
"""One episode a process: with `one_turn_rank` that process has a single turn, and a single row."""


@pytest.mark.nightly
@pytest.mark.parametrize("merge", [True, False])
def test_one_process_may_have_a_single_turn(run: Run, launcher: Launcher, tmp_path: Path, merge: bool) -> None:
    settings = {**SETTINGS, **UNEQUAL, "merge_prompts": merge}
    for said in run(tmp_path / "out", launcher("processes.yaml"), settings=settings, one_turn_rank=1):
        check_unequal(said)


def check_unequal(said: dict[str, Any]) -> None:
    [[many, one]] = said["lengths"]
    assert one == 1 < many
    logs = [log for log in said["history"] if "turns" in log]
    assert len(logs) == 2
    assert logs[-1]["turns"] == many + 1  # of both processes, and no padding among them
    assert all(log["grad_norm"] > 0 for log in logs)
    assert all(log["entropy"] > 0 for log in logs)


@pytest.mark.heavy
@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize("stage", [pytest.param(2, marks=pytest.mark.nightly), 3])
def test_deepspeed_takes_two_updates(
    run: Run, launcher: Launcher, tmp_path: Path, acting_model: Path, stage: int
) -> None:
    command = launcher(f"zero{stage}.yaml")
    settings = {**SETTINGS, **UNEQUAL, "max_completion_length": 2}  # `generate` would wait for the other process
    settings["share_prefixes"] = True  # under ZeRO-3 it is switched off
    for said in run(tmp_path / "out", command, settings=settings, one_turn_rank=1):
        assert (said["distributed_type"], said["backend"], said["stage"]) == ("DEEPSPEED", "gloo", stage)
        assert said["processes"] == 2
        check_unequal(said)
    gathered = torch.load(tmp_path / "out" / "weights.pt")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model").state_dict()
    before = AutoModelForCausalLM.from_pretrained(acting_model).state_dict()
    assert all(torch.equal(plain[name], gathered[name]) for name in plain)
    assert all(not torch.equal(plain[name], before[name]) for name in plain)


GENTLE = {
    **SETTINGS,
    "max_steps": 10,
    "learning_rate": 2e-4,
    "lr_scheduler_type": "constant",
    "adam_epsilon": 1e-3,  # Adam divides by the gradient's size, and would make much of what is only rounding
    "merge_prompts": False,
    "beta": 0.1,
}


@pytest.mark.heavy
@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize("stage", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_deepspeed_equals_one_process_and_keeps_float32_masters(
    run: Run, launcher: Launcher, tmp_path: Path, acting_model: Path, stage: int
) -> None:
    before = AutoModelForCausalLM.from_pretrained(acting_model).state_dict()
    [alone] = run(tmp_path / "one", [sys.executable], settings=GENTLE)
    one = torch.load(tmp_path / "one" / "weights.pt")
    numbers = alone["held_by_reference"]
    halves = {**GENTLE, "per_device_train_batch_size": 18}
    for precision, dtype in {"no": "torch.float32", "bf16": "torch.bfloat16"}.items():
        command = [*launcher(f"zero{stage}.yaml"), "--mixed_precision", precision]
        for said in run(tmp_path / precision, command, settings=halves):
            assert (said["distributed_type"], said["stage"], said["processes"]) == ("DEEPSPEED", stage, 2)
            assert said["dtypes"] == [dtype]
            assert said["held_by_reference"] == (numbers // 2 if stage == 3 else numbers)
            kls = [kl for [kl] in curve(said, "kl")]
            assert kls[0] == 0 < kls[-1]  # the reference is what the policy was
        two, masters = (torch.load(tmp_path / precision / f"{name}.pt") for name in ("weights", "masters"))
        assert {weight.dtype for weight in masters.values()} == {torch.float32}
        if precision == "no":
            # Last bits differ, so in ten batches a sampled token may, which moves the rows of rare tokens a little.
            assert max(float((one[name] - weight).abs().max()) for name, weight in two.items()) < 1e-4
            assert max(float((before[name] - weight).abs().max()) for name, weight in two.items()) > 5e-4
            continue
        moved = sum(int((weight != before[name].bfloat16().float()).sum()) for name, weight in masters.items())
        assert moved >= 0.8 * numbers
        assert all(torch.equal(weight.bfloat16().float(), two[name]) for name, weight in masters.items())


def test_deepspeed_is_never_switched_off_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(BadSetting, match="use_cpu would silently switch DeepSpeed off"):
        AgentConfig(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(BadSetting, match="set muon_learning_rate to null"):
        AgentConfig(output_dir=str(tmp_path), muon_learning_rate=5e-3)
