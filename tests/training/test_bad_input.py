"""What `agentgym-flow train` can be given wrong: one line that names the setting, or a run that goes on and says so."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from thinned import thinned
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration
from typer.testing import CliRunner, Result

from agentgym_flow.cli import app
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.training.minibatch import FAILED_BATCH
from agentgym_flow.training.models import save_model
from agentgym_flow.training.tiny import tiny_model, word_tokenizer

SMALL = {
    "env_kwargs": '{"size": 6, "max_steps": 8}',
    "threads": 1,  # two test processes share two cores
    "warm_start_levels": 8,
    "warm_start_updates": 8,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 2,
    "max_steps": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "steps_per_generation": 4,
    "eval_episodes": 2,
    "validations": 0,
}
Tiny = tuple[Any, Any]


def train(folder: Path, **settings: Any) -> Result:
    words = [f"--{name}={value}" for name, value in {**SMALL, "output_dir": folder, **settings}.items()]
    return CliRunner().invoke(app, ["train", "grpo", *words])


def refusal(result: Result) -> str:
    """The one line of a command that was refused."""
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line


# ---------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("name", "value"),
    thinned(
        [
            ("max_steps", 0),
            ("num_iterations", 0),
            ("per_device_train_batch_size", 0),
            ("gradient_accumulation_steps", 0),
            ("steps_per_generation", 0),
            ("max_completion_length", 0),
            ("learning_rate", "nan"),
            ("learning_rate", "inf"),
            ("learning_rate", -1),
            ("muon_learning_rate", "nan"),
            ("muon_learning_rate", 0),
            ("warm_start_learning_rate", "nan"),
            ("warm_start_muon_learning_rate", -1),
            ("seed", -1),
            ("seed", 2**32),
            ("threads", 0),
            ("epsilon", "nan"),
            ("epsilon_high", -1),
            ("max_grad_norm", "nan"),
            ("weight_decay", -1),
            ("entropy_coef", "nan"),
            ("final_lr_ratio", 2),
            ("temperature", 0),
        ],
        4,
    ),
)
def test_numbers_that_cannot_work_are_refused_before_a_folder_is_made(name: str, value: Any, tmp_path: Path) -> None:
    assert refusal(train(tmp_path / "run", **{name: value})).startswith(f"error: {name} must be ")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- algorithms
@pytest.mark.parametrize("words", [["nope"], ["no_such_module:credit"], ["grpo", '--credit_settings={"gama": 1}']])
def test_an_unknown_algorithm_is_refused_before_a_folder_is_made(words: list[str], tmp_path: Path) -> None:
    line = refusal(CliRunner().invoke(app, ["train", *words, f"--output_dir={tmp_path / 'run'}"]))
    assert any(name in line for name in ("nope", "no_such_module", "gama"))
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- models
def no_tokenizer(folder: Path, tiny: Tiny) -> None:
    model = tiny_model(word_tokenizer(["neither", "this", "nor", "that"]))  # other words than the prompt template's
    save_model(folder, model, tiny[1])
    for file in folder.glob("token*"):
        file.unlink()


def folder_of_a_run(folder: Path, tiny: Tiny) -> None:
    save_model(folder / "checkpoint", *tiny)


def no_weights(folder: Path, tiny: Tiny) -> None:
    save_model(folder, *tiny)
    (folder / "model.safetensors").unlink()


def broken_weights(folder: Path, tiny: Tiny) -> None:
    save_model(folder, *tiny)
    (folder / "model.safetensors").write_bytes(b"x" * 100)


def reconfigured(**changes: Any) -> Callable[[Path, Tiny], None]:
    def write(folder: Path, tiny: Tiny) -> None:
        save_model(folder, *tiny)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return write


def other_family(folder: Path, tiny: Tiny) -> None:
    config = T5Config(vocab_size=len(tiny[1]), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    save_model(folder, T5ForConditionalGeneration(config), tiny[1])


def small(**changes: Any) -> Callable[[Path, Tiny], None]:
    def write(folder: Path, tiny: Tiny) -> None:
        size = {"vocab_size": len(tiny[1]), "n_positions": 128, "n_embd": 16, "n_layer": 1, "n_head": 2}
        ends = {"bos_token_id": None, "eos_token_id": tiny[1].eos_token_id}
        save_model(folder, GPT2LMHeadModel(GPT2Config(**size | ends | changes)), tiny[1])

    return write


def few_words(folder: Path, _: Tiny) -> None:
    tokenizer = word_tokenizer(["up", "down"])
    save_model(folder, tiny_model(tokenizer), tokenizer)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder, _: folder.mkdir(), "must be a folder saved by Hugging Face"),
        (no_tokenizer, "has no tokenizer: save it there, or use the prompt template of its training"),
        (folder_of_a_run, "/model/checkpoint"),
        (no_weights, "must be a folder saved by Hugging Face"),
        (broken_weights, "must be a folder saved by Hugging Face"),
        (reconfigured(n_embd=48), "use a folder whose weights and config.json belong together"),
        (reconfigured(n_layer=5), "has no transformer.h."),
        (other_family, "must be a folder saved by Hugging Face"),
        (small(vocab_size=20), "and the model only 20: set model to a folder whose tokenizer"),
        (
            small(n_positions=30),
            "do not fit into the model's context of 30: use a shorter prompt template, a smaller board",
        ),
        (few_words, "cannot express the answer 'left'"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(
    write: Callable[[Path, Tiny], Any], message: str, tiny: Tiny, tmp_path: Path
) -> None:
    write(tmp_path / "model", tiny)
    assert message in refusal(train(tmp_path / "run", model=tmp_path / "model"))
    assert not (tmp_path / "run").exists()  # before any work


@pytest.mark.heavy
def test_a_tokenizer_may_be_without_padding(tiny: Tiny, tmp_path: Path) -> None:
    model, tokenizer = tiny
    tokenizer.pad_token = None
    save_model(tmp_path / "model", model, tokenizer)
    result = train(tmp_path / "run", model=tmp_path / "model")
    assert result.exit_code == 0, result.output


# ---------------------------------------------------------------- training that diverges
@pytest.mark.heavy
@pytest.mark.parametrize("merge", [True, False])
def test_a_loss_that_is_not_a_number_stops_and_leaves_the_batch(merge: bool, tmp_path: Path) -> None:
    line = refusal(
        train(tmp_path / "run", learning_rate=1e30, muon_learning_rate="null", warmup_steps=0, merge_prompts=merge)
    )
    assert "the loss is nan at step 1: lower learning_rate and muon_learning_rate, or max_grad_norm" in line
    saved = tmp_path / "run" / FAILED_BATCH
    assert str(saved) in line
    batch = torch.load(saved, weights_only=True)
    rows = batch["prompt_ids"].shape[0]
    assert batch["prompt_mask"].shape == batch["prompt_ids"].shape
    assert batch["tokens" if merge else "completion_ids"].shape[0] == rows
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "TrainingFailed: the loss is nan" in summary["error"]


@pytest.mark.parametrize("length", [1, 2])
def test_a_model_that_says_nothing_is_named(length: int, tiny: Tiny, tmp_path: Path) -> None:
    model, tokenizer = tiny
    with torch.no_grad():
        model.transformer.wpe.weight[0] = math.nan
    save_model(tmp_path / "model", model, tokenizer)
    result = train(
        tmp_path / "run",
        model=tmp_path / "model",
        warm_start_levels=0,
        max_completion_length=length,
        merge_prompts=False,
    )
    assert "the model's output is not a number: lower learning_rate" in refusal(result)


# ---------------------------------------------------------------- environments that raise
def test_a_run_survives_an_environment_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, calls = SokobanEnv._apply, []

    def sometimes(env: SokobanEnv, action: str) -> Any:
        calls.append(env.split)
        if env.split == "train" and calls.count("train") % 100 == 99:
            raise RuntimeError("the disk is full")
        return apply(env, action)

    monkeypatch.setattr(SokobanEnv, "_apply", sometimes)
    result = train(tmp_path / "run", warm_start_levels=0, max_steps=8)
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    lost = records[-1]["lost_episodes"]
    assert 0 < lost < records[-1]["episodes"] == 32
    assert f"the environment raised in {lost} episodes" in result.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["lost_episodes"]) == ("finished", lost)


def test_a_run_ends_where_the_environment_always_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = SokobanEnv._apply

    def never(env: SokobanEnv, action: str) -> Any:
        if env.split == "train":
            raise RuntimeError("the disk is full")
        return apply(env, action)

    monkeypatch.setattr(SokobanEnv, "_apply", never)
    line = refusal(train(tmp_path / "run", warm_start_levels=0))
    assert "raised in all 16 episodes of a batch: RuntimeError: the disk is full. See env_id, env_kwargs" in line


# ---------------------------------------------------------------- another TRL
MOVED = {
    "del trl.GRPOTrainer._compute_loss": "GRPOTrainer._compute_loss is gone. Tested with TRL 1.16; install",
    "del utils.unwrap_model_for_generation; vars(trl.models).pop('unwrap_model_for_generation', None)": (
        "trl.models.unwrap_model_for_generation is gone. Tested with TRL 1.16"
    ),
}


@pytest.mark.heavy  # in default, `test_trl_contract` moves each member in this process
def test_a_trl_whose_members_moved_is_refused_by_the_command(root: Path, tmp_path: Path) -> None:
    words = [f"--{name}={value}" for name, value in {**SMALL, "output_dir": tmp_path / "run"}.items()]
    program = f"""
