"""Generated games as official files: what is read back is what was generated, and the walkthrough wins."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.alfworld.official import read_game
from agentgym_flow.envs.alfworld.tasks import export_game, task_problem
from agentgym_flow.errors import UnknownTask


@pytest.mark.parametrize(("split", "folder"), [("train", "train"), ("valid", "valid_seen"), ("test", "valid_unseen")])
def test_a_written_game_is_the_generated_one(split: str, folder: str, tmp_path: Path) -> None:
    path = export_game(tmp_path, split, 4)
    assert path.relative_to(tmp_path).parts[0] == folder
    read, (problem, words) = read_game(path), task_problem(split, 4)
    assert (read.problem, read.words, read.solvable) == (problem, words, True)
    assert read.trajectory is not None
    assert read.trajectory["task_type"] == path.parts[-3].partition("-")[0]
    env = make_text_env("agentgym_flow/ALFWorld-v0", data=tmp_path, split=split)
    env.reset()
    for number, command in enumerate(read.walkthrough, 1):
        _, _, terminated, _, info = env.step(command)
        assert info["action_valid"]
        assert terminated == (number == len(read.walkthrough))


def test_there_is_no_game_beyond_the_last(tmp_path: Path) -> None:
    with pytest.raises(UnknownTask):
        export_game(tmp_path, "valid", 500)


def test_the_command_writes_a_split(tmp_path: Path) -> None:
    run = CliRunner().invoke(
        app, ["data", "export", "alfworld", str(tmp_path), "--split", "valid_unseen", "--tasks", "3"]
    )
    assert run.exit_code == 0, run.output
    assert "3 games of test" in run.output
    games = sorted((tmp_path / "valid_unseen").rglob("game.tw-pddl"))
    assert len(games) == 3
    assert json.loads(games[0].read_text("ascii"))["solvable"] is True
    run = CliRunner().invoke(app, ["data", "export", "alfworld", str(tmp_path / "many"), "--tasks", "99999"])
    assert (run.exit_code, "tasks, so 99999 cannot be exported" in run.stderr) == (2, True)
    assert not (tmp_path / "many").exists()


def test_the_command_refuses_an_environment_without_files(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["data", "export", "canvas", str(tmp_path)])
    assert run.exit_code != 0
    assert not list(tmp_path.iterdir())


def test_an_empty_folder_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["data", "export", "alfworld", ""])
    assert run.exit_code == 2
    assert "FOLDER is empty" in run.output
    assert not list(tmp_path.iterdir())
