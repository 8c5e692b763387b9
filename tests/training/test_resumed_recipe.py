"""`--resume`: a run killed in any phase goes on in its own folder and ends like one that nobody killed."""

from __future__ import annotations

import io
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
from rich.console import Console
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from agentgym_flow._util.signals import Terminated
from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import progress
from agentgym_flow.training import recipe
from agentgym_flow.training.callbacks import MetricsFile
from agentgym_flow.training.command import interrupted
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.model_evaluation import ModelEvaluator
from agentgym_flow.training.run_folder import checkpoints, last_run
from agentgym_flow.training.trainer import AgentTrainer

SMALL = {
    "threads": 1,  # two test processes share two cores
    "warm_start_levels": 20,
    "warm_start_updates": 8,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 4,
    "max_steps": 16,
    "save_strategy": "steps",
    "save_steps": 4,
    "save_total_limit": 2,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "steps_per_generation": 4,
    "logging_steps": 4,
    "eval_episodes": 8,
    "validations": 2,
    "validation_episodes": 4,
}


EASY = '{"size": 6, "boxes": 1, "min_pushes": 1}'


class Killed(BaseException):
    """Stands for the end of the process: nothing is tidied up after it."""


def arguments(folder: Path, **settings: Any) -> list[str]:
    return [f"--{name}={value}" for name, value in {**SMALL, "output_dir": folder, **settings}.items()]


def train(folder: Path, **settings: Any) -> str:
    screen = io.StringIO()
    torch.manual_seed(int(folder.exists()))  # nothing may depend on the state a process happens to start with
    recipe.train(parse_configs(arguments(folder, **settings)), Console(file=screen))
    return screen.getvalue()


def curve(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.startswith(("time/", "step_time"))} for r in records]


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    found.pop("seconds", None)
    return found


def logging_until(step: int) -> Callable[..., None]:
    """Stands for `MetricsFile.on_log` in a run that is killed there: logged, and no checkpoint of this step written."""
    on_log = MetricsFile.on_log

    def log(self: MetricsFile, args: Any, state: Any, control: Any, **rest: Any) -> None:
        on_log(self, args, state, control, **rest)
        if state.global_step >= step:
            raise Killed

    return log


def check_equal(one: Path, other: Path) -> None:
    assert curve(one) == curve(other)
    assert summary(one) == summary(other)
    assert summary(one)["status"] == "finished"
    models = [AutoModelForCausalLM.from_pretrained(folder / "checkpoint") for folder in (one, other)]
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))
    for log in ("before_sampled", "after_greedy"):
        name = Path("evaluations") / f"{log}.jsonl.gz"
        assert (one / name).read_bytes() == (other / name).read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, narrow: None) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(folder)
    return folder


@pytest.mark.parametrize(
    "phase", ["learning", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("before", "after"))]
)
def test_a_resumed_run_ends_like_one_that_was_never_killed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    examine = recipe.Recipe.evaluate

    def kill_examining(self: Any, moment: str) -> None:
        if moment == phase:
            raise Killed
        examine(self, moment)

    with monkeypatch.context() as patched:
        patched.setattr(recipe.Recipe, "evaluate", kill_examining)
        if phase == "learning":
            patched.setattr(MetricsFile, "on_log", logging_until(12))
        with pytest.raises(Killed):
            train(tmp_path / "run")
    steps, damaged_name = [path.name for path in checkpoints(tmp_path / "run")], "checkpoint-8/model.safetensors"
    assert steps == {"before": [], "learning": ["checkpoint-4", "checkpoint-8"]}.get(
        phase, ["checkpoint-8", "checkpoint-12"]
    )
    if phase == "learning":  # a copy that stopped half way
        damaged = tmp_path / "run" / damaged_name
        damaged.write_bytes(damaged.read_bytes()[:1000])
    said = train(tmp_path / "run", resume="true")
    assert "Cloned" not in said  # that was done
    assert ("Left out: " in said) is (f"{damaged_name} is damaged" in said) is (phase == "learning")
    check_equal(tmp_path / "run", whole)


