"""What is published on the Hugging Face Hub: models with a card of their own, and episodes. No hub is reached."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from foreign import play
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.core import make_text_env
from agentgym_flow.episodes import LoggedEpisode, read_log, write_log
from agentgym_flow.replay import verify_log

hub = pytest.importorskip("huggingface_hub", reason="it comes with the extra train")
yaml = pytest.importorskip("yaml", reason="it comes with the extra train")

SECRET = os.sep + os.path.join("home", "somebody", "models", "base")
"""A folder of this machine, which nothing that is published may name."""


def command(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose checkpoint is an adapter of a model on this machine."""
    (checkpoint := tmp_path / "run" / "checkpoint").mkdir(parents=True)
    for name in ("adapter_model.safetensors", "tokenizer.json", "optimizer.pt", "training_args.bin", "manifest.json"):
        (checkpoint / name).write_bytes(b"{}")
    (checkpoint / "README.md").write_text("# Model Card for Model ID", "utf-8")
    adapter = {"base_model_name_or_path": SECRET, "peft_type": "LORA", "r": 16}
    (checkpoint / "adapter_config.json").write_text(json.dumps(adapter), "utf-8")
    (checkpoint / "tokenizer_config.json").write_text(
        json.dumps({"name_or_path": SECRET, "eos_token": "</s>", "parts": [{"base_name_or_path": SECRET}]}), "utf-8"
    )
    settings = {"env_id": "agentgym_flow/ALFWorld-v0", "env_kwargs": {"data": SECRET, "max_steps": 30}, "seed": 3}
    settings |= {"credit": "gigpo", "credit_settings": {"omega": 1.0}, "template": "text", "model": SECRET}
    settings |= {"template_settings": {"think": False}}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    lines = [
        play(make_text_env(settings["env_id"], split="test"), task, steps=steps).episode
        for task, steps in ((0, 50), (1, 2))
    ]
    for line in lines:
        if line:
            line.meta |= {"policy": f"hf:{SECRET}", "template": "text"}
    logs = tmp_path / "run" / "evaluations"
    write_log(logs / "after_sampled.jsonl.gz", [LoggedEpisode.of(one) for one in lines if one])
    (logs / "after_greedy.jsonl.gz.7.partial").write_bytes(b"{")  # of a run that was killed
    write_log(logs / "before.jsonl.gz", [LoggedEpisode.of(one) for one in lines if one])
    return tmp_path / "run"


