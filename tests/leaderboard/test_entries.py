"""The project's own entries: which training they come from, and what a failure leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_flow.leaderboard.places import SUBMISSIONS
from agentgym_flow.training.run import SUMMARY
from baselines import entries

BOARD = entries.BOARDS[0]


@pytest.fixture
def entry(tmp_path: Path) -> entries.LeaderboardEntry:
    return next(one for one in entries.entries(BOARD, tmp_path / "work") if one.name == "tiny-grpo")


def make(entry: entries.LeaderboardEntry, folder: Path) -> None:
    entries.make(BOARD, entry, "s0", folder / "work", folder / "boards")


@pytest.mark.parametrize(("status", "trained"), [("interrupted", True), ("finished", False)])
def test_an_entry_comes_from_a_finished_training(
    entry: entries.LeaderboardEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, trained: bool
) -> None:
    run = Path(entry.train[entry.train.index("--output_dir") + 1])
    run.mkdir(parents=True)
    (run / SUMMARY).write_text(json.dumps({"status": status}))
    seen: list[tuple[str, bool]] = []
    monkeypatch.setattr(entries, "_run", lambda *words: seen.append((words[0], run.exists())))
    make(entry, tmp_path)
    assert seen == [*([("train", False)] if trained else []), ("evaluate", not trained), ("submit", not trained)]


def test_a_failed_evaluation_leaves_the_earlier_entry(
    entry: entries.LeaderboardEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "boards" / SUBMISSIONS / f"{BOARD.track}-s0" / f"2026-01-01-{entry.name}"
    earlier.mkdir(parents=True)

    def fail(*words: str) -> None:
        if words[0] == "evaluate":
            raise RuntimeError("the evaluation failed")

    monkeypatch.setattr(entries, "_run", fail)
    with pytest.raises(RuntimeError):
        make(entry, tmp_path)
    assert earlier.is_dir()