def then_stop(function: Callable[..., Any], last: Callable[..., bool]) -> Callable[..., Any]:
    """The function, which gets SIGTERM after the call for which `last` is true of its arguments."""

    def call(*arguments: Any, **settings: Any) -> Any:
        done = function(*arguments, **settings)
        if last(*arguments, **settings):
            os.kill(os.getpid(), signal.SIGTERM)
        return done

    return call


STOPS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "batch": (AgentTrainer, "make_batch", lambda trainer: trainer.state.global_step == 12),
    "log": (MetricsFile, "on_log", lambda *_, logs, **__: logs.get("episodes") == 128 and "loss" in logs),
    "save": (recipe, "save_model", lambda folder, *_: folder.name == "checkpoint"),
    "evaluation": (ModelEvaluator, "_play", lambda evaluator, name, *_, **__: name == "after_sampled"),
}


def page(folder: Path) -> str:
    """The report without what a clock measured."""
    return re.sub(r"[\d.]+ minutes", "", (folder / "report.html").read_text())


@pytest.mark.parametrize(
    "moment", ["batch", "log", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("save", "evaluation"))]
)
def test_a_run_that_a_signal_stops_at_the_end_is_not_trained_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    owner, name, last = STOPS[moment]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, then_stop(getattr(owner, name), last))
        with pytest.raises(Terminated):
            train(tmp_path / "run")
    assert summary(tmp_path / "run") == {"status": "interrupted"}
    written = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(AgentTrainer, "make_batch", None)
        said = train(tmp_path / "run", resume="true")
    assert "Training is finished: going on from checkpoint" in said
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == written
    check_equal(tmp_path / "run", whole)
    assert page(tmp_path / "run") == page(whole)


@pytest.mark.heavy
def test_a_trained_model_that_is_damaged_is_trained_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, last = STOPS["evaluation"]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, then_stop(getattr(owner, name), last))
        with pytest.raises(Terminated):
            train(tmp_path / "run")
    weights = tmp_path / "run" / "checkpoint" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    said = train(tmp_path / "run", resume="true")
    assert f"{weights} is damaged" in said
    assert "Going on from checkpoint-12" in said
    check_equal(tmp_path / "run", whole)


@pytest.mark.nightly
def test_adapters_are_resumed_with_their_reference(
    acting_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters = {"model": acting_model, "lora": True, "lora_rank": 4, "beta": 0.1, "warm_start_levels": 0}
    settings = {**adapters, "env_kwargs": EASY, "zero_advantage_share": 1.0}
    train(tmp_path / "whole", **settings)
    with monkeypatch.context() as patched:
        patched.setattr(MetricsFile, "on_log", logging_until(10))
        with pytest.raises(Killed):
            train(tmp_path / "run", **settings)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-4", "checkpoint-8"]
    owner, name, last = STOPS["evaluation"]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, then_stop(getattr(owner, name), last))
        with pytest.raises(Terminated):
            train(tmp_path / "run", resume="true", **settings)
    train(tmp_path / "run", resume="true", **settings)
    check_equal(tmp_path / "run", tmp_path / "whole")
    assert curve(tmp_path / "run")[-1]["kl"] > 0
    assert (tmp_path / "run" / "checkpoint" / "adapter_model.safetensors").is_file()


@pytest.mark.heavy
def test_each_step_shows_how_far_it_is_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0.0)
    said = train(tmp_path / "run", max_steps=4)
    for line in (
        r"Cloning: 8 of 8, 0:00:0\d gone, about 0:00:00 to go, loss \d\.\d{3}",
        r"Evaluating before training, sampled: 8 of 8, 0:00:0\d gone, about 0:00:00 to go, success \d+\.\d%",
        r"Evaluating after training, greedy: 8 of 8, .* success ",
        r"Training: 4 of 4, .* success ",
    ):
        assert re.search(line, said), said


