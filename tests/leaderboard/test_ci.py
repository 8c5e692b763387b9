"""What CI decides about branches of a real git repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from entries import PLACE, TRACK, board, files, lines, packed, write
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.ci import Decision, Repository, decide
from agentgym_flow.leaderboard.files import ROOT
from agentgym_flow.leaderboard.verdict import SubmissionVerdict

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ENTRY = f"{ROOT}/submissions/{PLACE[0]}/{PLACE[1]}"


class Git:
    """A repository with a board on its branch `main`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.run("init", "-q", "-b", "main")
        board(path / ROOT)
        write(path, {"README.md": b"# Ours\n"})
        self.commit()

    def run(self, *words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=self.path, check=True, capture_output=True)

    def commit(self) -> None:
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", "a change")

    def branch(self, change: Callable[[], object], name: str = "theirs") -> str:
        self.run("checkout", "-q", "-b", name, "main")
        change()
        self.commit()
        self.run("checkout", "-q", "main")
        return name

    def decide(self, name: str = "theirs") -> Decision:
        return decide(Repository(self.path), "main", name, jobs=0)

    def add(self, content: dict[str, bytes], folder: str = ENTRY) -> Path:
        return write(self.path / folder, content)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


def test_one_new_entry_is_accepted(git: Git) -> None:
    git.branch(lambda: git.add(files()))
    decision = git.decide()
    assert decision.ok
    assert decision.verdict is not None
    assert decision.verdict.submission == "/".join(PLACE)
    assert "**Accepted** as *replayed*" in decision.summary()
    assert not (git.path / ENTRY).exists(), "nothing is checked out"


def test_what_main_has_done_since_does_not_count(git: Git) -> None:
    git.branch(lambda: git.add(files()))
    write(git.path, {"more.md": b"more"})
    git.commit()
    assert git.decide().ok


def test_a_branch_without_submissions_is_none_of_our_business(git: Git) -> None:
    git.branch(lambda: write(git.path, {"README.md": b"# Theirs\n"}))
    decision = git.decide()
    assert decision.ok
    assert decision.verdict is None


def test_a_bad_entry_is_refused_with_its_reason(git: Git) -> None:
    git.branch(lambda: git.add(files(packed(lines()[1:]))))
    decision = git.decide()
    assert not decision.ok
    assert "1 of 12 episodes are missing" in decision.summary()


def link(git: Git) -> None:
    (git.add(files()) / "README.md").unlink()
    os.symlink("/etc/passwd", git.path / ENTRY / "README.md")


def executable(git: Git) -> None:
    (git.add(files()) / "README.md").chmod(0o755)


CHANGES: dict[str, tuple[Callable[[Git], object], str]] = {
    "another file": (lambda git: (git.add(files()), write(git.path, {"setup.py": b""})), "also changes 'setup.py'"),
    "a workflow": (lambda git: (git.add(files()), write(git.path, {".github/workflows/x.yml": b""})), "also changes"),
    "the track": (
        lambda git: (git.add(files()), write(git.path, {f"{ROOT}/tracks/{TRACK}.json": b"{}"})),
        "also changes",
    ),
    "a verdict": (
        lambda git: (git.add(files()), write(git.path, {f"{ROOT}/verdicts/{TRACK}/{PLACE[1]}.json": b"{}"})),
        "CI alone writes it",
    ),
    "a verdict alone": (lambda git: write(git.path, {f"{ROOT}/verdicts/{TRACK}/x.json": b"{}"}), "CI alone writes it"),
    "the site": (lambda git: write(git.path, {f"{ROOT}/site/index.html": b"me first"}), "CI alone writes it"),
    "two entries": (
        lambda git: (git.add(files()), git.add(files(), f"{ROOT}/submissions/{TRACK}/2026-11-23-again")),
        "adds 2 entries",
    ),
    "a link": (link, "must be a plain file, and has the mode 120000"),
    "a program": (executable, "must be a plain file, and has the mode 100755"),
    "an unknown file": (lambda git: git.add(files(**{"policy/code.py": b""})), "is not a file of a submission"),
    "a large file": (lambda git: git.add(files(os.urandom(21 << 20))), "more than"),
    "an odd name": (lambda git: git.add(files(), f"{ROOT}/submissions/{TRACK}/2026-11-23-UP"), "also changes"),
    "many files": (lambda git: write(git.path, {f"{ENTRY}/{n}": b"" for n in range(100)}), "changes 100 files"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_else_a_branch_changes_is_refused(git: Git, name: str) -> None:
    change, message = CHANGES[name]
    git.branch(lambda: change(git))
    decision = git.decide()
    assert not decision.ok
    assert decision.verdict is None
    assert message in decision.refused


def test_an_entry_stays_as_it_is(git: Git) -> None:
    git.add(files())
    git.commit()
    git.branch(lambda: git.add({"README.md": b"better\n"}), "modified")
    assert "already exists" in git.decide("modified").refused
    git.branch(lambda: (git.path / ENTRY / "README.md").unlink(), "removed")
    assert "already exists" in git.decide("removed").refused
    git.branch(lambda: git.add({"policy/config.json": b"{}"}), "extended")
    assert "already exists" in git.decide("extended").refused


def test_a_commit_that_is_not_there_is_refused(git: Git) -> None:
    for name in ("nothing", "--output=/tmp/x", "main:README.md"):
        with pytest.raises(BadSetting, match="git rev-parse"):
            git.decide(name)


def test_the_command_writes_its_verdict_and_fails_when_it_refuses(git: Git, tmp_path: Path) -> None:
    git.branch(lambda: git.add(files()))
    line = ["leaderboard", "ci", "main", "theirs", "--repository", str(git.path), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*line, "--jobs", "0"])
    assert result.exit_code == 0, result.output
    assert SubmissionVerdict.read(tmp_path / "out" / "verdict.json").accepted
    assert "Accepted" in (tmp_path / "out" / "summary.md").read_text("utf-8")
    git.branch(lambda: git.add(files(packed([]))), "worse")
    line[3] = "worse"
    result = CliRunner().invoke(app, [*line, "--jobs", "0"])
    assert result.exit_code == 1
    assert "Refused" in result.output


def test_the_workflow_replays_nothing_without_the_sandbox() -> None:
    workflow = (Path(__file__).parents[2] / ".github/workflows/leaderboard.yml").read_text("utf-8")
    commands = re.findall(r"agentgym-flow leaderboard (?:ci|publish)\b[^&\n]*", workflow)
    assert len(commands) >= 2
    assert all("--require-sandbox" in command for command in commands), commands
