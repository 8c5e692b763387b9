"""A run whose workers, trainer and manager are killed ends with bitwise the same weights.

    python benchmarks/dataflow_kills.py [--batches 60] [--episodes 64] [--engine http|ray] [--output runs/kills]

Four runs of the tiny policy on Sokoban (6x6, one box) start with the same weights, those of a short warm start:

    plain         the trainer plays the episodes itself
    S=0 killed    workers play with the trainer's current weights; with kills
    S=4           workers play in fixed order, up to four updates ahead; no kills
    S=4 killed    the same, with kills

Kills are SIGKILLs at random times (`--seed`): of playing workers, of the trainer (restarted with `--resume true`) and
of the manager (restarted on its journal). Some workers are also stopped for longer than a lease, so that their commits
are late. The first two runs must end with equal weights, and so must the last two; every slot must be trained on
exactly once. Otherwise the script exits with status 1. `results.json` in the output folder has all results.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from _kills_report import digest, outcome, problems, table
from _supervised import PROGRAM, Child, OverHttp, Parts

from agentgym_flow._util.signals import sigterm_raises

SIZE = 8
"""Episodes per group."""

LOOK = 0.1
"""Seconds between two checks of a run."""

ENV = [
    "--env", "Sokoban-v0", "--config", "sokoban_tiny_long",
    "--env_kwargs", '{"size": 6, "boxes": 1, "min_pushes": 1}', "--threads", 1,
]  # fmt: skip
CHEAP = ["--validations", 0, "--eval_episodes", 1]
CLONE = ["--warm_start_updates", 400, "--warm_start_validations", 1, "--warm_start_validation_episodes", 1]


class Chaos:
    """Kills processes at random times during a run.

    Args:
        chosen: the settings of the script; None for no kills.
        batches: batches of the run.

    Attributes:
        done: number of kills by kind.
    """

    def __init__(self, chosen: argparse.Namespace | None, batches: int) -> None:
        self.done = dict.fromkeys(("worker", "stall", "trainer", "manager"), 0)
        self._due: list[tuple[float, str]] = []
        self._not_before = 0.0
        if chosen is None:
            return
        self._chance = random.Random(chosen.seed)
        self._stalled = 1.5 * chosen.lease_seconds
        wanted = {kind: getattr(chosen, f"{kind}_kills") for kind in ("worker", "trainer", "manager")}
        for kind, count in {**wanted, "stall": chosen.stalls}.items():
            self._due += [(self._chance.uniform(0.5, max(2.0, 0.9 * batches)), kind) for _ in range(count)]
        self._due.sort()

    @property
    def left(self) -> int:
        """The number of remaining kills."""
        return len(self._due)

    def strike(self, batch: int, parts: Parts, trainer: Child, status: dict[str, Any]) -> None:
        """Do the next kill if it is due after `batch` batches."""
        if not self._due or batch < self._due[0][0] or time.monotonic() < self._not_before:
            return
        kind = self._due[0][1]
        struck = True
        if kind == "worker":
            struck = parts.kill_worker(self._chance, status)
        elif kind == "stall":
            struck = parts.stall_worker(self._chance, status, self._stalled)
        elif kind == "manager":
            struck = parts.kill_manager()
        elif trainer.ended() is None:
            trainer.kill()
        if struck:
            self._due.pop(0)
            self.done[kind] += 1
            self._not_before = time.monotonic() + self._chance.uniform(0, 1.5)


def train_command(chosen: argparse.Namespace, output: Path) -> list[object]:
    """Return the command of a run without a dataflow."""
    groups = chosen.episodes // SIZE
    batch = [
        "--num_generations",
        SIZE,
        "--groups_per_batch",
        groups,
        "--per_device_train_batch_size",
        chosen.episodes // 4,
    ]
    steps = ["--max_steps", 2 * chosen.batches, "--steps_per_batch", 2]
    save = ["--save_strategy", "steps", "--save_steps", 2 * chosen.save_every, "--save_total_limit", 3]
    model = ["--model", chosen.output / "warm" / "warm_start", "--warm_start_levels", 0]
    return [*PROGRAM, "train", "rewardflow", *ENV, *CHEAP, *model, *batch, *steps, *save, "--output_dir", output]


def warm_start(output: Path) -> None:
    """Create the initial weights of all runs."""
    batch = ["--max_steps", 1, "--num_generations", 2, "--groups_per_batch", 2, "--steps_per_batch", 1]
    batch += ["--per_device_train_batch_size", 1]
    levels = ["--warm_start_levels", 200, *CLONE]
    command = [*PROGRAM, "train", "rewardflow", *ENV, *CHEAP, *levels, *batch, "--output_dir", output / "warm"]
    finish(Child("warm", command, output))


def finish(child: Child) -> None:
    """Run a process to its end. Exits the script if it fails."""
    child.start()
    try:
        while (status := child.ended()) is None:
            time.sleep(LOOK)
    finally:
        child.close()
    if status:
        raise SystemExit(f"{child.log} ended with status {status}: {child.said()}")


def plain(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run the plain trainer."""
    output, started = chosen.output / "plain", time.perf_counter()
    finish(Child("plain", train_command(chosen, output), chosen.output))
    return {**outcome(output), "seconds": time.perf_counter() - started}