def test_a_model_is_published_with_a_card_of_its_own(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["push", run, "me/agent", "--dry-run", out, "--benchmark", "me/boards", "--license", "apache-2.0"]
    code, _, noted = command(*words)
    assert code == 2
    assert "which is not on the Hub: --base-model OWNER/NAME" in noted
    code, said, noted = command(*words, "--base-model", "Qwen/Qwen3-0.6B")
    assert (code, said.strip()) == (0, str(out)), noted
    assert {file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()} == {
        ".eval_results/boards.yaml", "README.md", "adapter_config.json", "adapter_model.safetensors",
        "evaluations/after_sampled.jsonl.gz", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert json.loads((out / "adapter_config.json").read_text("utf-8"))["base_model_name_or_path"] == "Qwen/Qwen3-0.6B"
    assert not [file for file in out.rglob("*") if file.is_file() and b"somebody" in file.read_bytes()]
    card = hub.ModelCard.load(out / "README.md")
    about = card.data.to_dict()
    assert (about["base_model"], about["library_name"], about["license"]) == ("Qwen/Qwen3-0.6B", "peft", "apache-2.0")
    assert about["tags"] == ["agentgym_flow", "alfworld", "gigpo", "reinforcement-learning"]
    for text in (
        '`{"data": "base", "max_steps": 30}`',
        "| Algorithm | `gigpo` |",
        "| Seed | `3` |",
        '| Its settings | `{"think": false}` |',
        "| test | 2 | 2 | 0.500 [0.0",
        "https://arxiv.org/abs/2505.10978",
        "https://arxiv.org/abs/2010.03768",
        "(evaluations/after_sampled.jsonl.gz)",
    ):
        assert text in card.text
    (result,) = hub.parse_eval_result_entries(
        yaml.safe_load((out / ".eval_results" / "boards.yaml").read_text("utf-8"))
    )
    assert (result.dataset_id, result.task_id, result.value) == ("me/boards", "alfworld_test", 50.0)
    assert result.notes.startswith("success in percent; 95 % interval 9.4")
    assert result.source_url == "https://huggingface.co/me/agent/blob/main/evaluations/after_sampled.jsonl.gz"


def test_a_whole_model_without_a_run_is_published_too(tmp_path: Path, run: Path) -> None:
    (folder := tmp_path / "model").mkdir()
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "config.json").write_text(json.dumps({"_name_or_path": SECRET, "model_type": "gpt2"}), "utf-8")
    log = run / "evaluations" / "before.jsonl.gz"
    assert command("push", folder, "me/agent", "--dry-run", tmp_path / "out", "--log", log)[0] == 0
    card = hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.to_dict()["library_name"] == "transformers"
    assert "before.jsonl.gz" in card.text
    assert "Papers" not in card.text
    assert json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["_name_or_path"] == "me/agent"


class FakeApi:
    """The calls of `huggingface_hub.HfApi` that are needed, with its parameters."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def create_repo(self, repo_id: str, *, repo_type: str, private: bool, exist_ok: bool) -> SimpleNamespace:
        assert exist_ok
        self.made.append((repo_id, repo_type, private))
        return SimpleNamespace(url=repo_id)

    def upload_folder(self, *, folder_path: Path, repo_id: str, repo_type: str, commit_message: str) -> None:
        files = sorted(file.relative_to(folder_path).as_posix() for file in folder_path.rglob("*") if file.is_file())
        self.made.append((repo_id, repo_type, files, commit_message.partition(" ")[0]))


def test_models_and_logs_are_uploaded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeApi()
    monkeypatch.setattr(hub, "HfApi", lambda: fake)
    assert command("push", run / "checkpoint", "me/agent", "--base-model", "me/base", "--private")[0] == 0
    log = run / "evaluations" / "before.jsonl.gz"
    assert command("push", log, "me/episodes")[0] == 0
    assert fake.made[0] == ("me/agent", "model", True)
    assert "adapter_model.safetensors" in fake.made[1][2]
    assert fake.made[2:] == [
        ("me/episodes", "dataset", False),
        ("me/episodes", "dataset", ["README.md", "alfworld/test.jsonl.gz"], "Upload"),
    ]


def test_what_cannot_be_published_is_said(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> None:
        raise OSError("no network")

    monkeypatch.setattr(hub, "HfApi", unreachable)
    log = run / "evaluations" / "before.jsonl.gz"
    (tmp_path / "other").mkdir()
    twin = shutil.copy(log, tmp_path / "other" / log.name)
    for words, said in (
        ((log, "me/episodes"), "the dataset me/episodes cannot be reached: no network"),
        ((run, "agent"), "a repository on the Hub is named OWNER/NAME, got 'agent'"),
        ((log, "../episodes"), "is named OWNER/NAME, got '../episodes'"),
        ((log, "me/a..b"), "is named OWNER/NAME, got 'me/a..b'"),
        ((log, "me/episodes", "--base-model", "me/base"), "--base-model has no meaning for"),
        ((run, "me/agent", "--template", "text"), "--template has no meaning for"),
        ((run, "me/agent", "--log", log, "--log", twin), "two have the same: rename one of them"),
        ((run / "evaluations", "me/agent"), "has no weights"),
        ((run / "checkpoint", "me/agent", "--dry-run", run, "--force"), "or holds it"),
        ((run, "me/agent", "--base-model", SECRET), "is named OWNER/NAME"),
    ):
        code, _, noted = command("push", *words)
        assert (code, said in noted) == (2, True), noted
    (tmp_path / "run" / "evaluations" / "after_sampled.jsonl.gz").unlink()
    code, _, noted = command("push", run, "me/agent", "--base-model", "me/base", "--benchmark", "me/boards")
    assert (code, "need the log of an evaluation" in noted) == (2, True)


@pytest.mark.parametrize("name", ["adapter_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["{", "[1]"])
def test_damaged_configs_are_reported(name: str, text: str, run: Path, tmp_path: Path) -> None:
    (run / "checkpoint" / name).write_text(text, "utf-8")
    code, _, noted = command("push", run, "me/agent", "--base-model", "me/base", "--dry-run", tmp_path / "out")
    assert (code, name in noted, (tmp_path / "out").exists()) == (2, True, False), noted


def test_published_episodes_name_no_folder_of_this_machine(run: Path, tmp_path: Path) -> None:
    out, back = tmp_path / "out", tmp_path / "back.jsonl"
    assert command("push", run / "evaluations" / "before.jsonl.gz", "me/episodes", "--dry-run", out)[0] == 0
    assert command("import", "dataset", out, "--out", back)[0] == 0
    assert "somebody" not in back.read_text("utf-8") + (out / "README.md").read_text("utf-8")
    assert {(one.meta or {})["policy"] for one in read_log(back)} == {"hf:base"}
    assert verify_log(back, jobs=0).ok
    assert command("push", run, "me/agent", "--base-model", "me/base", "--dry-run", tmp_path / "model")[0] == 0
    uploaded = list(read_log(tmp_path / "model" / "evaluations" / "after_sampled.jsonl.gz"))
    assert [(one.meta or {})["policy"] for one in uploaded] == ["hf:base"] * 2
    code, _, noted = command("push", run / "evaluations" / "before.jsonl.gz", "me/x", "--dry-run", run, "--force")
    assert (code, "or holds it" in noted) == (2, True)
