"""What an episode costs that a policy learns from, in core-seconds, and what passes by length save of that.

    python benchmarks/learning_cost.py [--envs Sokoban-v0 Search-v0 ...] [--batches 4] [--repetitions 2]

The packaged settings of each environment with RewardFlow, one thread, after a warm start of its own. Two sides, one
after the other in turns: updates whose minibatches are one forward pass each, padded to their longest prompt, and
updates whose prompts of similar length share a pass (`loss.passes_by_length`). Everything else is the same, so rollouts
begin alike and weights differ in their last bits.

Figures are CPU seconds of the process: of rollouts, of credit and rows, of updates, and in all, per 1,000 episodes; the
share of padding in updates; and how much dearer the first side is, in updates and in all. The median of the
repetitions counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console

from agentgym_flow.training import loss
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.recipe import Recipe, opened
from agentgym_flow.training.run import quiet

ENVIRONMENTS = ("Sokoban-v0", "ALFWorld-v0", "WebShop-v0", "Search-v0", "Canvas-v0")
PHASES = ("time/env", "time/generate", "time/score", "time/update")
ONE_PASS = 1 << 60
"""With so many rows a pass is never closed."""


def run(env_id: str, batches: int, whole: bool, folder: Path) -> dict[str, float]:
    """Train for some batches; return CPU seconds per 1,000 episodes by phase and in all, and the share of padding."""
    words = [f"--env_id=agentgym_flow/{env_id}", f"--output_dir={folder}", "--threads=1", "--validations=0"]
    words += ["--save_strategy=no", "--logging_steps=1", "--eval_episodes=1", "--credit=rewardflow"]
    configs = parse_configs(words)
    configs[2].max_steps = batches * configs[2].steps_per_generation
    with (
        patch.object(loss, "FEWEST_ROWS", ONE_PASS if whole else loss.FEWEST_ROWS),
        patch.object(time, "perf_counter", time.process_time),  # the trainer's clocks count CPU seconds
        opened(configs, Console(quiet=True)) as recipe,
    ):
        recipe.clone()
        started = time.process_time()
        recipe.learn()
        return _figures(recipe, time.process_time() - started, batches)


def _figures(recipe: Recipe, seconds: float, batches: int) -> dict[str, float]:
    records = recipe.metrics.records
    thousands = recipe.trainer.played.episodes / 1000
    means = {name: statistics.fmean(r[name] for r in records if name in r) for name in (*PHASES, "padding")}
    phases = {name: means[name] * batches / thousands for name in PHASES}
    return {**phases, "all": seconds / thousands, "padding": means["padding"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both sides in turns and print a row for each environment and side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--envs", nargs="+", default=ENVIRONMENTS, choices=ENVIRONMENTS)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=2)
    asked = parser.parse_args(arguments)
    quiet()
    torch.set_num_threads(1)
    print("| environment | passes | env | generate | score | update | all | padding | dearer, updates | dearer, all |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for env_id in asked.envs:
        sides: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        with tempfile.TemporaryDirectory() as folder:
            for repetition in range(asked.repetitions):
                for whole in (True, False) if repetition % 2 == 0 else (False, True):
                    sides[whole].append(run(env_id, asked.batches, whole, Path(folder, f"{repetition}-{whole}")))
        found: dict[bool, dict[str, Any]] = {
            whole: {name: statistics.median(one[name] for one in runs) for name in runs[0]}
            for whole, runs in sides.items()
        }
        for whole, figures in found.items():
            cells = [f"{figures[name]:.2f}" for name in (*PHASES, "all")] + [f"{figures['padding']:.0%}"]
            if whole:
                cells += [f"{figures[name] / found[False][name]:.2f}x" for name in ("time/update", "all")]
            print(f"| {env_id} | {'one a minibatch' if whole else 'by length'} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
