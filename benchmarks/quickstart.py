"""What the quickstart costs in core-seconds and how well its policy plays, compared with an earlier version.

    python benchmarks/quickstart.py [--before REVISION] [--before_seeds 0] [--seeds 0 1 2 3 4] [--split test] [-- WORDS]

Each run is `python -m baselines.rewardflow` with its default settings and one thread, in a process of its own; WORDS
are further settings of the present version. The earlier version is a revision of this repository, unpacked into a
temporary folder; without `--before` only the present version runs. The runs of both versions follow each other, so
that other programs on the machine disturb both alike.

Core-seconds are those of the process and its children, from the start of cloning to the last printed line; *start*,
which imports the libraries, comes before. *RSS* is the most memory of the process. *Success* is on 500 tasks of the
split, sampled and greedy. The last lines are means over seeds, and the ratio of the core-seconds.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from _timing import arguments

ROOT = Path(__file__).parents[1]
PHASES = ("cloning", "evaluation before", "training", "evaluation after", "verification")
CHILD = "--in-this-process"


def spent() -> float:
    """Return the core-seconds of this process and of its children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(split: str, *words: str) -> dict[str, Any]:
    """Run the quickstart of the version on the import path; return core-seconds by phase, memory and success."""
    from rich.console import Console

    from agentgym_flow.training.config_file import parse_configs
    from agentgym_flow.training.models import quiet
    from agentgym_flow.training.recipe import open_run
    from baselines.rewardflow import RewardFlow

    quiet()
    found: dict[str, Any] = {}
    with open_run(parse_configs(words, RewardFlow), Console(quiet=True)) as recipe:
        steps: tuple[Callable[[], object], ...] = (
            recipe.clone_behaviour,
            partial(recipe.evaluate, "before", split),
            recipe.train,
            partial(recipe.evaluate, "after", split),
            recipe.finish,
        )
        found["start"] = spent()
        for phase, step in zip(PHASES, steps, strict=True):
            begun = spent()
            step()
            found[phase] = spent() - begun
        found["all"] = sum(found[phase] for phase in PHASES)
        for moment, played in recipe.evaluations.items():
            found[moment] = [100 * played.sampled.success, 100 * played.greedy.success]
        found["episodes"] = recipe.trainer.played.episodes
    found["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def unpack(revision: str, folder: Path) -> Path:
    """Write the files of a revision of this repository into a folder; return it."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def run(tree: Path, split: str, seed: int, words: list[str]) -> dict[str, Any]:
    """Measure one run of the version in `tree`, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given = ["--threads=1", f"--seed={seed}", f"--output_dir={folder}/run", *words]
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, __file__, CHILD, split, *given]
        said = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def row(version: str, seed: int | str, found: dict[str, Any]) -> str:
    """Return a row of the table."""
    success = [" / ".join(f"{rate:.1f}" for rate in found[moment]) for moment in ("before", "after")]
    costs = [f"{found[name]:.1f}" for name in ("start", *PHASES, "all")]
    cells = [version, str(seed), *costs, *success, f"{found['episodes']:,.0f}", f"{found['rss']:,.0f} MB"]
    return f"| {' | '.join(cells)} |"


def mean(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over runs."""
    pairs = {name: [fmean(one[name][place] for one in runs) for place in (0, 1)] for name in ("before", "after")}
    return {name: fmean(one[name] for one in runs) for name in runs[0] if name not in pairs} | pairs


def main() -> int:
    """Measure all runs; print a row for each, means and the ratio."""
    parser = arguments(__doc__)
    parser.add_argument("--before", metavar="REVISION", help="the earlier version, such as e0a8aa0e")
    parser.add_argument("--before_seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--split", default="test", choices=("valid", "test"))
    parser.add_argument("words", nargs="*", help="settings of the present version, after --")
    asked = parser.parse_args()
    sides: dict[str, list[dict[str, Any]]] = {}
    print(f"| version | seed | start | {' | '.join(PHASES)} | all | before | after | episodes | RSS |")
    print("|---" * (7 + len(PHASES)) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        trees = {"present": (ROOT, asked.seeds, asked.words)}
        if asked.before is not None:
            trees[asked.before] = (unpack(asked.before, Path(folder)), asked.before_seeds, [])
        turns = sorted((place, name) for name, (_, seeds, _) in trees.items() for place in range(len(seeds)))
        for place, name in turns:
            tree, seeds, words = trees[name]
            found = run(tree, asked.split, seeds[place], words)
            sides.setdefault(name, []).append(found)
            print(row(name, seeds[place], found), flush=True)
    for name, runs in sides.items():
        print(row(name, "mean", mean(runs)))
    if asked.before is not None:
        now, then = (mean(sides[name])["all"] for name in ("present", asked.before))
        print(f"The present version needs {now / then:.3f} of the core-seconds of {asked.before}.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        sys.exit(main())
