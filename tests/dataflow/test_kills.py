"""Workers, trainer and manager are killed, each a process of its own: the weights at the end are the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

FEW = {
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


@pytest.mark.heavy
def test_kills_of_everything_change_no_bit(root: Path, tmp_path: Path) -> None:
    options = [word for name, value in FEW.items() for word in (f"--{name}", str(value))]
    script = root / "benchmarks" / "dataflow_kills.py"
    done = subprocess.run(
        [sys.executable, script, *options, "--output", tmp_path / "kills"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads((tmp_path / "kills" / "results.json").read_text("utf-8"))
    assert found["problems"] == []
    plain, present, ahead, killed = found["runs"].values()
    assert plain["weights"] == present["weights"] != ahead["weights"] == killed["weights"]
    for run in (present, killed):
        assert run["kills"] == {"worker": 2, "trainer": 1, "manager": 1, "stall": 1}
        assert run["counts"]["expired"] > 0
        assert run["states"]["trained"] + run["states"]["used"] == 6 * 16
