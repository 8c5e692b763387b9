"""Seeds until a difference is decided: looks, e-values, variances with known truth, and a registration that binds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from test_compare import SOKOBAN, outcome, settings_file

from agentgym_flow._util.intervals import t_quantile
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.leaderboard.comparison import compare as compare_tables
from agentgym_flow.leaderboard.comparison import pairs_e_value, tasks_to_decide
from baselines import compare
from baselines.comparison.decided import decided_table
from baselines.comparison.decision import Components, Look, Registration, cheapest, decide, seeds_e_value
from baselines.comparison.outcome import SHAPE, Outcome, Point, Raw, read_raw, write_raw
from baselines.comparison.plan import WARM_START, Cell, Plan, read_settings
from baselines.comparison.schedule import run_missing


# ---------------------------------------------------------------- evidence
def test_e_values_have_their_published_values() -> None:
    assert seeds_e_value([3.1, 1.2, 2.6, 0.4, 2.2]) == pytest.approx(6.03, abs=0.005)
    assert seeds_e_value([3.1, 1.2, 2.6, 0.4, 2.2, 1.7, 2.9]) == pytest.approx(33.93, abs=0.005)
    assert pairs_e_value(30, 10) == pytest.approx(18.17, abs=0.005)
    assert pairs_e_value(40, 15) == pairs_e_value(15, 40) == pytest.approx(37.97, abs=0.005)
    assert seeds_e_value([]) == seeds_e_value([1.0]) == seeds_e_value([0.0, 0.0]) == 1.0


def test_equal_policies_seldom_reach_twenty_however_often_one_looks() -> None:
    rng, decided = np.random.default_rng(0), 0
    for _ in range(500):
        wins = np.cumsum(rng.random(400) < 0.5)
        decided += any(pairs_e_value(int(w), n + 1 - int(w)) >= 20 for n, w in enumerate(wins))
    assert decided / 500 <= 0.05


def test_the_number_of_tasks_that_would_decide_decides() -> None:
    needed = tasks_to_decide(9, 5, 100)
    assert needed is not None
    before, at = (pairs_e_value(round(n * 0.09), round(n * 0.05)) for n in (needed - 1, needed))
    assert before < 20 <= at
    assert tasks_to_decide(5, 5, 100) is None
    table = np.array([[1.0, 1.0]] * 9 + [[0.0, 1.0]] * 91)
    assert "better on 9 tasks, worse on 0" in compare_tables(table, np.array([[0.0, 1.0]] * 100)).evidence()


# ---------------------------------------------------------------- looks
def test_without_a_difference_few_win_and_seeds_are_saved() -> None:
    rng = np.random.default_rng(0)
    found = [decide(rng.normal(0, 2.4, 15).tolist()) for _ in range(1000)]
    assert sum(one.verdict == "ahead" for one in found) <= 50
    assert np.mean([one.seeds for one in found]) <= 0.6 * 15


def test_a_difference_is_found() -> None:
    rng = np.random.default_rng(0)
    found = [decide(rng.normal(4, 2.4, 15).tolist()) for _ in range(300)]
    assert np.mean([one.verdict == "ahead" for one in found]) > 0.95
    assert np.mean([one.seeds for one in found]) < 12


@pytest.mark.parametrize(
    ("differences", "verdict", "seeds"),
    [
        ([2.0] * 4, "open", 4),
        ([2.0, 2.1, 2.0, 1.9, 2.0], "ahead", 5),
        ([-1.0, 0.5, -1.0, 0.4, 0.1], "futile", 5),
        ([1.0, -0.9] * 5, "futile", 10),
        ([5.0, -2.0] * 7 + [5.0], "undecided", 15),
        ([5.0, -2.0] * 40, "ahead", 80),  # by the e-value alone, after the last look
    ],
)
def test_a_look_ends_or_goes_on(differences: Sequence[float], verdict: str, seeds: int) -> None:
    found = decide(differences)
    assert (found.verdict, found.seeds) == (verdict, seeds)


def test_with_a_margin_the_lower_end_of_the_interval_decides() -> None:
    differences = [0.4, -1.1, 0.3, 0.9, -0.6]
    looks = (Look(5, t_quantile(4), None),)
    low = np.mean(differences) - t_quantile(4) * np.std(differences, ddof=1) / math.sqrt(5)
    assert -2 < low < 0
    assert decide(differences, looks).verdict == "undecided"
    assert decide(differences, looks, -low - 0.01).verdict == "undecided"
    found = decide(differences, looks, 2.0)
    assert found.verdict == "ahead"
    assert found.mean == pytest.approx(-0.02)
    assert str(found).startswith("not 2 points behind after 5 seeds: -0.02 points, t for -2 points = ")


# ---------------------------------------------------------------- planning
def test_components_are_those_of_the_figures() -> None:
    rng = np.random.default_rng(0)
    seeds, tasks = rng.normal(0, 0.02, (60, 1)), rng.normal(0, 0.06, (1, 400))
    found = Components.of(0.01 + seeds + tasks + rng.normal(0, 0.3, (60, 400)))
    assert found.seeds == pytest.approx(2, rel=0.3)
    assert found.tasks == pytest.approx(6, rel=0.2)
    assert found.residual == pytest.approx(30, rel=0.05)
    with pytest.raises(BadSetting, match="two seeds"):
        Components.of([[0.1, 0.2]])


@pytest.mark.parametrize(
    ("components", "needed"),
    [
        (Components(1.3, 6.4, 27), (10, 7, 4)),  # ALFWorld
        (Components(2.1, 1.1, 27), (14, 12, 6)),  # WebShop
        (Components(0.8, 4.3, 30), (8, 5, 4)),  # Search
        (Components(0, 13, 45), (31, 6, 6)),  # Canvas
        (Components(4.0, 1.9, 44), (43, 36, 12)),  # Sokoban
    ],
)
def test_seeds_for_a_difference(components: Components, needed: tuple[int, int, int]) -> None:
    found = [components.seeds_for(points, tasks) for points, tasks in ((2, 500), (2, 2000), (4, 500))]
    assert found == pytest.approx(needed, abs=1)  # the components are rounded


def test_more_tasks_are_chosen_where_tasks_dominate() -> None:
    of_tasks = cheapest(Components(0, 13, 45), 2, training=100, playing=0.05, most=5000)
    of_seeds = cheapest(Components(4, 0, 20), 2, training=100, playing=0.05, most=5000)
    assert of_tasks is not None
    assert of_seeds is not None
    assert of_tasks.tasks > of_seeds.tasks
    assert cheapest(Components(0, 60, 45), 0.1, training=1, playing=1, most=100) is None


# ---------------------------------------------------------------- registration
@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    words = ["--env", SOKOBAN, "--config", settings_file(tmp_path), "--algos", "grpo,rewardflow", "--settings", "small"]
    folders = ["--out", tmp_path / "runs", "--results", tmp_path / "results"]
    return [str(word) for word in (*words, *folders)]


def test_a_registration_is_never_replaced_and_changes_show(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "registered.json"
    assert compare.main([*arguments, "--register", str(file)]) == 0
    written = file.read_text()
    assert compare.main([*arguments, "--register", str(file)]) == 1
    assert file.read_text() == written
    file.write_text(written.replace('"rewardflow"', '"gigpo"'))
    with pytest.raises(BadData, match="was changed after it was registered"):
        Registration.read(file)
    file.write_text("{}")
    with pytest.raises(BadData, match="not a registration"):
        Registration.read(file)
    for wrong in (["--algos", "grpo,rloo,gigpo"], ["--settings", "small,large"]):
        assert compare.main([*arguments, *wrong, "--register", str(tmp_path / "other.json")]) == 1


def test_other_settings_than_registered_ones_are_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "registered.json"
    assert compare.main([*arguments, "--register", str(file)]) == 0
    settings_file(tmp_path, eval_episodes=11)
    assert compare.main([*arguments, "--until-decided", str(file)]) == 1
    assert "is not what was registered" in capsys.readouterr().out


def test_half_of_the_batches_are_registered_and_the_old_digest_stays(
    arguments: list[str], tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "half.json"
    words = [*arguments, "--algos", "grpo,rewardflow-half", "--seeds", "5", "--margin", "2", "--register", str(file)]
    assert compare.main(words) == 0
    found = Registration.read(file)
    assert (found.margin, found.looks) == (2.0, [Look(5, t_quantile(4), None)])
    assert found.made_with["own"]["rewardflow-half"] == {"credit": "rewardflow", "batches_share": 0.48}
    setting = read_settings(SOKOBAN, None, ["horizon40"])[0]
    steps = [setting.configs(name, 0, tmp_path)[2].max_steps for name in ("gagpo", "gagpo-half")]
    assert steps == [64 * 4, 31 * 4]
    assert Registration.read(root / "baselines" / "registered" / "sokoban_gagpo.json").margin == 0
    assert compare.main([*words[:-1], str(tmp_path / "other.json"), "--margin", "-1"]) == 1
    assert "--margin" in capsys.readouterr().out
    assert compare.main([*words[:-1], str(tmp_path / "other.json"), "--first-seed", "-1"]) == 1
    assert "--first-seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gain", "looks", "verdict", "first"),
    [(0.3, [5], "ahead", 0), (-0.1, [5], "futile", 0), (0.0, [5, 10], "futile", 0), (0.3, [5], "ahead", 100)],
)
def test_seeds_are_run_until_a_look_decides(
    gain: float,
    looks: list[int],
    verdict: str,
    first: int,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[int] = []

    def run_missing(plan: Plan, *_: Any) -> dict[Cell, Outcome]:
        if played:
            assert read_raw(tmp_path / "results" / "decided_registered.jsonl").header["decision"][:4] == "open"
        assert plan.seeds[0] == first
        played.append(len(plan.seeds))
        cells = list(plan.cells())
        assert {cell.name for cell in cells} == {WARM_START, "grpo", "rewardflow"}  # no controls
        return {cell: of(cell) for cell in cells}

    def of(cell: Cell) -> Outcome:
        rate = 0.5 + (gain if cell.name == "rewardflow" else 0.0)
        marks = [number < 400 * rate + (cell.seed % 3) for number in range(400)]
        curve = [Point(0, 0, 0.2)] if cell.name == WARM_START else [Point(100, 10, 0.4), Point(300, 20, 0.6)]
        return replace(outcome(cell.group, cell.name, cell.seed, marks), curve=curve)

    monkeypatch.setattr(compare, "run_missing", run_missing)
    file = tmp_path / "registered.json"
    assert compare.main([*arguments, "--first-seed", str(first), "--register", str(file)]) == 0
    assert compare.main([*arguments, "--until-decided", str(file)]) == 0
    raw = read_raw(tmp_path / "results" / "decided_registered.jsonl")
    assert raw.header["registered"] == Registration.read(file).digest == json.loads(file.read_text())["digest"]
    page = (tmp_path / "results" / "decided_registered.md").read_text("utf-8")
    assert raw.header["decision"] in page
    row = decided_table(tmp_path, tmp_path / "results").splitlines()[-1]
    seeds = f", seeds from {first} on" if first else ""
    assert f"| `rewardflow` is ahead of `grpo`{seeds} | {raw.header['decision']} | {100 * gain:+.1f} [" in row
    assert " | 100% | 0.0" in row
    other = replace(raw, header={**raw.header, "registered": "another"})
    write_raw(tmp_path / "results" / "decided_registered.jsonl", other)
    with pytest.raises(BadData, match="is not of the registration"):
        decided_table(tmp_path, tmp_path / "results")
    write_raw(tmp_path / "results" / "decided_registered.jsonl", replace(raw, outcomes=raw.outcomes[:1]))
    with pytest.raises(BadData, match="lacks the decision or runs"):
        decided_table(tmp_path, tmp_path / "results")
    assert "grpo 300 environment steps (100.0%), rewardflow 300 environment steps (100.0%)" in page
    assert played == looks
    assert raw.header["decision"].startswith(f"{verdict} after {looks[-1]} seeds")


def test_published_runs_are_not_repeated_on_another_machine(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (setting,) = read_settings(SOKOBAN, Path(arguments[3]), ["small"])
    plan = Plan(SOKOBAN, ("grpo", "rewardflow"), range(3), [setting], controls_too=False)
    marks = [True, False] * 5
    there = [outcome(cell.group, cell.name, cell.seed, marks) for cell in plan.cells() if cell.seed < 2]
    there = [one for one in there if (one.name, one.seed) != ("grpo", 1)]
    run: list[tuple[str, int]] = []

    @contextmanager
    def runner(_: int) -> Iterator[Any]:
        def work(jobs: list[Any]) -> Iterator[Outcome]:
            for _, cell, *_ in jobs:
                run.append((cell.name, cell.seed))
                yield outcome(cell.group, cell.name, cell.seed, marks)

        yield work

    monkeypatch.setattr("baselines.comparison.schedule.runner", runner)
    done = run_missing(plan, tmp_path / "runs", 1, Console(quiet=True), there)
    assert [*done] == [*plan.cells()]
    # Only the weights that a missing run begins with are cloned again.
    assert run == [(WARM_START, 1), (WARM_START, 2), ("grpo", 1), ("grpo", 2), ("rewardflow", 2)]


def test_runs_of_other_registered_comparisons_count_if_their_settings_are_the_same(
    arguments: list[str], tmp_path: Path
) -> None:
    (setting,) = read_settings(SOKOBAN, Path(arguments[3]), ["small"])
    plan = Plan(SOKOBAN, ("grpo", "rewardflow"), range(2), [setting], controls_too=False)
    runs = {cell: outcome(cell.group, cell.name, cell.seed, [True]) for cell in plan.cells()}
    other = replace(plan, algos=("grpo", "gigpo"))
    file = tmp_path / "decided.jsonl"
    write_raw(file, compare.figures(plan, runs, "a command"))
    found = {(one.name, one.seed) for one in compare._known(other, [read_raw(file)])}
    assert found == {(WARM_START, 0), (WARM_START, 1), ("grpo", 0), ("grpo", 1)}
    changed = replace(other, settings=[replace(setting, batches=setting.batches + 1)])
    assert not compare._known(changed, [read_raw(file)])
    changed = replace(other, settings=[replace(setting, variants={"grpo": {"credit": "grpo", "beta": 0.1}})])
    assert {one.name for one in compare._known(changed, [read_raw(file)])} == {WARM_START}


def test_results_of_another_registration_are_not_overwritten(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, results = tmp_path / "registered.json", tmp_path / "results" / "decided_registered.jsonl"
    assert compare.main([*arguments, "--register", str(file)]) == 0
    results.parent.mkdir()
    shape = dict.fromkeys(SHAPE, "")
    header = {"command": "", "env_id": SOKOBAN, "algos": [], "seeds": [], "settings": {"small": shape}}
    write_raw(results, Raw({**header, "registered": "another"}, [outcome("small", "grpo", 0, [True])]))
    before = results.read_bytes()
    assert compare.main([*arguments, "--until-decided", str(file)]) == 1
    assert "results of another registration" in " ".join(capsys.readouterr().out.split())
    assert results.read_bytes() == before


def test_the_docs_have_the_table_of_all_registrations(root: Path) -> None:
    table = decided_table(root / "baselines" / "registered", root / "baselines" / "results")
    told = "make it with python -m baselines.compare --decided baselines/registered"
    assert table in (root / "docs" / "results.md").read_text("utf-8"), told


def test_a_design_is_shown_for_every_pair(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = read_raw(root / "baselines" / "results" / "search.jsonl")
    compare.show_design(raw, 2.0, Console(width=160))
    told = capsys.readouterr().out
    assert "gigpo - grpo" in told
    assert "seeds," in told
