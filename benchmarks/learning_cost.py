"""Core-seconds of training per episode, and how much of them the package's optimisations save.

    python benchmarks/learning_cost.py [--envs Sokoban-v0 Search-v0 ...] [--batches 4] [--repetitions 2]

Each environment trains with its packaged settings and RewardFlow on one thread, after a warm start. Two variants
alternate:

- *plain*: every layer is computed at every position, a minibatch is one forward pass padded to its longest prompt, all
  prompts in a forward pass of sampling have the same length, and training uses all rows;
- *saving*: the default. The last layer is computed at the last position (`generation.padding`), prompts of
  similar length share passes (`loss.passes_by_length`, `TransformersGenerator`), and a fraction of the zero-advantage
  rows represents all of them (`zero_advantage_share`).

The first three change results only in the last bits; the fourth changes which rows are computed. The table shows CPU
seconds of the process: for the warm start, and per 1,000 episodes for rollouts (environment with prompts, generation),
credit and rows, updates, and in total. It also shows the fraction of padding in updates and the ratio of the variants.
All figures are medians of the repetitions, after one batch of each variant that is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console

from agentgym_flow.generation import padding
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.training import loss
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.models import quiet
from agentgym_flow.training.recipe import Recipe, open_run

ENVIRONMENTS = ("Sokoban-v0", "ALFWorld-v0", "WebShop-v0", "Search-v0", "Canvas-v0", "Problems-v0")
PHASES = ("time/env", "time/generate", "time/credit", "time/update")
COLUMNS = ("warm start", *PHASES, "all", "padding")
COMPARED = ("warm start", "time/generate", "time/update", "all")
ONE_PASS = 1 << 60
"""A cost of a pass, in positions, that a second pass never saves."""


@contextmanager
def without_savings() -> Iterator[None]:
    """Compute all layers at all positions within the context, as Transformers does."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(loss.PASS_COST, cpu=ONE_PASS))
        stack.enter_context(patch.object(padding, "_plain_gpt2", lambda model: None))
        stack.enter_context(patch.object(TransformersGenerator, "_widths", lambda self, lengths, room: lengths))
        yield


def run(env_id: str, batches: int, plain: bool, folder: Path, *settings: str) -> dict[str, float]:
    """Train for `batches` batches; return CPU seconds by phase and in total, and the fraction of padding."""
    words = [f"--env_id=agentgym_flow/{env_id}", f"--output_dir={folder}", "--threads=1", "--validations=0"]
    words += ["--save_strategy=no", "--logging_steps=1", "--eval_episodes=1", "--credit=rewardflow"]
    words += ["--warm_start_validations=1", *(["--zero_advantage_share=1"] if plain else []), *settings]
    configs = parse_configs(words)
    configs[2].max_steps = batches * configs[2].steps_per_generation
    with (
        without_savings() if plain else ExitStack(),
        patch.object(time, "perf_counter", time.process_time),  # the trainer's clocks count CPU seconds
        open_run(configs, Console(quiet=True)) as recipe,
    ):
        begun = time.process_time()
        recipe.clone_behaviour()
        started = time.process_time()
        recipe.train()
        figures = _figures(recipe, time.process_time() - started, batches)
        return {"warm start": started - begun, **figures}


def _figures(recipe: Recipe, seconds: float, batches: int) -> dict[str, float]:
    records = recipe.metrics.records
    thousands = recipe.trainer.played.episodes / 1000
    means = {name: statistics.fmean(r[name] for r in records if name in r) for name in (*PHASES, "padding")}
    phases = {name: means[name] * batches / thousands for name in PHASES}
    return {**phases, "all": seconds / thousands, "padding": means["padding"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both variants alternately; print a row for each environment and variant."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--envs", nargs="+", default=ENVIRONMENTS, choices=ENVIRONMENTS)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=2)
    asked = parser.parse_args(arguments)
    quiet()
    torch.set_num_threads(1)
    print(f"| environment | side | {' | '.join(COLUMNS)} | dearer: {' | '.join(COMPARED)} |")
    print("|---" * (3 + len(COLUMNS) + len(COMPARED) - 1) + "|")
    for env_id in asked.envs:
        sides: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        with tempfile.TemporaryDirectory() as folder:
            # Whatever is compiled, loaded and cached once in a process must not count for the side that comes first.
            for plain in sides:
                run(env_id, 1, plain, Path(folder, f"once-{plain}"), "--warm_start_updates=1")
            for repetition in range(asked.repetitions):
                for plain in (True, False) if repetition % 2 == 0 else (False, True):
                    sides[plain].append(run(env_id, asked.batches, plain, Path(folder, f"{repetition}-{plain}")))
        found: dict[bool, dict[str, Any]] = {
            plain: {name: statistics.median(one[name] for one in runs) for name in runs[0]}
            for plain, runs in sides.items()
        }
        for plain, figures in found.items():
            cells = [f"{figures[name]:.2f}" for name in COLUMNS[:-1]] + [f"{figures['padding']:.0%}"]
            if plain:
                cells += [f"{figures[name] / found[False][name]:.2f}x" for name in COMPARED]
            print(f"| {env_id} | {'plain' if plain else 'saving'} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
