"""The tiny policy learns in an environment that has no prompt and no settings of its own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from rich.console import Console
from short_run import train
from typer.testing import CliRunner

import agentgym_flow.testing.example  # noqa: F401 - registers the cave
from agentgym_flow.cli import app
from agentgym_flow.core import EnvCard
from agentgym_flow.core import registry as plugins
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import evaluate
from agentgym_flow.policies import make_policy
from agentgym_flow.prompts import FIXED, WordTemplate
from agentgym_flow.prompts.words import MOST_WORDS
from agentgym_flow.training import run_config
from agentgym_flow.training.command import run_command
from agentgym_flow.training.config_file import packaged_config, parse_configs
from agentgym_flow.training.models import load_model
from agentgym_flow.training.run_config import template_of
from agentgym_flow.training.tiny import CONTEXT, UNKNOWN, collect_vocabulary
from agentgym_flow.training.warm_start import check_demonstrations, fit_demonstrations

CAVE = "example/Cave-v0"


@pytest.fixture
def maze(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of the maze of the docs, which has no expert."""
    (tmp_path / "my_maze.py").write_text((root / "tests" / "maze_of_others.py").read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plugins.import_environments("my_maze")
    yield "Maze-v0"
    sys.modules.pop("my_maze", None)
    gym.registry.pop("Maze-v0", None)
    plugins._modules.pop("Maze-v0", None)


def cave(**kwargs: Any) -> Any:
    return make_text_env(CAVE, **kwargs)


def test_the_vocabulary_is_what_play_and_manual_show() -> None:
    found = collect_vocabulary(cave)
    assert found[: len(FIXED)] == FIXED
    assert len(set(found)) == len(found)
    assert {"note", "door", "left", "read", "say", "[", "says"} <= {*found}
    assert "arguments" in found  # of the manual
    assert found.index("you") < found.index("arguments")
    assert collect_vocabulary(cave) == found
    assert MOST_WORDS + 2 <= CONTEXT


def test_a_model_knows_its_words_and_takes_others_for_one(tmp_path: Path) -> None:
    run, _, _ = parse_configs(["--env_id", CAVE, "--output_dir", str(tmp_path / "run")])
    saved = tmp_path / "vocabulary.json"
    template = template_of(run, saved)
    assert isinstance(template, WordTemplate)
    _, tokenizer = load_model("tiny", template)
    assert tokenizer.tokenize("you see zyzzyva #3 choose:") == ["you", "see", UNKNOWN, "#3", "choose:"]
    saved.write_text(json.dumps([*FIXED, "zyzzyva"]))
    assert template_of(run, saved).vocabulary == (*FIXED, "zyzzyva")  # type: ignore[attr-defined]


def test_what_proposes_nothing_is_refused(maze: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym.registry[maze].entry_point, "candidates", lambda self: [])
    with pytest.raises(BadSetting, match="proposes no actions"):
        collect_vocabulary(lambda: make_text_env(maze))


def test_an_environment_names_its_settings(maze: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(packaged_config(maze)).endswith("any_tiny.yaml")
    assert packaged_config("no/Such-v0") is None
    assert parse_configs(["--env_id", maze, "--model", "some/Model-1B"])[2].layout == "conversation"  # large/any.yaml
    monkeypatch.setattr(gym.registry[maze].entry_point, "card", EnvCard(train_config="maze"))
    with pytest.raises(BadSetting, match="maze is neither a file"):
        parse_configs(["--env_id", maze, "--output_dir", "run"])
    (tmp_path / "maze.yaml").write_text("seed: 17\noutput_dir: run\n")
    assert parse_configs(["--env_id", maze])[2].seed == 17


def test_a_default_is_lowered_for_a_small_environment_and_a_chosen_number_refused(
    maze: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gym.registry[maze].entry_point, "num_tasks", 30)
    configs = parse_configs(["--env_id", maze, "--output_dir", "run"])
    said = Console(file=io.StringIO())
    assert run_command(configs, said, lambda *_: None) == 0
    assert said.file.getvalue() == "warm_start_levels is 30 instead of 100: the split 'train' has 30 tasks.\n"
    assert configs[1].warm_start_levels == 30
    told = CliRunner().invoke(app, ["train", "grpo", "--env", maze, "--output_dir", "run", "--dry-run"])
    assert (told.exit_code, told.stderr) == (0, said.file.getvalue())
    assert fit_demonstrations(*configs[:2]) == ""
    (tmp_path / "mine.yaml").write_text(f"env_id: {maze}\noutput_dir: run\nwarm_start_levels: 31\n")
    for words in (["--config", "mine.yaml"], ["--env_id", maze, "--warm-start-levels=31", "--output_dir", "run"]):
        run, warm_start, _ = parse_configs(words)
        assert fit_demonstrations(run, warm_start) == ""
        with pytest.raises(BadSetting, match="warm_start_levels is 31, but split 'train' has only 30 tasks"):
            check_demonstrations(run.make_env(), warm_start.warm_start_levels, 1)


@pytest.mark.heavy
def test_it_is_cloned_trained_and_evaluated(tmp_path: Path) -> None:
    result = train(CAVE, "gigpo", tmp_path / "run", threads=1)
    assert result.exit_code == 0, result.output
    assert "has no expert" not in result.output
    checkpoint = tmp_path / "run" / "checkpoint"
    policy = make_policy(f"hf:{checkpoint}", CAVE)
    assert evaluate(policy, CAVE, num_episodes=4)[0].episodes == 4


@pytest.mark.heavy
def test_without_an_expert_it_starts_from_the_form_of_an_answer(
    maze: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    learn = run_config.collect_vocabulary
    monkeypatch.setattr(run_config, "collect_vocabulary", lambda make: (made.append(1), learn(make))[1])
    result = train(maze, "grpo", tmp_path / "run", warm_start_updates=40, threads=1)
    assert result.exit_code == 0, result.output
    assert "Maze-v0 has no expert, so the warm start imitates random actions" in " ".join(result.output.split())
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["warm_start"]["losses"][-1] < 1.5 < told["warm_start"]["losses"][0]
    assert made == [1]
