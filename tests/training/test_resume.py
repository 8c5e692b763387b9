"""A run that was killed and resumed is the run that never stopped; what does not fit is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml  # type: ignore[import-untyped]
from transformers import TrainerCallback

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadData, BadSetting, TrainingFailed
from agentgym_flow.training.callbacks import MetricsFile
from agentgym_flow.training.config_file import check_config, write_config
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from agentgym_flow.training.run_folder import (
    CONFIG,
    MADE_WITH,
    MANIFEST,
    checkpoints,
    last_intact,
    progress_of,
    write_json,
)
from agentgym_flow.training.trainer import AgentTrainer

Trainers = Callable[..., AgentTrainer]
Warm = Callable[[], tuple[Any, Any]]
pytestmark = pytest.mark.usefixtures("narrow")
SAVING = {"save_strategy": "steps", "save_steps": 4, "max_steps": 12}


class Killed(Exception):
    """Stands for the end of the process."""


class KillAt(TrainerCallback):  # type: ignore[misc]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Killed


def lines(path: Path) -> list[dict[str, Any]]:
    """The curve without what a clock measured."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.startswith(("time/", "step_time"))} for r in records]


def actions(trainer: AgentTrainer) -> list[list[str]]:
    """What the last batch played."""
    return [[turn.action for turn in episode.turns] for group in trainer.groups for episode in group]


def run(
    make_trainer: Trainers,
    make_warm: Warm,
    folder: Path,
    kill_at: int | None = None,
    resume: bool = False,
    **settings: Any,
) -> AgentTrainer:
    torch.manual_seed(99 if resume else 1)  # nothing may depend on the state a process happens to start with
    trainer = make_trainer(model=make_warm(), output_dir=str(folder), **{**SAVING, **settings})
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
        (7, {"muon_learning_rate": None, "merge_prompts": False, "num_iterations": 2, "max_steps": 8}),
        (7, {"opsd_weight": 0.1, "opsd_hint": "expert", "max_steps": 8}),
        pytest.param(
            7, {"gradient_accumulation_steps": 2, "logging_steps": 1, "save_steps": 3}, marks=pytest.mark.heavy
        ),
        pytest.param(7, {"replay_share": 0.5}, marks=pytest.mark.heavy),
        pytest.param(
            7, {"dynamic_sampling": True, "max_sampling_rounds": 3, "logging_steps": 1}, marks=pytest.mark.heavy
        ),
        pytest.param(  # both of these
            7,
            {"dynamic_sampling": True, "max_sampling_rounds": 2, "replay_share": 0.25, "max_steps": 8},
            marks=pytest.mark.heavy,
        ),
    ],
)
def test_a_resumed_run_equals_one_that_never_stopped(
    make_trainer: Trainers, make_warm: Warm, tmp_path: Path, kill_at: int, settings: dict[str, Any]
) -> None:
    whole = run(make_trainer, make_warm, tmp_path / "whole", **settings)
    run(make_trainer, make_warm, tmp_path / "killed", kill_at, **settings)
    again = run(make_trainer, make_warm, tmp_path / "killed", resume=True, **settings)
    assert lines(tmp_path / "killed" / "metrics.jsonl") == lines(tmp_path / "whole" / "metrics.jsonl")
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True))
    assert actions(again) == actions(whole)
    moved, start = whole.model.state_dict(), make_warm()[0].state_dict()
    assert any(not torch.equal(moved[name], start[name]) for name in start)


@pytest.mark.heavy
def test_a_resumed_run_may_log_and_save_at_other_steps(make_trainer: Trainers, make_warm: Warm, tmp_path: Path) -> None:
    whole = run(make_trainer, make_warm, tmp_path / "whole", logging_steps=3)
    run(make_trainer, make_warm, tmp_path / "killed", 5, logging_steps=3)
    again = run(make_trainer, make_warm, tmp_path / "killed", resume=True, logging_steps=1, save_steps=2)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True))
    records = lines(tmp_path / "killed" / "metrics.jsonl")
    assert [record["step"] for record in records] == [3, *range(5, 13)]
    assert records[-1]["episodes"] == lines(tmp_path / "whole" / "metrics.jsonl")[-1]["episodes"]
    assert [path.name for path in checkpoints(tmp_path / "killed")] == [f"checkpoint-{step}" for step in (4, 6, 8, 10)]


