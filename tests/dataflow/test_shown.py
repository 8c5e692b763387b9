"""The long demonstrations of benchmarks/, in short: kills, nodes that come and go, and a region that is far away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

FEW: dict[str, float | str] = {
    "batches": 6,
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


@pytest.mark.heavy
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


@pytest.mark.heavy
@pytest.mark.skipif(not may_have_namespaces(), reason="network namespaces need root, ip and tc")
def test_a_far_region_and_a_forger_change_no_bit(root: Path, tmp_path: Path) -> None:
    few: dict[str, float | str] = {"batches": 6, "episodes": 16, "median": 0.3}
    runs = results(root, "dataflow_regions", few, tmp_path, "--only", "faults", "forger")["runs"]
    assert {run["weights"] for run in runs.values()} == {runs["home"]["weights"]}
    assert runs["forger"]["counts"]["rejected"] > 0


@pytest.mark.heavy
def test_kills_of_everything_change_no_bit(root: Path, tmp_path: Path) -> None:
    found = results(root, "dataflow_kills", FEW, tmp_path)
    plain, present, ahead, killed = found["runs"].values()
    assert plain["weights"] == present["weights"] != ahead["weights"] == killed["weights"]
    for run in (present, killed):
        assert run["kills"] == {"worker": 2, "trainer": 1, "manager": 1, "stall": 1}
        assert run["counts"]["expired"] > 0
        assert run["states"]["trained"] + run["states"]["used"] == 6 * 16
