"""The long demonstrations of benchmarks/, in short: kills, nodes that come and go, and a region that is far away."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

from agentgym_flow.replay import verify_log

WHEN, HOW = ("before", "after"), ("sampled", "greedy")
"""The evaluations of a team."""

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

    def cloned(*_: Any) -> None:  # it goes to another process by its name
        pass

    found = {"seconds": [1.0], "success": [0.5], "sample_size": 1.0, "idle": 10.0, "tests": {}}
    for name, value in (("_play", play), ("cloned", cloned), ("_test_team", lambda *_: {})):
        monkeypatch.setattr(study.Study, name, value)
    monkeypatch.setattr(study.Study, "_figures", lambda *_: found)
    pool = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("fork"))  # it has what is replaced above
    monkeypatch.setattr(study, "ProcessPoolExecutor", pool)
    options = ["--jobs", "2", "--seeds", "2", "--output", str(tmp_path), "--only", "two models, fixed, S = 4"]
    monkeypatch.setattr(sys, "argv", ["dataflow_study.py", *options])
    study.main()
    spent = {
        one["seed"]: one["core_seconds"] for one in map(json.loads, map(Path.read_text, tmp_path.glob("*/*.json")))
    }
    assert 2 * spent[0] < spent[1]  # otherwise each would count the other
    assert "| two models, fixed, S = 4 | 1.00 ± 0.00 |  |" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("models", [1, 2])
def test_one_policy_goes_on_while_the_trainer_of_another_is_dead(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: int
) -> None:
    """With two models, `b` has another tokenizer and prompt than `a`, and one conversation an episode."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    from _byte_level import byte_level_tokenizer, write_model  # type: ignore[import-not-found]
    from _kills_report import digest  # type: ignore[import-not-found]
    from _supervised import PROGRAM, Child, OverHttp  # type: ignore[import-not-found]

    batches, staleness, dies_at = 10, 3, 4
    settings = tmp_path / "flow.yaml"
    settings.write_text(f"{{staleness: {staleness}, workers: 0, deadline: 300, turns: [a, b, ...]}}", "utf-8")
    env = [
        "--env", "Sokoban-v0", "--config", "sokoban_tiny_long",
        "--env_kwargs", '{"size": 6, "boxes": 1, "min_pushes": 3, "max_steps": 8}', "--threads", 1,
    ]  # fmt: skip
    size = ["--num_generations", 4, "--groups_per_batch", 4, "--steps_per_batch", 1]
    size += ["--per_device_train_batch_size", 4]
    rest = ["--max_steps", batches, "--save_strategy", "steps", "--save_steps", 2, "--validations", 0]
    few = ["--warm_start_levels", 8, "--warm_start_updates", 20, "--warm_start_validations", 1, "--eval_episodes", 1]
    of_b: list[object] = []
    if models == 2:
        tokenizer = byte_level_tokenizer("agentgym_flow/Sokoban-v0", {"size": 6}, episodes=10)
        write_model(tmp_path / "qwen", tokenizer, width=32, layers=1, heads=2, context=2048, theta=1e3)
        of_b = [
            "--model", tmp_path / "qwen", "--template", "text", "--layout", "conversation", "--merge_prompts", "false",
            "--max_completion_length", 4, "--template_settings", '{"think": false}', "--steps_per_batch", 2,
            "--max_steps", 2 * batches, "--save_steps", 4, "--warm_start_updates", 4, "--warm_start_batch", 8,
        ]  # fmt: skip

    def played(folder: Path, *, dies: bool) -> list[str]:
        """Train a team, and kill the trainer of `a`, for a while or not at all; return what the weights come to."""
        folder.mkdir()
        parts = OverHttp(folder, settings, workers=2, num_envs=8)
        parts.start()
        trainers = {}
        for name in ("a", "b"):
            flow = ["--dataflow", settings, "--policy", name, *parts.trainer_options(), "--output_dir", folder / name]
            command = [*PROGRAM, "train", "grpo", *env, *size, *rest, *few, *flow, *(of_b if name == "b" else ())]
            trainers[name] = Child(name, command, folder, parts.trainer_environment())
            trainers[name].again = [*command, "--resume", "true"]
            trainers[name].start()

        def done() -> dict[str, int]:
            streams = (parts.look() or {"streams": {}})["streams"].values()
            return {name: figures["done"] for one in streams for name, figures in one["policies"].items()}

        def wait_until(reached: Callable[[dict[str, int]], bool]) -> dict[str, int]:
            for _ in range(3000):
                if reached(found := done()):
                    return found
                failed = [one.said() for one in trainers.values() if one.ended() not in (None, 0, -signal.SIGKILL)]
                assert not failed, failed
                time.sleep(0.1)
            raise AssertionError(f"{found}: {[one.said() for one in trainers.values()]}")

        try:
            if dies:
                wait_until(lambda now: now.get("a", 0) >= dies_at)
                trainers["a"].kill()
                dead_at = done()["a"]
                ahead = wait_until(lambda now: now.get("b", 0) > dead_at + 1)
                assert ahead["a"] == dead_at, "its trainer is dead"
                trainers["a"].start()
            wait_until(lambda now: now == {"a": batches, "b": batches})
            for child in trainers.values():
                assert child.process is not None
                assert child.process.wait(60) == 0, child.said()
        finally:
            for child in trainers.values():
                child.close()
            status = parts.close()
        (stream,) = status["streams"].values()
        assert stream["states"]["used"] + stream["states"]["trained"] == 16 * batches
        for name in trainers:
            summary = json.loads((folder / name / "summary.json").read_text("utf-8"))
            assert summary.keys() == {"status", "seconds"}, "alone a policy of a team is not evaluated"
        return [digest(folder / name / "checkpoint") for name in ("a", "b")]

    assert played(tmp_path / "killed", dies=True) == played(tmp_path / "calm", dies=False)
    runs, out = [tmp_path / "calm" / name for name in ("a", "b")], tmp_path / "team"
    words = [*PROGRAM, "dataflow", "evaluate", *runs, "--before", "--episodes", 3, "--out", out]
    subprocess.run([*map(str, words)], cwd=root, check=True, timeout=600)
    assert all(verify_log(out / f"{when}_{how}.jsonl.gz", jobs=0).matched == 3 for when, how in product(WHEN, HOW))
