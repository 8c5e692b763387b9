"""Does the simulator, calibrated from one recorded run, predict runs with other numbers of workers and staleness?

    python benchmarks/dataflow_twin.py [--output runs/twin] [--jobs 4] [--updates 20] [--other-draws]

A tiny policy trains on Sokoban in batches of 4 tasks x 8 attempts. Episodes take a given time (lognormal, `--median`
and `--sigma`) in addition to what this machine computes, and so does an update (`--training`). The script records
the run `CALIBRATION`, predicts the runs in `HELD_OUT` from its trace as `agentgym-flow dataflow simulate --like` does,
and compares with what these runs really take, from the first lease to the end of the last update.

The duration of an episode depends only on its slot, so the runs have the same episodes. With `--other-draws`, the
held-out runs have other durations from the same distribution.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

from _latency_worker import slowing_worker
from _supervised import PROGRAM, Child
from dataflow_kills import finish, train_command, warm_start

CALIBRATION = (4, "fixed", 1)
"""Workers, order, staleness."""

HELD_OUT = (
    (2, "fixed", 2), (4, "fixed", 0), (8, "fixed", 0), (8, "fixed", 4), (2, "ready", 1), (8, "ready", 2)
)  # fmt: skip
SEEDS = 5


def name_of(setting: tuple[int, str, int]) -> str:
    """Return the name of a run."""
    return "-".join(map(str, setting))


def train(chosen: argparse.Namespace, setting: tuple[int, str, int], seed: int) -> None:
    """Do one run in this process."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    from rich.console import Console

    from agentgym_flow.dataflow import run
    from agentgym_flow.dataflow.batches import LeasedGroups
    from agentgym_flow.dataflow.config import FlowConfig
    from agentgym_flow.dataflow.local_engine import PRELOADED, LocalEngine
    from agentgym_flow.training.config_file import parse_configs

    workers, order, staleness = setting
    latency = {"median": chosen.median, "sigma": chosen.sigma, "seed": seed}

    def engine(*arguments: Any, **more: Any) -> LocalEngine:
        models = [name for name in sys.modules if name.startswith("transformers.models.")]
        multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOADED, "_latency_worker", *models])
        return LocalEngine(*arguments, program=partial(slowing_worker, **latency), **more)

    config = FlowConfig(workers=workers, order=order, staleness=staleness, num_envs=chosen.num_envs, trace=True)
    output = chosen.output / (name_of(setting) + ("-other" if seed else ""))
    words = [*map(str, train_command(chosen, output))][len(PROGRAM) + 4 :]
    take = LeasedGroups.take

    def taken(source: LeasedGroups, batch: int, version: int) -> Any:
        while batch == 0 and len(source._flow.status()["workers"]) < workers:
            time.sleep(0.1)  # the start of all workers takes many seconds on a busy machine, and is not predicted
        found = take(source, batch, version)
        time.sleep(chosen.training)
        return found

    with mock.patch.object(run, "LocalEngine", engine), mock.patch.object(LeasedGroups, "take", taken):
        arguments = [*words, "--credit=rewardflow", "--env_id=agentgym_flow/Sokoban-v0"]
        run.train(parse_configs(arguments), config, "local", "policy", Console(stderr=True))


def table(chosen: argparse.Namespace) -> None:
    """Print predictions and results."""
    from agentgym_flow.dataflow.simulator import simulate
    from agentgym_flow.dataflow.simulator.calibration import calibrated, duration, told
    from agentgym_flow.dataflow.trace import read_trace

    def events(setting: tuple[int, str, int], suffix: str) -> Any:
        return read_trace(chosen.output / (name_of(setting) + suffix) / "dataflow" / "trace.jsonl")

    twin = calibrated(events(CALIBRATION, ""))
    print(told(twin))
    columns = ("workers", "order, S", "measured", "same episodes", "error", "drawn episodes", "error")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    found = {}
    for workers, order, staleness in (CALIBRATION, *HELD_OUT):
        setting = workers, order, staleness
        suffix = "-other" if chosen.other_draws and setting != CALIBRATION else ""
        measured = duration(events(setting, suffix))
        regions = (replace(twin.regions[0], workers=workers),)
        scenario = replace(twin, regions=regions, mode=order, staleness=staleness)
        same = 3600 * simulate(scenario).hours
        drawn = 3600 * mean(simulate(replace(scenario, known={}), seed).hours for seed in range(SEEDS))
        found[setting] = measured, same, drawn
        errors = [f"{one / measured - 1:+.1%}" for one in (same, drawn)]
        cells = [f"{measured:.1f}", f"{same:.1f}", errors[0], f"{drawn:.1f}", errors[1]]
        print(f"| {workers} | {order}, {staleness} | {' | '.join(cells)} |")
    held = {setting: found[setting] for setting in HELD_OUT}
    best, called = (min(held, key=lambda one: held[one][index]) for index in (0, 1))
    print(f"best: {best}, called best: {called}, {held[called][0] / held[best][0] - 1:+.1%} of the best")


def main() -> None:
    """Do all runs that are not done yet, and print the table."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/twin"), help="existing runs are not repeated")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--num-envs", type=int, default=4, help="episodes that a worker plays at a time")
    parser.add_argument("--median", type=float, default=2.0, help="median duration of an episode in seconds")
    parser.add_argument("--sigma", type=float, default=0.8, help="of its logarithm")
    parser.add_argument("--training", type=float, default=2.0, help="seconds added to each update")
    parser.add_argument("--other-draws", action="store_true")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.episodes, chosen.batches, chosen.save_every = 32, chosen.updates, 1000
    if chosen.run is not None:
        workers, order, staleness = chosen.run
        train(chosen, (int(workers), order, int(staleness)), int(chosen.other_draws))
        return
    chosen.output.mkdir(parents=True, exist_ok=True)
    if not (chosen.output / "warm" / "summary.json").exists():
        warm_start(chosen.output)

    def one(setting: tuple[int, str, int]) -> None:
        suffix = "-other" if chosen.other_draws and setting != CALIBRATION else ""
        folder = chosen.output / (name_of(setting) + suffix)
        if (folder / "report.html").exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        words = [word for word in sys.argv[1:] if word != "--other-draws"]
        command = [sys.executable, __file__, *words, *(["--other-draws"] if suffix else []), "--run", *setting]
        finish(Child(name_of(setting) + suffix, command, chosen.output))

    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(one, (CALIBRATION, *HELD_OUT)))
    table(chosen)


if __name__ == "__main__":
    main()