import os, sys, trl
trl.GRPOTrainer  # it is imported late, and takes seconds: once for all
import trl.models.utils as utils
for number, change in enumerate({list(MOVED)!r}):
    child = os.fork()
    if not child:
        os.dup2(os.open({str(tmp_path)!r} + f"/said{{number}}", os.O_CREAT | os.O_WRONLY), 2)
        exec(change)
        from agentgym_flow.cli import main
        sys.argv = {["agentgym-flow", "train", "grpo", *words]!r}
        main()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for number, (message, status) in enumerate(zip(MOVED.values(), done.stdout.splitlines(), strict=True)):
        said = (tmp_path / f"said{number}").read_text()
        assert status == "2", said
        assert message in said
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("bases", [("settings.yaml", ""), ("other.yaml", "settings.yaml")])
def test_a_file_that_is_its_own_base_is_refused(bases: tuple[str, str], tmp_path: Path) -> None:
    for name, base in zip(("settings.yaml", "other.yaml"), bases, strict=True):
        (tmp_path / name).write_text(f"max_steps: 4\nbase: [{base}]\n")
    line = refusal(train(tmp_path / "run", config=tmp_path / "settings.yaml"))
    assert f"{tmp_path / 'settings.yaml'} is a base of itself" in line
    assert not (tmp_path / "run").exists()
