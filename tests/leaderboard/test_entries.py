"""The project's own entries: which training they come from, and what a failure leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_flow.leaderboard.files import SUBMISSIONS
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.run_folder import SUMMARY
from baselines import entries

BOARD = entries.BOARDS[0]


@pytest.fixture
def entry(tmp_path: Path) -> entries.LeaderboardEntry:
    return next(
        one for one in entries.entries(BOARD, "s0", tmp_path / "work", tmp_path / "boards") if one.name == "tiny-grpo"
    )


def make(entry: entries.LeaderboardEntry, folder: Path) -> None:
    entries.make(BOARD, entry, "s0", folder / "work", folder / "boards")


def test_entries_of_sokoban_train_as_their_prompt_and_paper_say(tmp_path: Path) -> None:
    for one in entries.entries(BOARD, "s0", tmp_path, tmp_path):
        if one.train:
            configs = parse_configs([f"--credit={one.train[1]}", f"--env_id=agentgym_flow/{BOARD.env}", *one.train[4:]])
            run, agent = configs[0], configs[2]
            assert run.template == one.submit[one.submit.index("--prompt") + 1]
            assert agent.generation_batch_size == 256
            assert (agent.epsilon_high, agent.beta) == ((0.2, 0.005) if agent.credit == "cwrpo" else (0.28, 0.0))


def test_submitted_weights_of_another_board_play_official_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2] / "leaderboards"
    official = next(board for board in entries.BOARDS if board.track == "alfworld-unseen")
    by_name = {one.name: one for one in entries.entries(official, "s0", tmp_path, root)}
    assert {"reference-expert", "tiny-grpo", "tiny-rewardflow", "tiny-warm-start"} <= by_name.keys()
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(entries, "_run", lambda *words: seen.append(words))
    entries.make(official, by_name["tiny-rewardflow"], "s0", tmp_path, tmp_path)
    assert [words[0] for words in seen] == ["evaluate", "submit"]
    assert seen[0][4].startswith(f"hf:{root}/submissions/alfworld-s0/")
    assert {"--badge", "replayed"} <= set(seen[1])


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