def with_workers(chosen: argparse.Namespace, name: str, staleness: int, killed: bool) -> dict[str, Any]:
    """Run a trainer with workers; return the results."""
    output, folder = chosen.output / name, chosen.output / f"{name}-parts"
    folder.mkdir(parents=True)
    settings = folder / "flow.yaml"
    workers = 0 if chosen.engine == "http" else chosen.workers
    flow = {"staleness": staleness, "workers": workers, "lease_seconds": chosen.lease_seconds, "deadline": 300}
    settings.write_text(yaml.safe_dump({**flow, "num_envs": chosen.num_envs}), "utf-8")
    parts = parts_of(chosen, folder, settings, output)
    chaos = Chaos(chosen if killed else None, chosen.batches)
    started = time.perf_counter()
    try:
        parts.start()
        command = [*train_command(chosen, output), "--dataflow", settings, *parts.trainer_options()]
        trainer = Child("trainer", command, folder, parts.trainer_environment())
        trainer.again = [*command, "--resume", "true"]
        watch(trainer, parts, chaos, chosen.batches)
    finally:
        status = parts.close()
    (stream,) = status["streams"].values()
    figures = {"kills": chaos.done, "missed": chaos.left, "staleness": staleness, **stream}
    return {**outcome(output), **figures, "seconds": time.perf_counter() - started}


def parts_of(chosen: argparse.Namespace, folder: Path, settings: Path, output: Path) -> Parts:
    """Return the manager and workers of a run, not yet started."""
    if chosen.engine == "http":
        return OverHttp(folder, settings, workers=chosen.workers, num_envs=chosen.num_envs)
    from _on_ray import OnRay

    return OnRay(folder, settings, run=output, workers=chosen.workers)


def watch(trainer: Child, parts: Parts, chaos: Chaos, batches: int) -> None:
    """Run a trainer to its end, with kills and restarts."""
    trainer.start()
    shown = -1
    try:
        while (ended := trainer.ended()) != 0:
            if ended is not None:
                if ended != -9:
                    raise SystemExit(f"{trainer.log} ended with status {ended}: {trainer.said()}")
                trainer.start()
            status = parts.look()
            if status is not None and status["streams"]:
                (stream,) = status["streams"].values()
                (policy,) = stream["policies"].values()
                chaos.strike(policy["done"], parts, trainer, status)
                if policy["done"] // 5 != shown:
                    shown = policy["done"] // 5
                    print(f"  batch {policy['done']} of {batches}, killed {chaos.done}", file=sys.stderr, flush=True)
            time.sleep(LOOK)
    finally:
        trainer.close()


def arguments() -> argparse.Namespace:
    """Return the settings of the script."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("http", "ray"), default="http")
    parser.add_argument("--output", type=Path, default=Path("runs/kills"), help="replaced if it exists")
    for name, default, text in (
        ("batches", 60, "batches per run"),
        ("episodes", 64, f"episodes per batch, a multiple of {SIZE}"),
        ("staleness", 4, "S of the last two runs"),
        ("workers", 2, "workers at a time"),
        ("num-envs", 16, "episodes that a worker plays at a time"),
        ("save-every", 5, "batches between two checkpoints"),
        ("worker-kills", 20, "SIGKILLs of workers that play"),
        ("stalls", 3, "workers that are stopped for longer than a lease"),
        ("trainer-kills", 3, "SIGKILLs of the trainer"),
        ("manager-kills", 3, "SIGKILLs of the manager"),
        ("seed", 0, "of the times and targets of kills"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default {default})")
    parser.add_argument("--lease-seconds", type=float, default=6.0, help="duration of a lease (default 6)")
    return parser.parse_args()


def main() -> None:
    """Do the four runs and print the table; exit with status 1 if a requirement is violated."""
    chosen = arguments()
    shutil.rmtree(chosen.output, ignore_errors=True)
    chosen.output.mkdir(parents=True)
    ahead = f"S={chosen.staleness}"
    runs: dict[str, dict[str, Any]] = {}
    with sigterm_raises():
        warm_start(chosen.output)
        runs["plain"] = plain(chosen)
        for name, staleness, killed in (
            ("S=0 killed", 0, True),
            (ahead, chosen.staleness, False),
            (f"{ahead} killed", chosen.staleness, True),
        ):
            print(f"{name} ...", file=sys.stderr, flush=True)
            runs[name] = with_workers(chosen, name.replace("=", "").replace(" ", "-"), staleness, killed)
    same = digest(chosen.output / "warm" / "warm_start")
    found = problems(runs, chosen.batches, chosen.episodes, begun_with=same)
    (chosen.output / "results.json").write_text(json.dumps({"runs": runs, "problems": found}, indent=2), "utf-8")
    print(table(runs))
    for problem in found:
        print(f"PROBLEM: {problem}")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
