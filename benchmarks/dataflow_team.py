"""Two policies share the turns of Search episodes, each with its own trainer: must both be trained?

    python benchmarks/dataflow_team.py [--seeds 3] [--batches 20] [--output runs/team]

The *searcher* acts in the first two turns of an episode, the *answerer* in all others. Both start with the same weights
from behaviour cloning. Each trains with its own optimiser on its own turns: the searcher with GRPO, the answerer with
RLOO, on batches of 16 questions x 8 attempts (fixed order, S = 2). Each seed has three runs; in two of them, one policy
is frozen by step sizes of 1e-30. Success is that of the team on the same test questions, sampled and greedy. Gains are
means over seeds and questions, paired by question; intervals are bootstraps over both.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]
from _supervised import PROGRAM, Child, OverHttp, finish
from _timing import print_header, print_row
from numpy.typing import NDArray

from agentgym_flow._util.intervals import interval_of_runs
from agentgym_flow.dataflow.run import AFTER, BEFORE, Team
from agentgym_flow.training.models import quiet

SEARCHER, ANSWERER = "searcher", "answerer"
ALGORITHM = {SEARCHER: "grpo", ANSWERER: "rloo"}
FROZEN = ["--learning_rate", 1e-30, "--muon_learning_rate", 1e-30]
ARMS = {"both": (), "only the searcher": (ANSWERER,), "only the answerer": (SEARCHER,)}
"""The frozen policies of each run."""

GROUPS, SIZE, STEPS = 16, 8, 4
ENV = ["--env", "Search-v0", "--threads", 1]
BATCH = [
    "--num_generations", SIZE, "--groups_per_batch", GROUPS, "--steps_per_batch", STEPS,
    "--per_device_train_batch_size", GROUPS * SIZE // STEPS, "--save_strategy", "no", "--validations", 0,
]  # fmt: skip

Table = NDArray[np.float64]
"""Success by seed and question."""


def run(folder: Path, seed: int, warm: Path, frozen: tuple[str, ...], batches: int) -> list[Path]:
    """Train a team; return the run folders of its policies."""
    folder.mkdir(parents=True)
    settings = folder / "flow.yaml"
    turns = [SEARCHER, SEARCHER, ANSWERER]
    settings.write_text(yaml.safe_dump({"staleness": 2, "workers": 0, "deadline": 300, "turns": turns}), "utf-8")
    parts = OverHttp(folder, settings, workers=1, num_envs=GROUPS * SIZE)
    try:
        parts.start()
        trainers = []
        for name, algorithm in ALGORITHM.items():
            begin = ["--model", warm, "--warm_start_levels", 0, "--seed", seed, "--max_steps", STEPS * batches]
            flow = ["--dataflow", settings, "--policy", name, *parts.trainer_options(), "--output_dir", folder / name]
            command = [*PROGRAM, "train", algorithm, *ENV, *BATCH, *begin, *flow, *(FROZEN if name in frozen else ())]
            trainers.append(Child(name, command, folder, parts.trainer_environment()))
        finish(*trainers)
    finally:
        parts.close()
    return [folder / name for name in ALGORITHM]


def successes(runs: list[Path], moment: str, tests: int, *, greedy: bool) -> list[float]:
    """Return the success of a team on each of the first `tests` test questions."""
    _, episodes = Team(runs).evaluate(moment, greedy=greedy, num_episodes=tests)
    return [float(episode.success) for episode in episodes]


def points(table: Table) -> str:
    """Return the mean of a table in per cent, and its 95 % interval."""
    low, high = interval_of_runs(table)
    return f"{100 * table.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    """Do all runs, and print the tables."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/team"), help="replaced if it exists")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--tests", type=int, default=300)
    chosen = parser.parse_args()
    quiet()
    shutil.rmtree(chosen.output, ignore_errors=True)
    chosen.output.mkdir(parents=True)
    how = {"sampled": False, "greedy": True}
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(chosen.seeds):
        warm = chosen.output / f"warm-{seed}"
        tiny = ["--max_steps", STEPS, "--seed", seed, "--eval_episodes", 1, "--output_dir", warm]
        finish(Child(f"warm-{seed}", [*PROGRAM, "train", "grpo", *ENV, *BATCH, *tiny], chosen.output))
        for arm, frozen in ARMS.items():
            folder = chosen.output / f"{arm.replace(' ', '_')}-{seed}"
            runs = run(folder, seed, warm / "warm_start", frozen, chosen.batches)
            for name, greedy in how.items():
                if arm == "both":
                    before = successes(runs, BEFORE, chosen.tests, greedy=greedy)
                    found.setdefault(("before", name), []).append(before)
                found.setdefault((arm, name), []).append(successes(runs, AFTER, chosen.tests, greedy=greedy))
            print(f"seed {seed}, {arm}: done", file=sys.stderr, flush=True)
    tables: dict[tuple[str, str], Table] = {key: np.array(rows) for key, rows in found.items()}
    report(tables)


def report(tables: dict[tuple[str, str], Table]) -> None:
    """Print success and gains."""
    gain: Callable[[str, str, str], str] = lambda one, other, how: points(tables[one, how] - tables[other, how])  # noqa: E731
    print_header("trained", "sampled", "gain", "both are better by", "greedy", "gain", "both are better by")
    for arm in ("before", *ARMS):
        cells: list[Any] = []
        for how in ("sampled", "greedy"):
            cells.append(points(tables[arm, how]))
            cells.append("" if arm == "before" else gain(arm, "before", how))
            cells.append("" if arm in ("before", "both") else gain("both", arm, how))
        print_row("neither" if arm == "before" else arm, *cells)


if __name__ == "__main__":
    main()
