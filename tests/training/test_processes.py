"""Several processes learn what one learns from the same episodes, also when a group is split between them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("play_and_learn.py")


@pytest.mark.heavy
@pytest.mark.parametrize("merge", [0, 1])
def test_two_processes_learn_what_one_learns(merge: int, run_processes: Callable[..., None], tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    weights = []
    for name, before, episodes in (("one", [], 12), ("two", launcher, 6)):  # 3 groups of 4; the second one is split
        (tmp_path / name).mkdir()
        run_processes([sys.executable, *before, PROGRAM, tmp_path / name, merge, episodes])
        weights.append(torch.load(tmp_path / name / "weights.pt"))
    for one, two in zip(*weights, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)
