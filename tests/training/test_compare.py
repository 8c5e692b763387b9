"""The comparison of estimators: in miniature from end to end, and what it says of figures whose truth is known."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from rich.console import Console
from transformers import GPT2Config

from agentgym_flow.core import EnvCard
from agentgym_flow.envs import text_env_class
from agentgym_flow.envs.sokoban import tasks
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.leaderboard.track import make_track
from agentgym_flow.training import tiny
from agentgym_flow.training.recipe import Recipe, open_run
from baselines import compare, on_tracks
from baselines.comparison import execute, schedule, workers
from baselines.comparison.contrasts import MeanCurve, Reached, SettingComparison, contrast, mean_curve, reached
from baselines.comparison.execute import finished
from baselines.comparison.outcome import HEADER, SCHEMA, SHAPE, Outcome, Point, Raw, read_raw, write_raw
from baselines.comparison.plan import (
    CONTINUED,
    CONTROLS,
    EVERYTHING,
    EXPERT,
    RANDOM,
    REFERENCES,
    SCRIPT,
    WARM_START,
    Cell,
    Plan,
    read_settings,
)
from baselines.comparison.rows import episodes_said, types_table
from baselines.comparison.table import page

SOKOBAN = "agentgym_flow/Sokoban-v0"
ALGOS = ("grpo", "rewardflow")
MINIATURE = {
    "common": {
        "config": "sokoban_tiny_long",  # as the packaged file of comparisons
        "env_kwargs": {"size": 6, "min_pushes": 1},
        "threads": 1,
        "learning_rate": 5e-4,
        "muon_learning_rate": 5e-3,
        "warm_start_levels": 30,
        "warm_start_updates": 40,
        "warm_start_batch": 32,
        "warm_start_validations": 1,
        "warm_start_validation_episodes": 4,
        "eval_episodes": 10,
        "validations": 2,
        "validation_episodes": 6,
    },
    "settings": {
        "small": {"about": "two attempts", "num_generations": 2, "tasks": 8, "batches": 2, "core_seconds": 1},
        "large": {"about": "four attempts", "num_generations": 4, "tasks": 4, "batches": 2, "core_seconds": 1},
    },
}


class Comparison(NamedTuple):
    """A miniature: its settings file, where its runs are, and where its page is."""

    config: Path
    output: Path
    results: Path

    def arguments(self, *others: object) -> list[str]:
        folders = ["--config", self.config, "--output", self.output, "--results", self.results]
        return [str(word) for word in ("--algos", ",".join(ALGOS), "--seeds", 1, *folders, *others)]

    def plan(self, seeds: int = 1) -> Plan:
        return Plan(SOKOBAN, ALGOS, range(seeds), read_settings(SOKOBAN, self.config))


def settings_file(folder: Path, **others: Any) -> Path:
    path = folder / "miniature.yaml"
    path.write_text(yaml.safe_dump({**MINIATURE, "common": {**MINIATURE["common"], **others}}, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def few_tasks() -> Iterator[None]:
    """The expert shows all training tasks in one control: let there be few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks._NUM_TASKS, "train", 60)
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, few_tasks: None, narrow: None) -> Comparison:
    """A miniature that ran to its end, in this process."""
    folder = tmp_path_factory.mktemp("compare")
    found = Comparison(settings_file(folder), folder / "runs", folder / "results")
    assert compare.main(found.arguments()) == 0
    return found