@pytest.mark.heavy
def test_the_order_of_tasks_goes_on_in_later_epochs(
    make_trainer: Trainers, make_warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_flow.envs.sokoban.env.SokobanEnv.num_tasks", 8)  # 2 batches an epoch
    settings = {"max_steps": 10, "save_steps": 2}
    whole = run(make_trainer, make_warm, tmp_path / "whole", **settings)
    for killed, resume in ((5, False), (7, True)):  # at the start of an epoch, and within one
        run(make_trainer, make_warm, tmp_path / "killed", killed, resume, **settings)
    again = run(make_trainer, make_warm, tmp_path / "killed", resume=True, **settings)
    assert whole.state.epoch == 2.5
    assert [g.episodes[0].task for g in again.groups] == [g.episodes[0].task for g in whole.groups]
    assert lines(tmp_path / "killed" / "metrics.jsonl") == lines(tmp_path / "whole" / "metrics.jsonl")


def test_checkpoints_are_whole_and_the_last_ones_are_kept(
    make_trainer: Trainers, make_warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = {"save_steps": 2, "save_total_limit": 2}
    run(make_trainer, make_warm, tmp_path / "run", **limited)
    # None at the last step: there is nothing left to resume.
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-8", "checkpoint-10"]
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert not (tmp_path / "run" / "README.md").exists()

    def no_room(self: AgentTrainer, folder: Path) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(AgentTrainer, "describe", no_room)
        trainer = make_trainer(model=make_warm(), output_dir=str(tmp_path / "run"), **{**SAVING, **limited})
        with pytest.raises(TrainingFailed, match="disk full"):
            trainer.train(checkpoints(tmp_path / "run")[0])
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-8", "checkpoint-10"]
    assert trainer.args.output_dir == str(tmp_path / "run")
    run(make_trainer, make_warm, tmp_path / "run", resume=True, **limited)  # a half-written one is in nobody's way


def test_a_checkpoint_of_another_run_is_refused_by_name(
    make_trainer: Trainers, make_warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(make_trainer, make_warm, tmp_path / "run", 5)
    [checkpoint] = checkpoints(tmp_path / "run")
    for name, settings in {
        "learning_rate": {"learning_rate": 2e-3},
        "credit": {"credit": "grpo"},
        "credit_settings": {"credit_settings": {"gamma": 0.5}},
        "max_steps": {"max_steps": 24},
        "seed": {"seed": 1},
    }.items():
        with pytest.raises(BadSetting, match=rf"made with {name}="):
            make_trainer(**{**SAVING, **settings}).train(checkpoint)
    small, words = make_warm()
    small.resize_token_embeddings(len(words) + 1)
    with pytest.raises(BadSetting, match=r"made with model='GPT2LMHeadModel, \d+ parameters"):
        make_trainer(model=(small, words), **SAVING).train(checkpoint)
    sizes = {"size": 7, "boxes": 1, "min_pushes": 1}

    def larger() -> TextEnv:
        return make_text_env("agentgym_flow/Sokoban-v0", **sizes)

    monkeypatch.setitem(make_trainer.__globals__, "_make_env", larger)
    with pytest.raises(BadSetting, match=r"made with env_kwargs=.*6.*7"):
        make_trainer(**SAVING).train(checkpoint)
    monkeypatch.undo()
    make_trainer(**SAVING, num_envs=3, save_total_limit=1).train(checkpoint)  # these may change


def test_a_setting_that_is_newer_than_the_run_counts_as_its_default(make_trainer: Trainers, tmp_path: Path) -> None:
    trainer = make_trainer(**SAVING)
    configs = RunConfig(), WarmStartConfig(), trainer.args
    older = trainer.made_with()
    del older["fork_continuations"], older["credit_settings"]["gamma"]
    write_json(tmp_path / MADE_WITH, older)
    file = tmp_path / CONFIG
    write_config(file, configs)
    settings = yaml.safe_load(file.read_text("utf-8"))
    del settings["fork_continuations"], settings["credit_settings"]["gamma"], settings["lora_rank"]
    file.write_text(yaml.safe_dump(settings), "utf-8")
    trainer.check_made_with(tmp_path)
    check_config(file, configs)
    for name, changed in {
        "fork_continuations": {"fork_continuations": 7},
        "credit_settings": {"credit_settings": {"gamma": 0.5}},
    }.items():
        other = make_trainer(**SAVING, **changed)
        with pytest.raises(BadSetting, match=rf"made with {name}=[^N]"):
            other.check_made_with(tmp_path)
        with pytest.raises(BadSetting, match=rf"made with {name}=[^N]"):
            check_config(file, (*configs[:2], other.args))


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_a_damaged_checkpoint_is_never_loaded(make_trainer: Trainers, make_warm: Warm, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trainer = run(make_trainer, make_warm, folder, 11)
    older, last = checkpoints(folder)
    names = {path.name for path in last.iterdir()}
    assert names >= {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
    assert json.loads((last / MANIFEST).read_text()).keys() == names - {MANIFEST}
    assert last_intact(folder) == (last, [])
    for name in sorted(names):
        content = (last / name).read_bytes()
        for damage in (cut, flip):
            (last / name).write_bytes(damage(content))
            found, [problem] = last_intact(folder)
            assert found == older
            assert str(last / name) in problem or name == MANIFEST
        (last / name).unlink()
        assert last_intact(folder) == (older, [f"{last / name} is missing"])
        (last / name).write_bytes(content)
    (last / "model.safetensors").write_bytes(cut((last / "model.safetensors").read_bytes()))
    with pytest.raises(BadData, match=r"model\.safetensors is damaged: it has \d+ bytes instead of \d+"):
        trainer.train(last)
    (older / "optimizer.pt").unlink()
    with pytest.raises(BadData, match=r"no checkpoint in .* is intact .*model\.safetensors.*optimizer\.pt is missing"):
        last_intact(folder)


@pytest.mark.parametrize(
    ("share", "unwritten"),
    [pytest.param(0.5, "the weights", marks=pytest.mark.heavy), (1.1, "optimizer.pt")],
)
def test_a_disk_that_is_full_is_named_and_loses_nothing(
    make_trainer: Trainers, make_warm: Warm, tmp_path: Path, share: float, unwritten: str
) -> None:
    """Files may have a share of the bytes that the weights have."""
    resource = pytest.importorskip("resource", reason="limits on file sizes stand for a full disk")

    class LimitAt(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 5:
                weights = sum(parameter.nbytes for parameter in trainer.model.parameters())
                resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * weights), hard))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = tmp_path / "run"
    trainer = make_trainer(model=make_warm(), output_dir=str(folder), **SAVING)
    trainer.add_callback(LimitAt())
    try:
        with pytest.raises(
            TrainingFailed, match=rf"checkpoint-8: {unwritten} cannot be written .*MB are free.*quota.*resume"
        ):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert last_intact(folder) == (folder / "checkpoint-4", [])
    assert not list(folder.rglob("checkpoint-8"))  # what was half written takes no room
    make_trainer(model=make_warm(), output_dir=str(folder), **SAVING).train(folder / "checkpoint-4")
    assert last_intact(folder) == (folder / "checkpoint-8", [])


def test_what_is_no_checkpoint_is_refused(make_trainer: Trainers, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="is not a checkpoint"):
        make_trainer().train(tmp_path)
    with pytest.raises(BadSetting, match=r"save_steps=3 is inside a batch.*multiple of 2"):
        make_trainer(save_strategy="steps", save_steps=3)
    with pytest.raises(BadSetting, match=r"save_strategy must be no or steps, got .*epoch"):
        make_trainer(save_strategy="epoch")
