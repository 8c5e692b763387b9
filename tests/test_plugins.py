"""An environment of another package, written in 25 lines, is listed, played, evaluated and verified."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import gymnasium as gym
import pytest
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.core import registry as plugins
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import UnknownEnvironment
from agentgym_flow.rewards import RewardFlow

MAZE = Path(__file__).with_name("maze_of_others.py")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory has the module of the maze, and nobody has imported it."""
    (tmp_path / "my_maze.py").write_text(MAZE.read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_maze", None)
    gym.registry.pop("Maze-v0", None)
    plugins._modules.pop("Maze-v0", None)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.output


def test_it_is_evaluated_and_verified(here: Path) -> None:
    played = json.loads(
        run("evaluate", "my_maze:Maze-v0", "--episodes", "30", "--log", "log.jsonl", "--env-arg", "length=3", "--json")
    )
    assert (played["env_id"], played["episodes"]) == ("Maze-v0", 30)
    assert 0 < played["success"] < 1
    assert "30" in run("verify", "log.jsonl")
    assert "Maze-v0" in run("list")
    (here / "log.jsonl").write_text((here / "log.jsonl").read_text().replace('"success":true', '"success":false', 1))
    run("verify", "log.jsonl", code=1)


def test_the_command_that_is_advised_verifies_the_log(here: Path) -> None:
    said = run("evaluate", "my_maze:Maze-v0", "--episodes", "3", "--log", "log.jsonl")
    advised = said.rpartition("Check it with: agentgym-flow ")[2].split()
    assert advised == ["verify", "log.jsonl", "--import", "my_maze"]
    run(*advised)
    said = run("collect", "my_maze:Maze-v0", "--policy", "random", "--episodes", "3", "--out", "kept.jsonl")
    assert said.split()[-2:] == ["--import", "my_maze"]


def test_it_has_a_track_and_an_entry(here: Path) -> None:
    track = "leaderboard track tiny-maze --env my_maze:Maze-v0 --title Maze --tasks 5 --env-arg length=2"
    assert "5 tasks" in run(*track.split())
    run("evaluate", "--track", "tiny-maze", "--import", "my_maze", "--policy", "random", "--out", "run")
    about = ["--name", "walk", "--title", "Walk", "--author", "A", "--prompt", "none", "--command", "walk"]
    assert "Accepted" in run("submit", "run", *about, "--import", "my_maze")


def test_a_log_does_not_import_what_it_names(here: Path) -> None:
    run("evaluate", "my_maze:Maze-v0", "--episodes", "3", "--log", "log.jsonl")
    for named in ("Maze-v0", "my_maze:Maze-v0"):
        (here / "named.jsonl").write_text((here / "log.jsonl").read_text().replace('"Maze-v0"', f'"{named}"'))
        words = ["-m", "agentgym_flow", "verify", "named.jsonl"]
        bare = subprocess.run([sys.executable, *words], check=False, capture_output=True, text=True)
        assert bare.returncode == 1
        assert "Unknown environment" in bare.stdout + bare.stderr
    words = ["-m", "agentgym_flow", "verify", "log.jsonl", "--import", "my_maze"]
    assert subprocess.run([sys.executable, *words], check=False, capture_output=True).returncode == 0


def test_what_is_not_written_is_right_though_slower(here: Path) -> None:
    plugins.import_environments("my_maze")
    env = make_text_env("Maze-v0", length=2)
    observation, info = env.reset(seed=1)
    start = info["state_key"]
    assert (info["admissible_actions"], info["score"], env.describe_state()) == ([], 0.0, observation)
    assert (env.expert_action(), env.has_expert) == (None, False)
    _, _, _, _, info = env.step("what?")
    assert (info["action_valid"], info["state_key"]) == (False, start)
    keys = {start}
    done = False
    while not done:
        _, reward, done, _, info = env.step(env.unwrapped.ways[env.unwrapped.place])  # type: ignore[attr-defined]
        assert info["state_key"] not in keys, "no two ways are merged"
        keys.add(info["state_key"])
    assert (reward, info["success"], info["state_key"].startswith("end:success:")) == (1.0, True, True)
    assert env.reset(seed=1)[1]["state_key"] == start
    assert env.reset(seed=1)[1]["task_key"] != env.reset(options={"task": env.task + 1})[1]["task_key"]


def test_it_gets_dense_rewards(here: Path) -> None:
    plugins.import_environments("my_maze")
    env = RewardFlow(gym.make("Maze-v0", length=2))
    for _ in range(2):
        env.reset(seed=1)
        done, rewards = False, []
        while not done:
            inner = env.unwrapped
            _, reward, done, _, _ = env.step(inner.ways[inner.place])  # type: ignore[attr-defined]
            rewards.append(float(reward))
    assert rewards[0] > 0, "the second time the way is known"


def test_entry_points_are_read_and_a_broken_one_is_left_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.append(str(here))
    points = [EntryPoint("broken", "no_such_module", plugins.GROUP), EntryPoint("maze", "my_maze", plugins.GROUP)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == plugins.GROUP else [])
    plugins.load_plugins.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert make_text_env("Maze-v0").num_tasks > 0
    assert any("plugin broken" in str(one.message) for one in said)
    plugins.load_plugins.cache_clear()


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "{}['maze']", "def maze(:", "import no_such_module_here"])
@pytest.mark.parametrize(
    "words",
    [
        ("verify", "log.jsonl", "--import", "failing"),
        ("evaluate", "failing:Foo-v0"),
        ("evaluate", "Sokoban-v0", "--policy", "failing:act"),
        ("evaluate", "Canvas-v0", "--env-arg", 'operators=["failing:Maze"]'),
    ],
)
def test_a_module_that_fails_on_import_is_an_error_that_names_its_line(
    words: tuple[str, ...], code: str, here: Path
) -> None:
    (here / "failing.py").write_text(code)
    said = run(*words, code=2)
    raised = "SystemExit: 0|KeyError: 'maze'|SyntaxError: |ModuleNotFoundError: No module named 'no_such_module_here'"
    assert re.match(f"error: module 'failing' raised ({raised})", said)
    assert "(failing.py, line 1)" in said
    assert said.count("\n") == 1


def test_a_plugin_that_exits_is_left_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "exits.py").write_text("raise SystemExit(0)")
    sys.path.append(str(here))
    monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint("exits", "exits", plugins.GROUP)])
    plugins.load_plugins.cache_clear()
    with pytest.warns(UserWarning, match="plugin exits .* is left out: SystemExit: 0"):
        plugins.load_plugins()
    plugins.load_plugins.cache_clear()


def test_modules_and_environments_that_are_not_there_are_named(here: Path) -> None:
    assert "there is no module 'no_such_module'" in run("evaluate", "no_such_module:Maze-v0", code=2)
    assert "Unknown environment 'Cellar-v0'" in run("evaluate", "my_maze:Cellar-v0", code=2)
    with pytest.raises(UnknownEnvironment):
        make_text_env("my_maze:Maze-v0")
