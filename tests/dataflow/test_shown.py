"""The long demonstrations of benchmarks/, in short: kills, nodes that come and go, and a region that is far away."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")


FEW: dict[str, float | str] = {
    "batches": 16,
    "episodes": 16,
    "staleness": 2,
    "num-envs": 4,
    "save-every": 2,
    "worker-kills": 2,
    "stalls": 1,
    "trainer-kills": 1,
    "manager-kills": 1,
    "lease-seconds": 3,
}


def results(root: Path, name: str, options: dict[str, float | str], folder: Path, *more: str) -> dict[str, Any]:
    """Run a benchmark and return its figures."""
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    done = subprocess.run(
        [sys.executable, root / "benchmarks" / f"{name}.py", *words, *more, "--output", folder / name],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads((folder / name / "results.json").read_text("utf-8"))
    assert found["problems"] == []
    return found


@pytest.mark.nightly
def test_nodes_that_join_and_leave_change_no_bit(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    few: dict[str, float | str] = {"batches": 40, "episodes": 16, "num-envs": 2, "median": 1.0, "phase": 8.0}
    found = results(root, "dataflow_elastic", few, tmp_path)
    assert [phase["what"] for phase in found["phases"]] == ["a joins", "b joins", "c joins", "a is killed"]
    assert {name.partition("/")[0] for name, count in found["workers"].items() if count} == {"a", "b", "c"}
    assert (tmp_path / "dataflow_elastic" / "throughput.svg").stat().st_size > 1000


def may_have_namespaces() -> bool:
    """Whether this process may make a network namespace and shape its traffic."""
    script = (
        "ip link add agf-try type veth peer name agf-peer && tc qdisc add dev agf-try root tbf rate 1mbit burst 9kb"
    )
    return (
        bool(shutil.which("tc"))
        and not subprocess.run(
            ["unshare", "--net", "sh", "-c", f"{script} limit 9kb && ip netns list"], capture_output=True, check=False
        ).returncode
    )


@pytest.mark.nightly
@pytest.mark.skipif(not may_have_namespaces(), reason="network namespaces need root, ip and tc")
def test_a_far_region_and_a_forger_change_no_bit(root: Path, tmp_path: Path) -> None:
    few: dict[str, float | str] = {"batches": 6, "episodes": 16, "median": 0.3}
    runs = results(root, "dataflow_regions", few, tmp_path, "--only", "faults", "forger")["runs"]
    assert {run["weights"] for run in runs.values()} == {runs["home"]["weights"]}
    assert runs["forger"]["counts"]["rejected"] > 0


@pytest.mark.nightly
def test_kills_of_everything_change_no_bit(root: Path, tmp_path: Path) -> None:
    found = results(root, "dataflow_kills", FEW, tmp_path)
    plain, present, ahead, killed = found["runs"].values()
    assert plain["weights"] == present["weights"] != ahead["weights"] == killed["weights"]
    for run in (present, killed):
        assert run["kills"] == {"worker": 2, "trainer": 1, "manager": 1, "stall": 1}
        assert run["counts"]["expired"] > 0
        assert run["states"]["trained"] + run["states"]["used"] == 16 * 16


def test_runs_of_a_study_side_by_side_have_core_seconds_of_their_own(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run is idle until the other's process has worked and ended. A table needs no synchronous run."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    import dataflow_study as study  # type: ignore[import-not-found]

    assert all((mode.models > 1) == name.startswith("two models") for name, mode in study.MODES.items())
    busy, done = "import time\nwhile time.process_time() < 0.3: pass", tmp_path / "done"

    def play(_: Any, folder: Path, mode: Any, team: Any, seed: int, begin: Any) -> None:
        if seed:
            subprocess.run([sys.executable, "-S", "-c", busy], check=True)
            done.touch()
        while not done.exists():
            time.sleep(0.01)

    def cloned(*_: Any) -> Path:  # it goes to another process by its name
        return before

    before = tmp_path / "cloned" / "0"
    before.mkdir(parents=True)
    (before / study.TESTS).write_text('{"sampled": 0.5, "greedy": 0.25}', "utf-8")
    found = {"seconds": [1.0], "success": [0.5], "sample_size": 1.0, "idle": 10.0, "tests": {}}
    for name, value in (
        ("_play", play),
        ("cloned", cloned),
        ("_test_team", lambda *_: {"sampled": 0.75, "greedy": 0.25}),
    ):
        monkeypatch.setattr(study.Study, name, value)
    monkeypatch.setattr(study.Study, "_figures", lambda *_: found)
    pool = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("fork"))  # it has what is replaced above
    monkeypatch.setattr(study, "ProcessPoolExecutor", pool)
    options = ["--jobs", "2", "--seeds", "2", "--output", str(tmp_path), "--only", "two models, fixed, S = 4"]
    monkeypatch.setattr(sys, "argv", ["dataflow_study.py", *options])
    study.main()
    runs = [*map(json.loads, map(Path.read_text, tmp_path.glob("*/*.json")))]
    assert [run["tests"] for run in runs] == [{"sampled": [0.5, 0.75], "greedy": [0.25, 0.25]}] * 2
    spent = {run["seed"]: run["core_seconds"] for run in runs}
    assert 2 * spent[0] < spent[1]  # otherwise each would count the other
    assert "| two models, fixed, S = 4 | 1.00 ± 0.00 |  |" in capsys.readouterr().out


def test_runs_of_a_study_are_compared_at_equal_success(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both reach the lower level of their ends; the mean of 8 updates counts, not one lucky update."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    import dataflow_study as study

    slow = {"seconds": [10.0 * n for n in range(1, 13)], "success": [0.0] * 4 + [0.5] * 8}
    fast = {"seconds": [1.0 * n for n in range(1, 13)], "success": [1.0] + [0.0] * 3 + [1.0] * 8}
    assert study.level(slow["success"], 8) == [0.25, 0.3125, 0.375, 0.4375, 0.5]
    assert study.level([0.5, 1.0], 8) == [0.75]
    tests = {"sampled": [0.25, 0.5], "greedy": [0.5, 0.5]}
    rest = {"seed": 0, "core_seconds": 7.0, "idle": 10.0, "sample_size": 1.0, "tests": tests}
    names = "two models, synchronous, taking turns", "two models, fixed, S = 4"
    study.table([{"mode": names[0], **slow, **rest}, {"mode": names[1], **fast, **rest}], 12, 8)
    head, _, turns, fixed = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    of = dict(zip(head, zip(turns, fixed, strict=True), strict=True))
    assert of["seconds to equal success"] == ("120.00", "8.00")
    assert of["last minus synchronous"] == ("0.00", "50.00")
    assert of["tests, sampled"] == ("50.00", "50.00")


def test_the_members_of_a_team_in_a_study_share_an_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the tiny models and a pretrained one, which goes on with the adapters that it has cloned into."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    from _study_team import TINY, with_pretrained  # type: ignore[import-not-found]

    from agentgym_flow.training.config_file import parse_configs

    for team in (TINY, with_pretrained(tmp_path)):
        assert {*team.turns} == {*team.members}
        words = [[*team.options(name), *one.begin(tmp_path, None)] for name, one in team.members.items()]
        configs = [parse_configs([f"--credit={first}", *map(str, rest)]) for first, *rest in words]
        assert [run.env_settings for run, _, _ in configs] == [team.env_kwargs] * 2
        assert [agent.steps_per_batch for _, _, agent in configs] == [one.steps for one in team.members.values()]
    answerer, cloned = team.members["answerer"], tmp_path / "cloned"
    assert answerer.begin(tmp_path, None) == ["--model", tmp_path]
    cloned.mkdir()
    (cloned / "adapter_config.json").touch()
    assert answerer.begin(tmp_path, cloned) == ["--model", cloned, "--warm_start_levels", 0, "--lora", "false"]
    words = [*team.options("answerer")[1:], *answerer.begin(tmp_path, cloned)]
    run, warm, agent = parse_configs([*map(str, words)])
    assert (run.lora, warm.warm_start_levels, agent.layout) == (False, 0, "conversation")
