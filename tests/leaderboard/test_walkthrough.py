"""A submission from its first command to the page, by commands and on a real git repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.episodes import read_log
from agentgym_flow.leaderboard.submission import ABOUT, ModelCard, Submission, open_weights_digest
from agentgym_flow.prompts import template_for
from agentgym_flow.training.models import load_model, save_model

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

TRACKS = """\
[small]
title = "Small boards"
env_id = "agentgym_flow/Sokoban-v0"
tasks = 8
kwargs = { size = 6, boxes = 1, max_steps = 12 }

[levels]
title = "Levels"
env_id = "agentgym_flow/Sokoban-v0"
data = "levels"
"""


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, f"{words}\n{result.output}\n{result.exception!r}"
    return result.output


def git(*words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """The working directory is a repository whose branch `main` has an open season; its secret is kept outside."""
    before = Path.cwd()
    (tmp_path / "boards" / "leaderboards").mkdir(parents=True)
    os.chdir(tmp_path / "boards")
    Path("leaderboards/tracks.toml").write_text(TRACKS, "utf-8")
    keep = str(tmp_path / "keep.json")
    days = ("--opens", "2026-01-01", "--closes", "2099-12-31")
    run("leaderboard", "season", "new", "s1", *days, "--keep", keep)
    run("leaderboard", "season", "open", "s1", "--seed", json.loads(Path(keep).read_text("utf-8"))["seed"])
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "a season")
    yield tmp_path
    os.chdir(before)


@pytest.mark.heavy
def test_submitted_weights_are_judged_and_shown_on_the_page(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = json.loads((repository / "keep.json").read_text("utf-8"))["secret"]
    model, tokenizer = load_model("tiny", template_for("agentgym_flow/Sokoban-v0", "compact"))
    checkpoint = str(repository / "run" / "checkpoint")
    save_model(Path(checkpoint), model, tokenizer)
    out = str(repository / "played")
    run(
        "evaluate", "--track", "small-s1", "--policy", f"hf:{checkpoint}", "--template", "compact",
        "--policy-arg", "max_tokens=1", "--out", out,
    )  # fmt: skip
    said = run(
        "submit", out, "--name", "fresh", "--title", "Fresh weights", "--author", "A. Person", "--prompt", "compact",
        "--command", "none was trained", "--badge", "reproduced", "--policy", checkpoint, "--half",
        "--core-seconds", "1",
    )  # fmt: skip
    assert "**Accepted** as *reproduced*" in said
    (entry,) = Path("leaderboards/submissions/small-s1").iterdir()
    assert run("leaderboard", "check", str(entry)).count("Accepted") == 1
    assert (entry / "policy/model.safetensors").stat().st_size < 600_000, "half precision"

    git("checkout", "-q", "-b", "mine")
    git("add", "-A")
    git("commit", "-q", "-m", "a submission")
    said = run("leaderboard", "ci", "main", "mine", "--account", "Me", "--out", str(repository / "decision"))
    assert "Accepted" in said
    assert "After the merge it plays other tasks" in said
    assert "Accepted" in (repository / "decision/summary.md").read_text("utf-8")
    git("checkout", "-q", "main")
    git("merge", "-q", "--squash", "mine")
    git("commit", "-q", "-m", "Entry\n\nAccount: Me")

    for known in ({}, {"s1": "00" * 32}, {"s2": secret}):
        monkeypatch.setenv("AGENTGYM_FLOW_SEASON_SECRETS", json.dumps(known))
        assert "Accepted" not in run("leaderboard", "publish", code=2), "the entry waits for its secret"
    monkeypatch.setenv("AGENTGYM_FLOW_SEASON_SECRETS", json.dumps({"s1": secret}))
    assert "reproduced" in run("leaderboard", "publish")
    monkeypatch.delenv("AGENTGYM_FLOW_SEASON_SECRETS")
    run("leaderboard", "render")
    verdict = json.loads(Path(f"leaderboards/verdicts/small-s1/{entry.name}.json").read_text("utf-8"))
    assert (verdict["accepted"], verdict["rehearsal"], verdict["account"]) == (True, False, "me")
    assert verdict["commit"] == git("rev-parse", "HEAD")
    page = Path(f"leaderboards/site/small-s1/{entry.name}/index.html").read_text("utf-8")
    assert "Fresh weights" in page
    assert verdict["season"] in page
    assert "Levels" in Path("leaderboards/site/index.html").read_text("utf-8"), "defined, and its data is not here"

    run("leaderboard", "season", "close", "s1", "--secret", secret)
    assert "1 draws" in run("leaderboard", "season", "check", "s1")


def test_submit_says_what_is_missing(repository: Path) -> None:
    out = repository / "played"
    run("evaluate", "--track", "small-s1", "--policy", "scripted", "--out", str(out))
    for name, file in (("adapters", "adapter_model.safetensors"), ("large", "model.safetensors")):
        Path(name).mkdir()
        with Path(name, file).open("wb") as weights:
            weights.truncate(10**8)  # a hole, which takes no space
    about = ("--title", "T", "--author", "A", "--command", "c", "--prompt", "none")
    reproduced = ("--badge", "reproduced", "--policy")
    for words, message in (
        ((str(repository), "--name", "a", *about), "has no evaluation.json"),
        ((str(out), "--name", "Not A Name", *about), "name"),
        ((str(out), "--name", "reference-a", *about), "names that begin with 'reference-' are for policies"),
        ((str(out), "--name", "a", *about, "--badge", "reproduced"), "needs the folder of the policy"),
        ((str(out), "--name", "a", *about, *reproduced, "adapters"), "is missing: reproduced takes"),
        ((str(out), "--name", "a", *about, *reproduced, "large"), "is too large: reproduced takes"),
        ((str(out), "--name", "a", *about, "--badge", "proved"), "badge"),
        ((str(out), "--name", "a", *about, "--policy", str(out)), "only this badge takes one"),
        ((str(out), "--name", "a", *about, "--open-weights", str(out)), "has no .safetensors file"),
    ):
        result = CliRunner().invoke(app, ["submit", *words])
        assert result.exit_code != 0
        assert message in " ".join(result.output.split()), words
    assert not Path("leaderboards/submissions").exists()
    said = run("leaderboard", "check", "leaderboards/submissions/small-s1/2026-11-23-reference-a", code=1)
    assert "**Refused.** names that begin with 'reference-'" in said
    run("submit", str(out), "--name", "named", *about, "--open-weights", str(out / "evaluation.json"))
    (entry,) = Path("leaderboards/submissions/small-s1").iterdir()
    assert Submission.parse((entry / ABOUT).read_bytes()).model == ModelCard(
        "evaluation.json", sha256=open_weights_digest(out / "evaluation.json")
    )
    log = out / "episodes.jsonl.gz"
    assert [*read_log(entry / log.name)] == [episode.for_board() for episode in read_log(log)]
    log.write_bytes(log.read_bytes()[:-20])
    run("submit", str(out), "--name", "cut", *about, code=2)
    assert [*Path("leaderboards/submissions/small-s1").iterdir()] == [entry]
    assert run("leaderboard", "ci", "main", "main") == "This branch changes no submission.\n"


def test_a_track_is_replaced_only_if_asked(tmp_path: Path) -> None:
    words = ("leaderboard", "track", "mine", "--env", "Sokoban-v0", "--title", "T", "--root", str(tmp_path), "--tasks")
    run(*words, "3")
    before = (tmp_path / "tracks" / "mine.json").read_bytes()
    run(*words, "2", code=2)
    assert (tmp_path / "tracks" / "mine.json").read_bytes() == before
    assert "2 tasks" in run(*words, "2", "--force")