def test_an_interrupted_command_says_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAKELEVEL", raising=False)
    saved = {
        "": "Nothing is saved yet, so a resumed run starts with cloning.",
        "warm_start/manifest.json": "The cloned policy is saved; what followed is done again.",
        "checkpoint-12/manifest.json": "Training is saved up to checkpoint-12.",
        "checkpoint/manifest.json": "The trained policy is saved; only the evaluation",
    }
    for file, sentence in saved.items():
        if file:
            (tmp_path / file).parent.mkdir()
            (tmp_path / file).touch()
        said = interrupted(tmp_path)
        assert sentence in said
        assert said.endswith("Resume with the same command and --resume true.")
    monkeypatch.setenv("MAKELEVEL", "1")
    assert 'make quickstart ARGS="--resume true"' in interrupted(tmp_path)


def test_a_run_is_resumed_with_its_own_settings_only(whole: Path, tmp_path: Path) -> None:
    before = summary(whole)
    with pytest.raises(BadSetting, match="is finished"):
        train(whole, resume=whole)
    again = CliRunner().invoke(app, ["train", "rewardflow", *arguments(whole, resume="true")])
    assert (again.exit_code, again.stdout) == (0, f"The run in {whole} is finished: there is nothing to resume.\n")
    assert summary(whole) == before
    other = CliRunner().invoke(app, ["train", "rewardflow", *arguments(whole, resume="true", seed=3)])
    assert (other.exit_code, "made with seed=" in other.stderr) == (2, True)
    (whole / "summary.json").write_text('{"status": "failed"}')
    try:
        for name, value in {
            "env_id": "agentgym_flow/Other-v0",
            "template": "text",
            "credit": "grpo",
            "seed": 3,
        }.items():
            with pytest.raises(BadSetting, match=f"made with {name}="):
                train(tmp_path / "elsewhere", resume=whole, config=whole / "config.yaml", **{name: value})
        assert summary(whole) == {"status": "failed"}  # a refused command changes nothing
    finally:
        (whole / "summary.json").write_text(json.dumps(before))
    for nothing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadSetting, match="resume: "):
            train(tmp_path / "elsewhere", resume=nothing)
    with pytest.raises(BadSetting, match="no run at output_dir"):
        train(tmp_path / "elsewhere", resume="true")


def test_the_last_run_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    for name in ("run", "run-2", "run-10", "run-x", "running-11"):
        (tmp_path / name).mkdir()
    assert last_run(tmp_path / "run").name == "run-10"


def start(root: Path, folder: Path, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "baselines.rewardflow", *arguments(folder, **settings)]
    return subprocess.Popen(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test in the background inherits it ignored
    )


def wait_for(process: subprocess.Popen[str], sign: Path) -> None:
    while not sign.exists():
        assert process.poll() is None
        time.sleep(0.02)


LONGER = {"max_steps": 64, "save_steps": 8}


@pytest.fixture(scope="module")
def whole_process(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes") / "whole"
    assert finish(start(root, folder, **LONGER)) == 0
    return folder


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=300)
    return process.returncode


@pytest.mark.heavy
@pytest.mark.parametrize("by", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_a_process_that_was_stopped_in_the_middle_is_resumed(
    root: Path, whole_process: Path, tmp_path: Path, by: signal.Signals
) -> None:
    folder = tmp_path / "stopped"
    stopped = start(root, folder, **LONGER)
    wait_for(stopped, folder / "checkpoint-16")
    stopped.send_signal(by)
    said, _ = stopped.communicate(timeout=120)
    last = max(int(path.name.rpartition("-")[2]) for path in checkpoints(folder))
    assert 16 <= last < 64
    if by is signal.SIGKILL:
        assert stopped.returncode == -signal.SIGKILL
    else:
        assert stopped.returncode == 128 + by
        assert "inishing this batch" in said
        assert last == curve(folder)[-1]["step"]  # nothing is lost
        assert summary(folder) == {"status": "interrupted"}
    assert finish(start(root, folder, **LONGER, resume="true")) == 0
    check_equal(folder, whole_process)
    assert [record["step"] for record in curve(folder)] == list(range(4, 65, 4))
