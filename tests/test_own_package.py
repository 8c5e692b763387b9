"""The environment of the docs as somebody else's package: built as a wheel, installed beside ours, and used whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mazes"
version = "1.0"

[project.entry-points."agentgym_flow.plugins"]
mazes = "mazes"

[tool.hatch.build.targets.wheel]
packages = ["mazes"]
"""
GUIDED = '''

class Guided(Maze):
    """The same maze with an expert and a key that merges states."""

    env_id = "mazes/Guided-v0"

    def state_key(self):
        return "end:success:out" if self.place == len(self.ways) else str(self.place)

    def expert_action(self):
        return self.ways[self.place] if self.place < len(self.ways) else None


gym.register(Guided.env_id, entry_point="mazes:Guided")
'''
SHORT = {
    "threads": 1,
    "warm_start_levels": 12,
    "warm_start_updates": 20,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "steps_per_generation": 1,
    "max_steps": 3,
    "eval_episodes": 6,
    "validations": 0,
    "save_strategy": "no",
}

Program = Callable[..., str]


@pytest.fixture(scope="module")
def program(root: Path, archives: Any, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Runs the Python of an environment that has the wheels of this package and of the mazes."""
    place = tmp_path_factory.mktemp("own_package")
    package = place / "source" / "mazes"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text((root / "tests" / "maze_of_others.py").read_text("utf-8") + GUIDED)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", place / "dist", package.parent]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    wheels = [archives.wheel, *(place / "dist").glob("*.whl")]
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", *wheels], check=True)
    (site,) = (place / "venv" / "lib").glob("python*/site-packages")
    behind = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(behind) + "\n")  # after what is installed here
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    home = tmp_path_factory.mktemp("home")

    def run(*words: object, lines: str = "") -> str:
        done = subprocess.run(
            [python, *map(str, words)], cwd=home, env=surroundings, input=lines, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    where = run("-c", "import agentgym_flow, mazes; print(agentgym_flow.__file__, mazes.__file__)")
    assert where.count(str(place)) == 2, where
    return run


def command(program: Program, *words: object, lines: str = "") -> str:
    return program("-m", "agentgym_flow", *words, lines=lines)


def test_it_is_listed_played_evaluated_and_compared(program: Program, tmp_path: Path) -> None:
    listed = command(program, "list")
    assert "Guided-v0" in listed
    assert "Maze-v0" in listed
    assert "q quits" in command(
        program, "play", "Guided-v0", "--log", tmp_path / "mine.jsonl", lines="left\nright\nq\n"
    )
    logs = []
    for policy in ("random", "expert"):
        logs.append(tmp_path / f"{policy}.jsonl.gz")
        words = ["Guided-v0", "--policy", policy, "--episodes", 20, "--log", logs[-1], "--json"]
        told = json.loads(command(program, "evaluate", *words))
        assert told["episodes"] == 20
    assert told["success"] == 1.0
    assert "A - B: -" in command(program, "compare", *logs)
    for log in (*logs, tmp_path / "mine.jsonl"):
        command(program, "verify", log)
    command(program, "view", logs[0], "--out", tmp_path / "page.html")
    assert "Guided-v0" in (tmp_path / "page.html").read_text("utf-8")
    rows = tmp_path / "rows.jsonl"
    command(program, "collect", "Guided-v0", "--policy", "expert", "--episodes", 3, "--format", "sft", "--out", rows)
    assert len(rows.read_text("utf-8").splitlines()) == 12


@pytest.mark.parametrize("name", ["Guided-v0", "Maze-v0"])
def test_the_tiny_policy_is_trained_on_it(program: Program, name: str, tmp_path: Path) -> None:
    settings = [f"--{key}={value}" for key, value in {**SHORT, "output_dir": tmp_path / "run"}.items()]
    said = " ".join(command(program, "train", "gigpo", "--env", name, *settings).split())
    assert ("has no expert, so the warm start imitates random actions" in said) is (name == "Maze-v0")
    assert "episodes verified" in said
    checkpoint = f"hf:{tmp_path / 'run' / 'checkpoint'}"
    told = command(program, "evaluate", name, "--policy", checkpoint, "--episodes", 3, "--json")
    assert json.loads(told)["episodes"] == 3


def test_it_is_validated(program: Program) -> None:
    told = json.loads(command(program, "validate", "Guided-v0", "--no-train", "--json"))
    assert told["passed"]
    assert {one["status"] for one in told["findings"] if one["essential"]} == {"ok", "skipped"}
