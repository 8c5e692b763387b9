"""Policies that share episodes, evaluated together: each acts in its own turns, with its own weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import yaml  # type: ignore[import-untyped]
from rich.console import Console
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.dataflow import batches, run
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.records import Claim
from agentgym_flow.dataflow.run import AFTER, BEFORE, POLICY, SETTINGS, Team
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadSetting
from agentgym_flow.prompts import template_for
from agentgym_flow.replay import verify_log
from agentgym_flow.training.config_file import parse_configs, resolved
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.recipe import Recipe
from agentgym_flow.training.run_folder import CONFIG

TURNS = ["a", "b", "b", "a"]
KWARGS = '{"size": 6, "boxes": 1, "min_pushes": 1, "max_steps": 6}'


def trained(path: Path, policy: str, seed: int, turns: list[str] = TURNS, kwargs: str = KWARGS) -> Path:
    """Make the folder of a run that trained `policy`."""
    path.mkdir()
    words = ["--env_id=agentgym_flow/Sokoban-v0", f"--env_kwargs={kwargs}", "--credit=grpo", f"--output_dir={path}"]
    configs = parse_configs([*words, "--threads=1"])
    (path / CONFIG).write_text(yaml.safe_dump(resolved(configs)), "utf-8")
    (path / SETTINGS).write_text(yaml.safe_dump({POLICY: policy, "turns": turns}), "utf-8")
    template = template_for(configs[0].env_id, configs[0].template)
    for offset, name in enumerate(("warm_start", "checkpoint")):
        save_model(path / name, *load_model("tiny", template, seed=seed + offset))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [trained(tmp_path / name, name, seed) for seed, name in enumerate("ab")]


def test_every_policy_acts_in_its_own_turns(runs: list[Path], tmp_path: Path) -> None:
    log = tmp_path / "team.jsonl"
    found, episodes = Team(runs).evaluate(AFTER, greedy=False, num_episodes=8, log=log)
    assert found.tasks == len(episodes) == 8
    for episode in episodes:
        expected = [TURNS[min(number, 3)] for number in range(len(episode.turns))]
        assert [turn.output.policy for turn in episode.turns] == expected
    assert max(len(episode.turns) for episode in episodes) > 2
    assert verify_log(log, jobs=0).ok
    assert [line.meta["policies"] for line in read_log(log) if line.meta] == [
        [turn.output.policy for turn in episode.turns] for episode in episodes
    ]
    swapped = Team(runs[::-1]).evaluate(AFTER, greedy=False, num_episodes=8)[1]
    assert [[turn.action for turn in one.turns] for one in swapped] == [
        [turn.action for turn in one.turns] for one in episodes
    ]
    before = Team(runs).evaluate(BEFORE, greedy=False, num_episodes=8)[1]
    assert [[turn.action for turn in one.turns] for one in before] != [
        [turn.action for turn in one.turns] for one in episodes
    ]


def test_the_command_writes_logs_and_a_summary(runs: list[Path], tmp_path: Path) -> None:
    line = ["dataflow", "evaluate", *map(str, runs), "--episodes", "4", "--before", "--out", str(tmp_path / "team")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "team" / "summary.json").read_text("utf-8"))
    assert list(summary) == ["before_sampled", "before_greedy", "after_sampled", "after_greedy"]
    assert all(f"{name.replace('_', ', ')}: success " in result.output for name in summary)
    assert all(verify_log(tmp_path / "team" / f"{name}.jsonl.gz", jobs=0).matched == 4 for name in summary)


def test_runs_that_are_no_team_are_refused(runs: list[Path], tmp_path: Path) -> None:
    for chosen, message in (
        (runs[:1], "the turns belong to a, b, but the runs trained a"),
        ([runs[0], runs[0]], "give one run for each"),
        ([runs[0], trained(tmp_path / "other", "b", 1, ["a", "b"])], "a different order of turns"),
        ([runs[0], trained(tmp_path / "wide", "b", 1, kwargs='{"size": 7}')], "a different environment"),
        ([tmp_path / "nothing"], "not a run with a dataflow"),
        ([trained(tmp_path / "alone", "a", 1, [])], "does not share its episodes"),
    ):
        with pytest.raises(BadSetting, match=message):
            Team(chosen)
    for file in (runs[0] / "checkpoint").iterdir():
        file.unlink()
    (runs[0] / "checkpoint").rmdir()
    with pytest.raises(BadSetting, match="has no checkpoint yet"):
        Team(runs).evaluate(AFTER, greedy=True, num_episodes=1)


class Cloned(Exception):
    """The end of the test below."""


def test_a_policy_of_a_team_gives_signs_of_life_while_it_clones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A language model may clone for longer than the deadline, after which the others take a silent one for dead."""
    heard = threading.Event()

    class Listening(Manager):
        def beat(self, claim: Claim) -> None:
            super().beat(claim)
            heard.set()

    def clone(_: Recipe, route: Callable[..., str] | None) -> None:
        assert heard.wait(20)
        raise Cloned

    manager = Listening()
    engine = SimpleNamespace(flow=manager, start=lambda workers: None, close=lambda: None)
    monkeypatch.setattr(run, "engine_of", lambda *_: nullcontext(engine))
    monkeypatch.setattr(batches, "BEAT", 0.01)
    monkeypatch.setattr(Recipe, "clone_behaviour", clone)
    words = ["--env_id=agentgym_flow/Sokoban-v0", f"--env_kwargs={KWARGS}", f"--output_dir={tmp_path / 'a'}"]
    with pytest.raises(Cloned):
        run.train(parse_configs([*words, "--threads=1"]), FlowConfig(turns=["a", "b"]), "http://x", "a", Console())
    assert manager.status()["streams"]["a+b"]["policies"]["a"]["epoch"] == 1