@pytest.fixture
def copied(done: Comparison, tmp_path: Path) -> Comparison:
    """The same in folders of its own, which a test may spoil."""
    shutil.copytree(done.output, tmp_path / "runs")
    return Comparison(done.config, tmp_path / "runs", tmp_path / "results")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The cells that are run from now on."""
    cells: list[Cell] = []
    run = workers.run

    def noted(plan: Plan, cell: Cell, *others: Any) -> Outcome:
        cells.append(cell)
        return run(plan, cell, *others)

    monkeypatch.setattr(workers, "run", noted)
    return cells


def untimed(found: Outcome) -> list[tuple[int, int, float]]:
    """Return a curve without its core-seconds, which are never the same twice."""
    return [(point.env_steps, point.episodes, point.valid_success) for point in found.curve]


def summary_of(comparison: Comparison, cell: Cell) -> Path:
    return comparison.output / cell.folder / "summary.json"


# ---------------------------------------------------------------- from end to end
@pytest.mark.heavy
def test_every_cell_is_a_run_and_the_figures_are_those_of_its_log(done: Comparison) -> None:
    plan, raw = done.plan(), read_raw(done.results / "sokoban.jsonl")
    assert len(raw.outcomes) == len(list(plan.cells())) == 1 + 3 + 2 * 2 + 2 * 2
    for cell in plan.cells():
        outcome = finished(plan, cell, done.output)
        assert outcome in raw.outcomes
        if cell.name in REFERENCES:
            continue
        for marks, name in ((outcome.sampled, "sampled"), (outcome.greedy, "greedy")):
            log = read_log(done.output / cell.folder / "evaluations" / f"after_{name}.jsonl.gz")
            assert marks == "".join("1" if line.success else "0" for line in log)
        assert len(outcome.sampled) == 10
        assert 0 < outcome.learning_seconds < outcome.core_seconds


def test_algorithms_begin_alike_play_as_much_and_learn_otherwise(done: Comparison) -> None:
    plan = done.plan()
    first, metrics, weights = [], [], set()
    for cell in plan.training():
        folder = done.output / cell.folder
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        metrics.append(lines)
        first.append((folder / "warm_start" / "model.safetensors").read_bytes())
        weights.add((folder / "checkpoint" / "model.safetensors").read_bytes())
        outcome = finished(plan, cell, done.output)
        assert [point.episodes for point in outcome.curve] == [16, 32]
        first_half, whole = (point.core_seconds for point in outcome.curve)
        assert 0 < first_half < whole < outcome.learning_seconds
        assert outcome.curve[-1].env_steps == sum(line["turns"] for line in lines)
        assert outcome.curve[-1].valid_success == lines[-1]["valid_success"]
    (warm,) = plan.warm_starts()  # the two settings share it
    assert set(first) == {(done.output / warm.folder / "warm_start" / "model.safetensors").read_bytes()}
    assert metrics[0][0]["success"] == metrics[1][0]["success"]
    assert len(weights) == 4


def test_controls_clone_for_as_long_as_training_took(done: Comparison) -> None:
    plan = done.plan()
    outcomes = {cell: finished(plan, cell, done.output) for cell in plan.cells()}
    (warm,) = plan.warm_starts()
    budgets = {}
    for control in plan.controls():
        budgets[control] = schedule.budget(plan, control, outcomes)
        trained = [
            o.learning_seconds for cell, o in outcomes.items() if o.name in ALGOS and cell.group == control.group
        ]
        begun = outcomes[warm].learning_seconds if control.name == EVERYTHING else 0
        assert budgets[control] == pytest.approx(np.median(trained) + begun)
        assert outcomes[control].updates >= 1
    assert all(schedule.budget(plan, cell, outcomes) == 0 for cell in plan.training())
    kept = {(done.output / cell.folder / "warm_start").exists() for cell in plan.controls() if cell.name == CONTINUED}
    assert kept == {True}  # these go on from it


def test_a_control_is_validated_with_its_current_weights(done: Comparison, tmp_path: Path) -> None:
    setting = done.plan().settings[0]
    with open_run(setting.plain_configs(0, tmp_path), Console(quiet=True)) as recipe:
        recipe.clone_behaviour()
        best = execute._BestWeights(recipe)
        cloned = best()
        for parameter in recipe.model.parameters():
            parameter.data.zero_()  # all words equally likely, so hardly an answer is a move
        assert best() < cloned
        assert best.measured == [cloned, 0.0]


def test_policies_that_are_not_trained_play_the_same_tasks_once(done: Comparison) -> None:
    plan, raw = done.plan(), read_raw(done.results / "sokoban.jsonl")
    (warm,) = plan.warm_starts()
    assert [cell.name for cell in plan.references()] == [RANDOM, SCRIPT, EXPERT]
    found = {outcome.name: outcome for outcome in raw.outcomes if outcome.name in REFERENCES}
    assert len({outcome.tasks for outcome in raw.outcomes}) == 1
    assert found[EXPERT].success == found[EXPERT].greedy_success == 1
    assert found[RANDOM].greedy_success is None
    assert found[SCRIPT].sampled == found[SCRIPT].greedy
    for setting in plan.settings:  # both begin with the same warm start, so they share the references
        for name, outcome in found.items():
            assert raw.runs(setting.name, name) == {0: outcome}
            assert outcome.group == warm.group


def test_the_page_is_made_from_the_raw_figures_alone(done: Comparison, tmp_path: Path) -> None:
    for path in done.results.glob("*.jsonl"):
        shutil.copy(path, tmp_path)
    assert compare.main(["--remake", str(tmp_path / "sokoban.jsonl")]) == 0
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in done.results.iterdir()}
    assert set(made) == {"sokoban.jsonl", "sokoban.md", "sokoban_small.png", "sokoban_large.png"}
    text = made["sokoban.md"].decode()
    assert "python -m baselines.compare --env agentgym_flow/Sokoban-v0 --algos grpo,rewardflow --seeds 1" in text
    assert "Fewer than 3 runs: no order is claimed." in text
    for name in (*ALGOS, *(f"*{row}*" for row in (*CONTROLS, RANDOM, SCRIPT, EXPERT))):
        assert text.count(f"\n| {name} | 1 |") == 2, name


def test_trained_policies_play_tracks_once_each(
    done: Comparison, tmp_path: Path, started: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_track(SOKOBAN, "few", "Few boards", tasks=3, kwargs={"size": 6, "min_pushes": 1}, attempts=2)
    (tmp_path / "tracks").mkdir()
    board.write(tmp_path / "tracks" / "few.json")
    words = ["--algos", ",".join(ALGOS), "--seeds", "1", "--settings", "small", "--tracks", "few"]
    words += ["--config", str(done.config), "--out", str(done.output)]
    words += ["--results", str(tmp_path), "--root", str(tmp_path)]
    assert on_tracks.main(words) == 0
    assert started == [], "the training runs of the comparison are used"
    raw = read_raw(tmp_path / "sokoban_on_tracks.jsonl")
    rows = {outcome.name: outcome for outcome in raw.outcomes}
    assert set(rows) == {WARM_START, *ALGOS, RANDOM, SCRIPT, EXPERT}
    assert {len(outcome.sampled) for outcome in rows.values()} == {6}
    assert {name for name, outcome in rows.items() if len(outcome.greedy) != 3} == {RANDOM}
    assert rows[EXPERT].successes().tolist() == [1, 1, 1]
    first, again = rows["grpo"].sampled[:3], rows["grpo"].sampled[3:]
    assert rows["grpo"].successes().tolist() == [(int(a) + int(b)) / 2 for a, b in zip(first, again, strict=True)]
    text = (tmp_path / "sokoban_on_tracks.md").read_text("utf-8")
    assert "## few: Few boards; 3 tasks, 2 sampled attempts each" in text
    assert "\n| grpo | 1 |" in text
    assert on_tracks.main([*words, "--remake", str(tmp_path / "sokoban_on_tracks.jsonl")]) == 0
    assert (tmp_path / "sokoban_on_tracks.md").read_text("utf-8") == text
    monkeypatch.setattr(on_tracks, "_play", None)
    assert on_tracks.main(words) == 0, "nothing is played twice"


def test_a_finished_comparison_is_not_run_again(done: Comparison, started: list[Cell]) -> None:
    before = (done.results / "sokoban.jsonl").read_bytes()
    assert compare.main(done.arguments()) == 0
    assert started == []
    assert (done.results / "sokoban.jsonl").read_bytes() == before


def test_only_what_is_missing_is_run_and_comes_out_the_same(copied: Comparison, started: list[Cell]) -> None:
    plan = copied.plan()
    lost, broken = plan.training()[1], plan.training()[2]
    expected = {cell: finished(plan, cell, copied.output) for cell in (lost, broken)}
    shutil.rmtree(copied.output / lost.folder)
    summary_of(copied, broken).write_text('{"status": "running"}')  # what a killed run leaves
    assert compare.main(copied.arguments()) == 0
    assert started == [lost, broken]
    for cell, before in expected.items():
        again = finished(plan, cell, copied.output)
        assert again is not None
        assert before is not None
        assert (again.sampled, again.greedy, untimed(again)) == (before.sampled, before.greedy, untimed(before))


@pytest.mark.heavy
def test_ctrl_c_keeps_what_is_finished(
    copied: Comparison, started: list[Cell], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = copied.plan()
    for cell in plan.training()[2:]:
        shutil.rmtree(copied.output / cell.folder)
    learn, calls = Recipe.train, iter([False, True])

    def pressed(recipe: Recipe) -> None:
        if next(calls):
            raise KeyboardInterrupt
        learn(recipe)

    monkeypatch.setattr(Recipe, "train", pressed)
    assert compare.main(copied.arguments()) == 130
    assert "runs what is missing" in capsys.readouterr().out
    assert not copied.results.exists()
    monkeypatch.setattr(Recipe, "train", learn)
    assert compare.main(copied.arguments()) == 0
    assert started == [plan.training()[2], plan.training()[3], plan.training()[3]]


def descendants(process: int) -> set[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {found for child in map(int, children) for found in (child, *descendants(child))}


@pytest.mark.heavy
def test_sigterm_ends_the_processes_and_keeps_what_is_finished(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    endless = {name: {**setting, "batches": 5000} for name, setting in MINIATURE["settings"].items()}
    file.write_text(yaml.safe_dump({"common": MINIATURE["common"], "settings": endless}, sort_keys=False))
    comparison = Comparison(file, tmp_path / "runs", tmp_path / "results")
    command = [sys.executable, "-m", "baselines.compare", *comparison.arguments("--jobs", 2)]
    process = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE)
    plan = comparison.plan()
    metrics = [comparison.output / cell.folder / "metrics.jsonl" for cell in plan.training()]
    while sum(path.exists() for path in metrics) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    workers = descendants(process.pid)
    assert len(workers) >= 2
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"The same command runs what is missing" in said
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # else this test ends with its time limit
        time.sleep(0.1)
    (warm,) = plan.warm_starts()
    assert finished(plan, warm, comparison.output) is not None
    assert all(finished(plan, cell, comparison.output) is None for cell in plan.training())


def test_runs_made_with_other_settings_are_refused(
    copied: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = copied._replace(config=settings_file(tmp_path, learning_rate=0.001))
    assert compare.main(changed.arguments()) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "learning_rate=0.0005" in said
    assert "small/grpo-seed0" in said
    assert "another --out" in said


@pytest.mark.heavy
def test_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks._NUM_TASKS, "train", 10_000)  # as in the processes
    monkeypatch.setattr(tiny, "GPT2Config", GPT2Config)  # likewise
    config = settings_file(tmp_path, eval_episodes=6)
    found = []
    for processes in (1, 2):
        here = Comparison(config, tmp_path / f"runs{processes}", tmp_path)
        plan = here.plan(seeds=2)
        with workers.runner(processes) as run:
            for phase in (plan.warm_starts(), plan.training()[:3]):
                outcomes = {
                    (o.group, o.name, o.seed): o for o in run([(plan, cell, here.output, 0.0) for cell in phase])
                }
            with pytest.raises(FileNotFoundError, match="nowhere"):  # an error there is an error here
                list(run([(plan, plan.training()[0], tmp_path / "nowhere", 0.0)]))
        found.append({key: (o.sampled, o.greedy, untimed(o), o.updates) for key, o in outcomes.items()})
    assert found[0] == found[1]
    assert len(found[0]) == 3


# ---------------------------------------------------------------- before anything runs
def test_a_dry_run_counts_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seeds", "5", "--output", str(tmp_path / "runs"), "--dry-run"]
    assert compare.main(arguments) == 0
    said = capsys.readouterr().out
    settings = read_settings(SOKOBAN)
    for setting in settings:
        assert setting.name in said
        assert f"{setting.episodes:,}" in said
    assert "Nothing was run" in said
    assert not list(tmp_path.iterdir())


def test_a_dry_run_knows_what_is_finished(done: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(done.arguments("--dry-run")) == 0
    assert "About 0.0 core-hours to go" in capsys.readouterr().out


def test_the_table_of_sokoban_has_the_settings_of_today(root: Path) -> None:
    """The quickstart may change; a comparison keeps the settings that its table was made with."""
    made_with = read_raw(root / "baselines/results/sokoban.jsonl").header["settings"]["horizon40"]["settings"]
    (today,) = read_settings(SOKOBAN, names=["horizon40"])
    del made_with["logging_steps"]  # a setting of a single run by now
    later = {"chat_template": None, "share_prefixes": False, "fork_share": 0.0, "fork_continuations": 4}  # no change
    assert today.lasting == made_with | later


def test_the_packaged_settings_differ_in_what_they_are_named_after() -> None:
    settings = {setting.name: setting for setting in read_settings(SOKOBAN)}
    assert list(settings) == ["default", "groups4", "groups8", "boxes2", "horizon40", "horizon40x4", "tasks4"]
    assert settings["groups4"].num_generations == 4
    assert settings["groups8"].num_generations == 8
    assert settings["boxes2"].lasting["env_kwargs"] == {"size": 7, "boxes": 2, "min_pushes": 3}
    assert settings["horizon40"].lasting["env_kwargs"]["max_steps"] >= 40
    assert settings["horizon40x4"].episodes == 4 * settings["horizon40"].episodes
    for setting in settings.values():
        assert setting.lasting["eval_episodes"] == 500
        assert setting.batches % setting.lasting["validations"] == 0  # validation at the end of batches
    same_tasks = [settings[name] for name in ("default", "groups4", "groups8")]
    assert len({setting.warm_start for setting in same_tasks}) == 1
    assert len({setting.episodes for setting in same_tasks}) == 1
    assert settings["tasks4"].tasks == 4
    assert len({setting.warm_start for setting in settings.values()}) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algos", "grpo,rlo"], "Did you mean 'rloo'"),
        (["--algos", "grpo,grpo"], "once each"),
        (["--settings", "group4"], "Did you mean 'groups4'"),
        (["--seeds", "0"], "--seeds"),
        (["--jobs", "0"], "--jobs"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--env", "agentgym_flow/Nowhere-v0"], "no settings file"),
        (["--remake", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert compare.main(words) == 1
    assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"about": None}, "lacks about"),
        ({"tasks": 0}, "tasks of setting"),
        ({"tasks": 3}, "cannot be divided into"),
        ({"no_such_setting": 1}, "no_such_setting"),
        ({"warm_start_levels": 0}, "no warm start"),
        ({"tasks": True}, "tasks of setting"),
        ({"core_seconds": "many"}, "core_seconds of setting"),
        ({"core_seconds": True}, "core_seconds of setting"),
        ({"dynamic_sampling": True}, "different numbers of episodes"),
        ({"gradient_accumulation_steps": 8, "steps_per_generation": 4}, "0.5 optimizer steps per batch"),
    ],
)
def test_a_wrong_settings_file_is_refused_at_once(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    small = {**MINIATURE["settings"]["small"], **change}
    if small["about"] is None:
        del small["about"]
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump({**MINIATURE, "settings": {"small": small}}))
    with pytest.raises((BadSetting, UnknownOption), match=message):
        read_settings(SOKOBAN, path)


@pytest.mark.parametrize(
    ("others", "message"),
    [({"settings": {}}, "has no settings"), ({"variants": {"mine": {"credit": ["grpo"]}}}, "variant 'mine' needs one")],
)
def test_a_file_without_settings_or_credit_is_refused(others: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump({**MINIATURE, **others}))
    with pytest.raises((BadSetting, UnknownOption), match=message):
        read_settings(SOKOBAN, path)


@pytest.mark.parametrize(
    ("others", "steps"),
    [({"num_iterations": 2}, 8), ({"gradient_accumulation_steps": 2}, 2), ({"steps_per_batch": 1}, 1)],
)
def test_a_setting_has_its_batches_whatever_a_batch_is_divided_into(
    others: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    for setting in read_settings(SOKOBAN, settings_file(tmp_path, **others)):
        agent = setting.configs("grpo", 0, tmp_path)[2]
        assert agent.max_steps == setting.batches * steps
        assert agent.logging_steps == steps
        assert agent.generation_batch_size == setting.num_generations * setting.tasks


def test_settings_that_change_cloning_have_their_own_warm_start(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"template_settings": {"rules": False}}, {"lora_rank": 4}]
    assert len({read_settings(SOKOBAN, settings_file(tmp_path, **own))[0].warm_start for own in changes}) == 3


def test_without_an_expert_nothing_clones_all_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(text_env_class(SOKOBAN), "has_expert", False)
    (setting, _) = read_settings(SOKOBAN, settings_file(tmp_path))
    plan = Plan(SOKOBAN, ALGOS, (0,), [setting])
    assert [cell.name for cell in plan.controls()] == [CONTINUED]
    with pytest.raises(BadSetting, match="has no expert"):
        _ = replace(setting, others={**setting.others, "model": "folder", "template": "text"}).references


def test_raw_figures_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    whole = made_up({"grpo": 0.5}, seeds=1, count=4)
    header = {**whole.header, "seeds": [0]}
    first = json.dumps({"schema": SCHEMA, **header}) + "\n"
    for text, message in (
        ("", "no results"),
        ("no json\n", "no results"),
        ('{"schema": "other"}\n', "schema"),
        (first, "no runs"),
        (first + '{"seed": 1}\n', "not the outcome"),
    ):
        path.write_text(text)
        with pytest.raises(BadData, match=message):
            read_raw(path)
    shape = header["settings"]["only"]
    for name in HEADER[SCHEMA]:
        write_raw(path, Raw({key: header[key] for key in header if key != name}, whole.outcomes))
        with pytest.raises(BadData, match=f"the first line lacks {name}:"):
            read_raw(path)
    for name in SHAPE:
        short = {key: value for key, value in shape.items() if key != name}
        write_raw(path, Raw({**header, "settings": {"only": short}}, whole.outcomes))
        with pytest.raises(BadData, match=f"the first line lacks {name} of setting only:"):
            read_raw(path)


# ---------------------------------------------------------------- figures whose truth is known
def outcome(group: str, name: str, seed: int, marks: Sequence[bool], tasks: str = "same", steps: int = 100) -> Outcome:
    curve = [Point(0, 0, 0.2)] if name == WARM_START else [Point(steps, 10, 0.4), Point(3 * steps, 20, 0.6)]
    text = "".join("1" if mark else "0" for mark in marks)
    versions = {"agentgym_flow": "1"}
    return Outcome(group, name, seed, text, text, tasks, 10.0, 8.0, 4, curve, versions, "2026-01-02")


def made_up(rates: Mapping[str, float], seeds: int = 5, count: int = 400, spread: float = 0.02) -> Raw:
    """Runs that succeed with the given rates on tasks of equal difficulty; seeds differ by `spread`."""
    rng = np.random.default_rng(1)
    outcomes = []
    for name, rate in rates.items():
        group = "warm" if name == WARM_START else "only"
        for seed in range(seeds):
            outcomes.append(outcome(group, name, seed, rng.random(count) < rate + rng.normal(0, spread)))
    shape = {"about": "made up", "num_generations": 4, "tasks": 5, "batches": 1, "warm_start": "warm"}
    algos = [name for name in rates if name not in CONTROLS]
    header = {"command": "none", "env_id": SOKOBAN, "algos": algos, "settings": {"only": shape}}
    shape["settings"] = {"env_kwargs": {"size": 6}, "template": "compact"}
    return Raw(header, outcomes)


CONTROL_RATES = {WARM_START: 0.3, CONTINUED: 0.55, EVERYTHING: 0.9}


def test_an_order_that_is_there_is_found_and_said() -> None:
    raw = made_up({"grpo": 0.5, "rloo": 0.51, "gigpo": 0.7, "rewardflow": 0.71, **CONTROL_RATES})
    compared = SettingComparison.of(raw, "only")
    found = {(pair.first, pair.second): pair for pair in compared.pairs}
    assert len(found) == 6
    assert {key for key, pair in found.items() if pair.order} == {
        (dense, other) for dense in ("gigpo", "rewardflow") for other in ("grpo", "rloo")
    }
    pair = found["gigpo", "grpo"]
    assert pair.order == 1
    assert pair.low < 0.2 < pair.high
    assert pair.mean == pytest.approx(0.2, abs=0.05)
    assert compared.dense is not None
    assert compared.dense.order == 1
    text = page(raw, "stem")
    assert "is ahead of credit for episodes (grpo, rloo) in only (" in text
    assert "Environment: `{size: 6}`; prompt template `compact`." in text
    assert "- only, sampled: gigpo is ahead of grpo" in text
    assert "- only, greedy: gigpo is ahead of grpo" in text  # all play greedy as sampled here
    assert "8 of 12 comparisons between two algorithms (6 sampled, 6 greedy) have an interval that excludes 0" in text
    assert "about 0.6 would by chance alone" in text
    assert "- Among the others: gigpo is ahead of rloo" in text
    assert "- Among the others, with the most likely actions: gigpo is ahead of rloo" in text
    against = {
        line.split(",")[0].removeprefix("- "): line for line in text.splitlines() if line.startswith("- Against")
    }
    assert "ahead: gigpo" in against["Against grpo"]
    assert "inconclusive: rloo" in against["Against grpo"]
    assert against["Against warm start"].count("ahead") == 1
    assert "behind: grpo" in against[f"Against {EVERYTHING}"]
    assert "rewardflow (" in against[f"Against {CONTINUED}"].split("inconclusive")[0]


def test_a_variant_counts_as_credit_for_turns_or_episodes_by_its_credit_function() -> None:
    raw = made_up({"grpo": 0.5, "average": 0.7})
    raw.settings["only"]["variants"] = {"average": {"credit": "rewardflow"}}  # type: ignore[index]
    assert raw.pools == (["average"], ["grpo"])
    assert "Credit for turns (average) is ahead of credit for episodes (grpo) in only" in page(raw, "stem")


def test_what_an_environment_gives_an_algorithm_is_stored_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    average = {"credit_settings": {"potential": "average"}}
    card = EnvCard(algorithm_settings={"rewardflow": average, "graphgpo": average})
    monkeypatch.setattr(text_env_class(SOKOBAN), "card", card)
    [setting] = read_settings(SOKOBAN, names=["default"])
    setting = replace(setting, variants={"far": {"credit": "gigpo", "entropy_coef": 0.5}, "near": {"credit": "gigpo"}})
    plan = Plan(SOKOBAN, ["grpo", "rewardflow", "far", "near"], [0], [setting])
    header = compare.figures(plan, {}, "none").header
    assert header["settings"]["default"]["variants"] == {
        "grpo": {"credit": "grpo"},
        "rewardflow": {"credit": "rewardflow", **average},
        "far": {"credit": "gigpo", "entropy_coef": 0.5},
        "near": {"credit": "gigpo"},
    }
    json.dumps(header)
    raw = made_up({"grpo": 0.5, "rewardflow": 0.5, "far": 0.5, "near": 0.5})
    raw.settings["only"].update(variants=header["settings"]["default"]["variants"])  # type: ignore[attr-defined]
    text = page(raw, "stem")
    assert (
        "Settings of their own: `rewardflow`: {credit_settings: {potential: average}}; "
        "`far`: {credit: gigpo, entropy_coef: 0.5}; `near`: {credit: gigpo}.\n"
    ) in text


def test_settings_that_tuning_did_not_choose_are_named() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.5})
    tuned = Raw({**raw.header, "tuned": "tuned.yaml"}, raw.outcomes)
    own = {"weight": 0.5, "norm": "std"}
    raw.settings["only"]["variants"] = {"rewardflow": {"credit_settings": own}}  # type: ignore[index]
    assert "(`tuned.yaml`); all algorithms had the same number of trials.\n" in page(tuned, "stem")
    own |= {"anchors": "information", "potential": "average"}
    said = "trials. Other settings of credit named below (`anchors` and `potential` of rewardflow) are not of these"
    assert said in page(tuned, "stem")
    assert said not in page(raw, "stem")


def test_credit_functions_are_pooled_with_one_row_each() -> None:
    raw = made_up({"masked": 0.5, "grpo": 0.5, "average": 0.9, "rewardflow": 0.6, "far": 0.1, "near": 0.1})
    credit = {"masked": "grpo", "average": "rewardflow", "far": "gigpo", "near": "gigpo"}
    raw.settings["only"]["variants"] = {name: {"credit": of} for name, of in credit.items()}  # type: ignore[index]
    assert raw.pools == (["rewardflow", "far"], ["grpo"])
    text = page(raw, "stem")
    assert "Credit for turns (rewardflow, far) is behind credit for episodes (grpo) in only (-" in text


def test_greedy_orders_are_listed_and_counted() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.5})
    outcomes = [replace(o, greedy="1" * 400) if o.name == "grpo" else o for o in raw.outcomes]
    text = page(Raw(raw.header, outcomes), "stem")
    summary = text.partition("## What the figures say")[2].partition("##")[0]
    assert "- only, greedy: grpo is ahead of rewardflow (+" in summary
    assert "sampled:" not in summary
    assert "1 of 2 comparisons between two algorithms (1 sampled, 1 greedy)" in summary


def test_mean_scores_have_a_column_where_they_say_more_than_success() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.6})
    assert "mean score" not in page(raw, "stem")  # figures from before scores were recorded
    exact = Raw(raw.header, [replace(run, score=run.success) for run in raw.outcomes])
    assert "mean score" not in page(exact, "stem")
    partial = [replace(run, score=0.7 + 0.01 * run.seed, greedy_score=0.9) for run in raw.outcomes]
    text = page(Raw(raw.header, partial), "stem")
    assert column(text, "Sampled, mean score of 100") == {"grpo": "72.0", "rewardflow": "72.0"}
    assert column(text, "Greedy, mean score of 100") == {"grpo": "90.0", "rewardflow": "90.0"}


def test_greedy_figures_stand_beside_sampled_ones() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.5, **CONTROL_RATES})
    better = [replace(o, greedy="1" * 400) if o.name == "rewardflow" else o for o in raw.outcomes]
    text = page(Raw(raw.header, better), "stem")
    assert column(text, "Greedy")["rewardflow"] == "100.0% [99.3%, 100.0%]"
    assert column(text, "Sampled")["rewardflow"] != column(text, "Greedy")["rewardflow"]
    assert column(text, "Greedy")["grpo"] == column(text, "Sampled")["grpo"]
    assert column(text, "Greedy, against grpo")["rewardflow"].startswith("+5")
    assert "Against grpo, with the most likely actions, in points: ahead: rewardflow (+5" in text
    assert "- rewardflow minus grpo, paired by seed and task: " in text


def test_greedy_figures_stand_beside_sampled_ones_of_the_same_pair() -> None:
    raw = made_up({"grpo": 0.5, "rloo": 0.5, "rewardflow": 0.5}, seeds=2, count=9)

    def said(**greedy: str) -> str:
        outcomes = [replace(o, greedy=greedy[o.name]) for o in raw.outcomes]
        lines = page(Raw(raw.header, outcomes), "stem").splitlines()
        [line] = [line for line in lines if line.startswith("- rewardflow minus grpo, paired by seed and task: ")]
        return line

    # rloo has not played its most likely actions, so that there is one pair instead of three
    assert said(grpo="0" * 9, rloo="", rewardflow="1" * 9).endswith("sampled, +100.0 [+47.8, +100.0] greedy.")
    assert said(grpo="0" * 9, rloo="0" * 9, rewardflow="").endswith("points sampled.")


def test_random_play_has_no_greedy_figures_and_one_run_stands_beside_all_seeds() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.6, **CONTROL_RATES})
    rng = np.random.default_rng(2)
    chance = replace(outcome("warm", RANDOM, 0, rng.random(400) < 0.1), greedy="", curve=[])
    expert = replace(outcome("warm", EXPERT, 0, [True] * 400), curve=[])
    text = page(Raw({**raw.header, "seeds": list(range(5))}, [*raw.outcomes, chance, expert]), "stem")
    assert column(text, "Runs")["*random*"] == "1"
    assert column(text, "Greedy")["*random*"] == column(text, "Greedy, against grpo")["*random*"] == ""
    assert column(text, "Greedy, against grpo")["*expert*"].startswith("+")
    assert column(text, "Environment steps")["*expert*"] == ""
    assert "Against random, in points: ahead: grpo (+" in text
    assert "Against expert, in points: behind: grpo (-" in text
    assert "- 10 training runs and 15 runs of controls" in text


def test_success_by_task_type_is_that_of_the_tasks_of_the_type() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.6})
    assert "by task type" not in page(raw, "stem")  # figures from before types were recorded, or of one type
    types = ["easy"] * 100 + ["hard"] * 300
    shape = {**raw.settings["only"], "task_types": types}
    split = [replace(o, sampled="1" * 100 + "0" * 300, greedy="1" * 200 + "0" * 200) for o in raw.outcomes]
    text = page(Raw({**raw.header, "settings": {"only": shape}}, split), "stem")
    assert "### only: Success by task type" in text
    assert "| grpo | 100.0 / 100.0 | 0.0 / 33.3 |" in text
    assert "|  | easy (100) | hard (300) |" in text


def column(text: str, name: str) -> dict[str, str]:
    """Return a column of the first table of a page, by row."""
    header, _, *rows = [line for line in text.partition("\n- ")[2].splitlines() if line.startswith("| ")]
    place = [cell.strip() for cell in header.split("|")].index(name)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows if row.count("|") == header.count("|")]
    return {row[1]: row[place] for row in cells}


def test_order_is_told_in_the_direction_it_has() -> None:
    raw = made_up({"grpo": 0.7, "rewardflow": 0.5})
    (pair,) = SettingComparison.of(raw, "only").pairs
    assert (pair.first, pair.second, pair.order) == ("rewardflow", "grpo", -1)
    text = page(raw, "stem")
    assert "grpo is ahead of rewardflow" in text
    assert "Credit for turns (rewardflow) is behind credit for episodes (grpo) in only" in text
    assert "is ahead of credit" not in text


def test_equal_algorithms_are_inconclusive() -> None:
    raw = made_up({"grpo": 0.5, "rewardflow": 0.5}, spread=0.05)
    assert not any(pair.order for pair in SettingComparison.of(raw, "only").pairs)
    text = page(raw, "stem")
    assert "Inconclusive: none of 2 comparisons between two algorithms (1 sampled, 1 greedy) has" in text
    assert "is not significantly different from credit for episodes (grpo) in only" in text
    for claim in ("ahead", "behind"):
        assert claim not in text.split("## What the figures say")[1]


def test_seeds_that_disagree_make_a_difference_inconclusive() -> None:
    """Thousands of tasks do not make up for runs that come out now so, now otherwise."""
    ahead, behind = [True] * 3 + [False] * 2, [False] * 3 + [True] * 2
    runs = {
        s: outcome("only", "a", s, [True] * 900 + [False] * 100 if up else [False] * 1000) for s, up in enumerate(ahead)
    }
    others = {
        s: outcome("only", "b", s, [True] * 900 + [False] * 100 if up else [False] * 1000)
        for s, up in enumerate(behind)
    }
    found = contrast("a", [runs], "b", [others])
    assert found is not None
    assert found.mean == pytest.approx(0.18)
    assert found.order == 0


def test_pairing_shows_what_two_intervals_would_hide() -> None:
    hard = np.arange(300) % 2 == 0
    runs = {s: outcome("only", "a", s, hard | (np.arange(300) % 30 == 1)) for s in range(4)}
    others = {s: outcome("only", "b", s, hard) for s in range(4)}
    found = contrast("a", [runs], "b", [others])
    assert found is not None
    assert found.order == 1
    assert found.mean == pytest.approx(10 / 300)


def test_two_runs_claim_nothing() -> None:
    raw = made_up({"grpo": 0.1, "rewardflow": 0.9, **CONTROL_RATES}, seeds=2)
    assert not any(pair.order for pair in SettingComparison.of(raw, "only").pairs)
    text = page(raw, "stem")
    assert "Fewer than 3 runs: no order is claimed." in text
    assert "ahead" not in text.split("## What the figures say")[1]


def test_only_seeds_of_both_are_compared_and_only_on_the_same_tasks() -> None:
    runs = {s: outcome("only", "a", s, [True]) for s in (0, 1, 2)}
    others = {s: outcome("only", "b", s, [False]) for s in (1, 2, 3)}
    found = contrast("a", [runs], "b", [others])
    assert found is not None
    assert found.runs == 2
    assert contrast("a", [runs], "b", [{7: others[3]}]) is None
    strange = {s: outcome("only", "b", s, [False], tasks="other") for s in (0, 1, 2)}
    with pytest.raises(BadData, match="same test tasks"):
        contrast("a", [runs], "b", [strange])


def test_a_mean_curve_begins_at_the_warm_start() -> None:
    starts = {s: outcome("warm", WARM_START, s, [True]) for s in range(3)}
    runs = {s: outcome("only", "grpo", s, [True], steps=100 * (s + 1)) for s in range(3)}
    curve = mean_curve(runs, starts)
    assert curve.episodes == [0, 10, 20]
    assert curve.core_seconds is None  # figures from before it was recorded
    assert curve.success == pytest.approx([0.2, 0.4, 0.6])
    assert curve.low == pytest.approx([0.2, 0.4, 0.6])


def test_a_curve_against_core_seconds_needs_all_of_them() -> None:
    def timed(found: Outcome, *seconds: float) -> Outcome:
        points = [replace(point, core_seconds=at) for point, at in zip(found.curve, seconds, strict=True)]
        return replace(found, curve=points)

    starts = {s: timed(outcome("warm", WARM_START, s, [True]), 0.0) for s in range(2)}
    runs = {s: timed(outcome("only", "grpo", s, [True]), 2.0 + s, 5.0 + s) for s in range(2)}
    assert mean_curve(runs, starts).core_seconds == pytest.approx([0.0, 2.5, 5.5])
    assert mean_curve({0: runs[0], 1: outcome("only", "grpo", 1, [True])}, starts).core_seconds is None


@pytest.mark.parametrize(("success", "episodes"), [(0.1, 0), (0.2, 0), (0.3, 5), (0.5, 15), (0.6, 20), (0.7, None)])
def test_episodes_until_a_success_are_read_off_the_curve(success: float, episodes: float | None) -> None:
    curve = MeanCurve([0, 10, 20], None, [0.2, 0.4, 0.6], [], [])
    assert curve.episodes_until(success) == pytest.approx(episodes)


def test_the_page_says_when_each_reaches_the_end_of_grpo() -> None:
    raw = made_up({"rewardflow": 0.6, "grpo": 0.5, **CONTROL_RATES})  # grpo ends at 0.6 of the validation tasks
    faster = [
        replace(o, curve=[Point(100, 10, 0.8), Point(300, 20, 0.9)]) if o.name == "rewardflow" else o
        for o in raw.outcomes
    ]
    text = page(Raw(raw.header, faster), "stem")
    assert column(text, "Episodes to grpo's end")["grpo"] == "20 [20 to 20]"
    assert column(text, "Episodes to grpo's end")["rewardflow"] == "7 [7 to 7]"  # from 0.2 to 0.8 in ten episodes
    assert column(text, "Episodes to grpo's end")[f"*{WARM_START}*"] == ""
    said = "reaches the 60.0% validation success that grpo ends with: rewardflow 7 [7 to 7], grpo 20 [20 to 20]."
    assert said in text


def test_episodes_until_a_success_vary_with_the_runs() -> None:
    starts = {seed: outcome("warm", WARM_START, seed, [True]) for seed in range(5)}

    def ending(*ends: float) -> dict[int, Outcome]:
        runs = {seed: outcome("only", "any", seed, [True]) for seed in range(5)}
        return {s: replace(runs[s], curve=[Point(1, 10, 0.4), Point(2, 20, end)]) for s, end in enumerate(ends)}

    rows = {
        "grpo": ending(0.6, 0.6, 0.6, 0.6, 0.6),
        "mixed": ending(0.9, 0.9, 0.9, 0.4, 0.4),
        "low": ending(*[0.5] * 5),
    }
    found = reached(rows, starts, "grpo")
    assert found["grpo"] == Reached(20, (20, 20))
    assert found["low"] == Reached(None, (math.inf, math.inf))
    count, interval = found["mixed"].episodes, found["mixed"].interval
    assert count == pytest.approx(10 + 10 * 0.2 / 0.3)
    assert interval == pytest.approx((14, math.inf))  # four runs of 0.9, and too many of 0.4
    assert found == reached(rows, starts, "grpo")
    assert episodes_said(found["mixed"]) == "17 [14 to never]"
    assert episodes_said(found["low"]) == "never"
    few = {name: {seed: runs[seed] for seed in range(2)} for name, runs in rows.items()}
    assert episodes_said(reached(few, starts, "grpo")["mixed"]) == "14"


def test_submitted_policies_play_tracks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kwargs = {"size": 10, "boxes": 4, "max_steps": 2}
    make_track(SOKOBAN, "few", "Few boards", tasks=2, kwargs=kwargs, attempts=2).write(tmp_path / "few.json")
    board, root = "submissions/sokoban-10x10-4-s0", tmp_path / "root"
    for name in ("cwrpo", "grpo"):
        entry = f"{board}/2026-11-26-tiny-{name}"
        shutil.copytree(Path(__file__).parents[2] / "leaderboards" / entry, root / entry)
    words = ["--env", SOKOBAN, "--tracks", str(tmp_path / "few.json"), "--root", str(root)]
    words += ["--out", str(tmp_path / "runs"), "--results", str(tmp_path)]
    assert on_tracks.main([*words, "--entries", "sokoban-10x10-4-s0"]) == 0
    raw = read_raw(tmp_path / "sokoban_entries_on_tracks.jsonl")
    assert raw.header["algos"] == ["grpo", "cwrpo"], "the reference is first"
    assert [outcome.name for outcome in raw.outcomes] == ["cwrpo", "grpo", RANDOM, SCRIPT, EXPERT]
    assert {len(outcome.sampled) for outcome in raw.outcomes} == {4}
    text = (tmp_path / "sokoban_entries_on_tracks.md").read_text("utf-8")
    assert "--entries sokoban-10x10-4-s0 --tracks few.json\n" in text, "no folder of this machine"
    assert "submitted weights of a board" in text
    assert "pass@2 / pass^2" in text
    assert "task type" not in text, "all boards are of one type"
    for wrong in ([*words], [*words, "--entries", "sokoban-1x1-s0"]):
        assert on_tracks.main(wrong) == 1
    assert "has no submitted weights" in capsys.readouterr().out


def test_the_docs_have_the_figures_of_the_tracks() -> None:
    repository = Path(__file__).parents[2]
    text = (repository / "docs/results.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for file in sorted((repository / "baselines/results").glob("*_on_tracks.jsonl")):
        raw = read_raw(file)
        assert on_tracks.page(raw) == file.with_suffix(".md").read_text("utf-8"), f"--remake {file.name}"
        for track in raw.settings:
            several = on_tracks.attempts_table(raw, track).splitlines()[2:]
            by_type = types_table(raw, track).splitlines()[4:] or [""] * len(several)
            for types, attempts in zip(by_type, several, strict=True):
                cells, last = types.split(" | ", 1)[-1].rstrip(" |"), attempts.split(" | ")[-1].rstrip(" |")
                assert any(cells in row and last in row for row in rows), (file.name, track, types, attempts)
