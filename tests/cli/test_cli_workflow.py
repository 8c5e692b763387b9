"""`workflow draw` and `workflow check`, and `view` of a log whose environment tells workflows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.core import Stream, TextEnv, Transition
from agentgym_flow.envs.canvas.operators import STANDARD
from agentgym_flow.envs.canvas.workflow.rules import PUBLISHED
from agentgym_flow.envs.canvas.workflow.run import plain_graph
from agentgym_flow.envs.canvas.workflow.text import read
from agentgym_flow.episodes import EpisodeRecorder, write_log
from agentgym_flow.report import workflow_svg

LINE = "Plan -> [Custom, Programmer] -> Verify ? done : Revise"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the program in an empty folder; return exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*arguments: object):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def names(document: str) -> list[str]:
    texts = ET.fromstring(document).iter("{http://www.w3.org/2000/svg}text")
    return [text.text or "" for text in texts if text.get("class") == "name"]


# ---------------------------------------------------------------- draw
def test_draw_writes_a_picture_or_a_page(run):
    assert run("workflow", "draw", LINE, "--out", "w.svg").stdout == "w.svg\n"
    drawn = Path("w.svg").read_text("utf-8")
    assert drawn == workflow_svg(plain_graph(read(LINE)))
    assert sorted(names(drawn)) == ["Custom", "Plan", "Programmer", "Revise", "Verify"]
    run("workflow", "draw", LINE, "--out", "deep/down.svg", "--down")
    assert Path("deep/down.svg").read_text("utf-8") == workflow_svg(plain_graph(read(LINE)), direction="down")
    run("workflow", "draw", 'Custom "Mind <b>the</b> units."', "--out", "w.html")
    page = Path("w.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "Mind &lt;b&gt;the&lt;/b&gt; units." in page


def test_the_published_language_writes_the_case_of_a_failure_first(run):
    run("workflow", "draw", "Verify ? Revise : done", "--out", "w.svg", "--published")
    drawn = Path("w.svg").read_text("utf-8")
    assert drawn == workflow_svg(plain_graph(read("Verify ? Revise : done", PUBLISHED)))
    assert drawn == workflow_svg(plain_graph(read("Verify ? done : Revise")))


def test_a_workflow_larger_than_the_rules_allow_can_be_drawn(run):
    run("workflow", "draw", " -> ".join(["Custom"] * 60), "--out", "w.svg")
    assert len(names(Path("w.svg").read_text("utf-8"))) == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Plam", "--out", "w.svg"), "Did you mean Plan?"),
        (("Plan ->", "--out", "w.svg"), "an operator is missing"),
        (("Plan", "--out", "w.png"), "ends in .svg or .html"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run, arguments, message):
    result = run("workflow", "draw", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(Path().iterdir()) == []


# ---------------------------------------------------------------- check
def test_check_says_what_a_workflow_is_made_of(run):
    result = run("workflow", "check", '[Custom "Mind the units.", Plan->Custom] -> (Review->Revise)*3')
    assert result.exit_code == 0
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines()[:-1])
    assert {name: value.strip() for name, value in rows.items()} == {
        "read as": '[Custom "Mind the units.", Plan -> Custom] -> (Review -> Revise) * 3',
        "operators": "5 (Custom 2, Plan 1, Review 1, Revise 1)",
        "instructions": "1",
        "structures": "parallel 1, conditional 0, loop 1",
        "depth": "2",
        "calls of a run": "at most 9",
    }
    assert result.stdout.endswith("can be built\n")


def test_check_names_the_rule_that_forbids_a_workflow(run):
    result = run("workflow", "check", "[Custom, Plan -> Custom]", "--published")
    assert result.exit_code == 1
    assert "refused: structures do not nest here" in result.stdout
    assert run("workflow", "check", "Plam").exit_code == 2
    assert "(empty)" in run("workflow", "check", "").stdout


# ---------------------------------------------------------------- view
class Designing(TextEnv):
    """The name of an operator adds it to a chain; any other word ends the episode."""

    env_id = "tests/Designing-v0"

    def __init__(self, split: str = "train", max_steps: int = 9, **_: Any) -> None:
        super().__init__(split=split, max_steps=max_steps, settings={})
        self._names: list[str] = []

    @property
    def num_tasks(self) -> int:
        return 1

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self._names, self.task_key, self.goal = [], self.make_task_key(task), "Design."
        return "empty"

    def _apply(self, action: str) -> Transition:
        known = action in STANDARD
        self._names += [action] * known
        return Transition(self.describe_state(), 0.0, not known, known)

    def state_key(self) -> str:
        return self.describe_state()

    def describe_state(self) -> str:
        return " -> ".join(self._names) or "empty"

    def score(self) -> float:
        return 0.0

    def admissible_actions(self) -> list[str]:
        return list(STANDARD)

    def sample_action(self, rng: Stream) -> str:
        return rng.choice(self.admissible_actions())

    def expert_action(self) -> str | None:
        return None

    def _extra_info(self) -> dict[str, Any]:
        chain = read(self.describe_state()) if self._names else ()
        return {"workflow": {"graph": plain_graph(chain), "run": None}}


gym.register(Designing.env_id, entry_point=Designing)


def test_view_steps_a_log_again_and_draws_its_workflows(run):
    recorder = EpisodeRecorder(Designing())
    episode = recorder.reset(seed=0)
    for action in ("Plan", "Custom", "finish"):
        recorder.step(action)
    assert episode.turns[0].info is None  # so that what is drawn comes from stepping again
    write_log("run.jsonl", [episode])
    assert run("view", "run.jsonl").stdout == "run.html\n"
    page = Path("run.html").read_text("utf-8")
    assert page.count('<svg class="workflow-picture"') == 2
    assert "Workflow of 2 operators: Plan, then Custom" in page
