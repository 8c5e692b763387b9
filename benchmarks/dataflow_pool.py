"""Two runs in different environments with different algorithms share one manager and one pool of workers; both learn.

    python benchmarks/dataflow_pool.py [--seeds 3] [--batches 24] [--output runs/pool]

`agentgym-flow dataflow serve` and two workers serve two runs at once: GRPO on Sokoban (6x6, one box, three pushes) and
RewardFlow on ALFWorld (16 steps). Each has its own stream and batches of 16 tasks x 8 attempts, in fixed order with
S = 4. Every worker plays both. Success is measured on test tasks before and after training, sampled and greedy; gains
are paired by task, and intervals are bootstraps over seeds and tasks.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import yaml  # type: ignore[import-untyped]
from _supervised import PROGRAM, Child, OverHttp, finish
from _timing import print_header, print_row
from dataflow_team import points

from agentgym_flow.dataflow.trace import NAME, read_trace
from agentgym_flow.episodes import read_log

GROUPS, SIZE, STEPS = 16, 8, 2
BATCH = [
    "--num_generations", SIZE, "--groups_per_batch", GROUPS, "--steps_per_batch", STEPS, "--steps_per_generation", 4,
    "--per_device_train_batch_size", GROUPS * SIZE // 4, "--save_strategy", "no", "--validations", 0, "--threads", 1,
]  # fmt: skip
RUNS: Mapping[str, tuple[str, list[str]]] = {
    "sokoban": (
        "grpo",
        [
            "--env",
            "Sokoban-v0",
            "--config",
            "sokoban_tiny_long",
            "--env_kwargs",
            '{"size": 6, "boxes": 1, "min_pushes": 3}',
        ],
    ),
    "alfworld": ("rewardflow", ["--env", "ALFWorld-v0", "--env_kwargs", '{"max_steps": 16}']),
}
"""Algorithm and environment of each run, by the name of its policy."""

HOW = ("sampled", "greedy")


def run(folder: Path, seed: int, batches: int, tests: int) -> None:
    """Do both runs of a seed at the same time."""
    folder.mkdir(parents=True)
    settings = folder / "flow.yaml"
    settings.write_text(yaml.safe_dump({"staleness": 4, "workers": 0, "deadline": 900, "trace": True}), "utf-8")
    parts = OverHttp(folder, settings, workers=2, num_envs=64)
    try:
        parts.start()
        trainers = []
        for name, (algorithm, env) in RUNS.items():
            length = ["--seed", seed, "--max_steps", STEPS * batches, "--eval_episodes", tests]
            flow = ["--dataflow", settings, "--policy", name, *parts.trainer_options(), "--output_dir", folder / name]
            command = [*PROGRAM, "train", algorithm, *env, *BATCH, *length, *flow]
            trainers.append(Child(name, command, folder, parts.trainer_environment()))
        finish(*trainers)
    finally:
        parts.close()


def successes(folder: Path, name: str, moment: str, how: str) -> list[float]:
    """Return the success of a run on each test task."""
    return [float(line.success) for line in read_log(folder / name / "evaluations" / f"{moment}_{how}.jsonl.gz")]


def shares(folder: Path) -> dict[str, Counter[str]]:
    """Return the number of accepted episodes of each run by worker."""
    found: dict[str, Counter[str]] = {}
    for event in read_trace(folder / "manager" / NAME):
        if event["what"] == "commit":
            found.setdefault(event["worker"], Counter())[event["stream"]] += event["verdicts"].count("accepted")
    return found


def main() -> None:
    """Do all runs, and print the tables."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/pool"), help="replaced if it exists")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--tests", type=int, default=300)
    chosen = parser.parse_args()
    shutil.rmtree(chosen.output, ignore_errors=True)
    folders = [chosen.output / f"seed-{seed}" for seed in range(chosen.seeds)]
    for seed, folder in enumerate(folders):
        run(folder, seed, chosen.batches, chosen.tests)
        print(f"seed {seed}: done", file=sys.stderr, flush=True)
    print_header("run", "sampled before", "after", "gain", "greedy before", "after", "gain")
    for name, (algorithm, _) in RUNS.items():
        cells = []
        for how in HOW:
            before, after = (
                np.array([successes(folder, name, moment, how) for folder in folders]) for moment in ("before", "after")
            )
            cells += [points(before), points(after), points(after - before)]
        print_row(f"{name}, {algorithm}", *cells)
    print()
    print_header("worker", *RUNS)
    for folder in folders:
        for worker, counts in sorted(shares(folder).items()):
            print_row(f"{folder.name}, {worker}", *(f"{counts[name]:,}" for name in RUNS))


if __name__ == "__main__":
    main()
