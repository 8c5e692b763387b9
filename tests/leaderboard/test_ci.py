"""What CI decides about branches of a real git repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from entries import ENTRY, PLACE, TRACK, YAML, Git, files, lines, packed, track, write
from msgspec.structs import replace
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.leaderboard import ci
from agentgym_flow.leaderboard.ci import Decision
from agentgym_flow.leaderboard.files import ROOT
from agentgym_flow.leaderboard.season import new_season
from agentgym_flow.leaderboard.submission import ABOUT
from agentgym_flow.leaderboard.verdict import Mean, SubmissionVerdict

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


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


def test_a_branch_with_several_merge_bases_is_refused(git: Git) -> None:
    """It takes main without its new file, and main takes the branch: from one of two bases only the entry is new."""
    git.branch(lambda: None)
    write(git.path, {"more.md": b"more"})
    git.commit()
    git.run("tag", "before")
    git.run("merge", "-q", "-m", "theirs", "theirs")
    git.run("checkout", "-q", "theirs")
    git.run("merge", "-q", "-s", "ours", "-m", "main without its file", "before")
    git.add(files())
    git.commit()
    git.run("checkout", "-q", "main")
    decision = git.decide()
    assert "have 2 merge bases instead of one" in decision.refused
    git.run("checkout", "-q", "--orphan", "alone")
    git.add(files())
    git.commit()
    git.run("checkout", "-q", "main")
    assert "have 0 merge bases instead of one" in git.decide("alone").refused


def test_what_a_merge_changes_is_judged(git: Git) -> None:
    git.branch(lambda: git.add(files()))
    git.branch(lambda: git.add(files() | {"README.md": b"Another\n"}), "other")
    git.branch(lambda: git.add(files(), f"{ROOT}/submissions/{TRACK}/2026-11-24-late"), "late")
    git.run("merge", "-q", "other")
    assert "cannot be merged without conflicts" in git.decide().refused
    git.run("cherry-pick", "late")
    assert "adds 0 entries" in git.decide("late").refused, "it is already there"


def test_an_older_git_is_named(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git.branch(lambda: git.add(files()))
    run = ci.subprocess.run

    def old(command: list[str], **settings: object) -> object:
        if "merge-tree" in command:
            return SimpleNamespace(returncode=129, stdout=b"", stderr=b"usage: git merge-tree <base-tree> <branch1>")
        return run(command, **settings)  # type: ignore[call-overload]

    monkeypatch.setattr(ci.subprocess, "run", old)
    with pytest.raises(BadSetting, match=r"git 2\.38 or newer"):
        git.decide()


@pytest.mark.parametrize(("today", "ok"), [("11-21", False), ("11-22", True), ("11-30", True), ("12-01", False)])
def test_an_entry_has_the_date_of_its_submission(git: Git, today: str, ok: bool) -> None:
    git.branch(lambda: git.add(files()))
    decision = git.decide(today=date.fromisoformat(f"2026-{today}"))
    assert decision.ok == ok
    assert ok or f"dated 2026-11-23, and today is 2026-{today}" in decision.refused


def test_a_name_belongs_to_the_account_that_used_it_first(git: Git) -> None:
    for account, when in (("alice", "2026-11-20T00:00:00Z"), ("bob", "2026-11-21T00:00:00Z")):
        verdict = SubmissionVerdict("elsewhere/2026-11-20-expert", account=account, merged=when)
        verdict.write(git.path / ROOT / f"verdicts/elsewhere/2026-11-20-expert-of-{account}.json")
    git.commit()
    git.branch(lambda: git.add(files()))
    for account in ("bob", ""):
        decision = git.decide(account=account)
        assert not decision.ok
        assert "'expert' belongs to account alice, which used it first" in decision.summary()
    verdict = git.decide(account="alice").verdict
    assert verdict is not None
    assert (verdict.accepted, verdict.account) == (True, "alice")
    assert git.decide().ok, "who asks without an account is not checked"
    SubmissionVerdict("elsewhere/2026-11-19-expert").write(git.path / ROOT / "verdicts/elsewhere/2026-11-19-ours.json")
    git.commit()
    assert "'expert' belongs to this project" in git.decide(account="alice").summary()


def test_what_is_said_about_tasks_after_the_merge_is_true(tmp_path: Path) -> None:
    season, seed, secret = new_season("s1", "2026-01-01", "2026-12-31")
    verdict = SubmissionVerdict(f"{TRACK}/2026-11-23-a", accepted=True, badge="reproduced", score=Mean(1, 1, 1))
    verdict = replace(verdict, season="ab" * 32, rehearsal=True)

    def said(about: SubmissionVerdict, name: str) -> str:
        replace(track(), season=name).write(tmp_path / f"tracks/{TRACK}.json")
        return Decision.on(about, tmp_path).summary()

    season.opened(seed).write(tmp_path / "seasons/s1.json")
    assert "After the merge it plays other tasks" in said(verdict, "s1")
    season.opened(seed).closed(secret).write(tmp_path / "seasons/s1.json")
    assert "These tasks are public, and they are those of the board." in said(verdict, "s1")
    assert "These tasks are public" in said(verdict, "")
    assert "tasks" not in said(replace(verdict, badge="replayed", season=""), "s1")


def test_an_entry_whose_official_data_is_not_here_gets_a_decision(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object, **__: object) -> None:
        raise BadData("the official data 'boxoban' is not on this machine")

    git.branch(lambda: git.add(files()))
    monkeypatch.setattr(ci, "judge", judge)
    decision = git.decide()
    assert not decision.ok
    assert "is not on this machine. Whoever has this data checks and merges the entry" in decision.summary()


def test_a_commit_that_is_not_there_is_refused(git: Git) -> None:
    for name in ("nothing", "--output=/tmp/x", "main:README.md"):
        with pytest.raises(BadSetting, match="git rev-parse"):
            git.decide(name)


def test_the_command_writes_its_verdict_and_fails_when_it_refuses(git: Git, tmp_path: Path) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    about, folder = YAML.replace("2026-11-23", today).encode(), f"{ROOT}/submissions/{TRACK}/{today}-expert"
    git.branch(lambda: git.add(files() | {ABOUT: about}, folder))
    line = ["leaderboard", "ci", "main", "theirs", "--repository", str(git.path), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*line, "--account", "Somebody", "--jobs", "0"])
    assert result.exit_code == 0, result.output
    verdict = SubmissionVerdict.read(tmp_path / "out" / "verdict.json")
    assert (verdict.accepted, verdict.account) == (True, "somebody")
    assert "Accepted" in (tmp_path / "out" / "summary.md").read_text("utf-8")
    git.branch(lambda: git.add(files(packed([])) | {ABOUT: about}, folder), "worse")
    line[3] = "worse"
    result = CliRunner().invoke(app, [*line, "--jobs", "0"])
    assert result.exit_code == 1
    assert "Refused" in result.output


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_file_name_that_is_no_text_is_refused(git: Git, tmp_path: Path) -> None:
    def add() -> None:
        name = os.fsencode(git.add(files())) + b"/run\xff.py"
        Path(os.fsdecode(name)).write_bytes(b"x")
        os.chmod(name, 0o755)

    git.branch(add)
    line = ["leaderboard", "ci", "main", "theirs", "--repository", str(git.path), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, line).exit_code == 1
    assert "run\\udcff.py' must be a plain file" in (tmp_path / "out" / "summary.md").read_text("utf-8")


WORKFLOW = Path(__file__).parents[2] / ".github/workflows/leaderboard.yml"


@pytest.mark.parametrize("accepted", [False, True])
def test_the_workflow_passes_a_branch_without_a_submission(tmp_path: Path, accepted: bool) -> None:
    (step,) = re.findall(r"^ +if test -f decision/verdict.json;.*$", WORKFLOW.read_text("utf-8"), re.MULTILINE)
    write(tmp_path / "decision", {"verdict.json": b""} if accepted else {})
    subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env={"GITHUB_OUTPUT": "out"}, check=True)
    assert (tmp_path / "out").is_file() == accepted


def test_the_workflow_replays_nothing_without_the_sandbox() -> None:
    workflow = WORKFLOW.read_text("utf-8")
    commands = re.findall(r"agentgym-flow leaderboard (?:ci|publish|render)\b[^&\n]*", workflow)
    assert len(commands) >= 3
    assert all("--require-sandbox" in command for command in commands), commands
