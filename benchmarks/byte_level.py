"""A model of a real shape learns in free text: Qwen3's architecture and tokenizer, random weights, Sokoban.

    python benchmarks/byte_level.py [--seeds 3] [--output runs/byte_level] [--algorithm rewardflow] [--key value ...]

What is run is the command that anyone runs, `agentgym-flow train ALGORITHM --config byte_level.yaml --model FOLDER`:
prompts of about 300 tokens of the profile `text` through a chat template, answers of up to seven tokens, such as
`<action>right</action>`, that are parsed, ordinary rows, a warm start, then reinforcement learning. FOLDER is made
first, from nothing. All further arguments go to the command. The table at the end has success before (after cloning)
and after, sampled and greedy, with 95 % intervals, and the CPU time of each run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from _byte_level import byte_level_tokenizer, write_model

SETTINGS = Path(__file__).with_name("byte_level.yaml")
SHAPE: dict[str, Any] = {"width": 64, "layers": 2, "heads": 4, "context": 512, "theta": 100.0}
"""Of the model: about 130,000 parameters."""


def cpu_seconds() -> float:
    """Return the CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(algorithm: str, model: Path, output: Path, seed: int, others: list[str]) -> dict[str, Any]:
    """Run one training command; return its summary with `cpu_seconds`. Ends the script when it fails."""
    before = cpu_seconds()
    arguments = [algorithm, f"--config={SETTINGS}", f"--model={model}", f"--output_dir={output}", f"--seed={seed}"]
    subprocess.run([sys.executable, "-m", "agentgym_flow", "train", *arguments, *others], check=True)
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text("utf-8"))
    return {**summary, "cpu_seconds": cpu_seconds() - before}


def row(seed: int, run: dict[str, Any]) -> str:
    """Return one line of the table."""
    cells = [str(seed)]
    for how in ("sampled", "greedy"):
        for moment in ("before", "after"):
            low, high = run[moment][how]["success_interval"]
            cells.append(f"{run[moment][how]['success']:.1%} [{low:.1%}, {high:.1%}]")
        gain = run["improvement"][how]
        cells.append(f"{100 * gain['mean']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]")
    return f"| {' | '.join(cells)} | {run['cpu_seconds'] / 60:.1f} |"


def main() -> None:
    """Make the model, run all seeds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--algorithm", default="rewardflow")
    parser.add_argument("--output", type=Path, default=Path("runs/byte_level"))
    chosen, others = parser.parse_known_args()
    settings = yaml.safe_load(SETTINGS.read_text("utf-8"))
    model = chosen.output / "model"
    tokenizer = byte_level_tokenizer(settings["env_id"], settings["env_kwargs"])
    size = write_model(model, tokenizer, **SHAPE)
    print(f"{model}: {size:,} parameters, {len(tokenizer)} tokens", flush=True)
    runs = {}
    for seed in range(chosen.seeds):
        runs[seed] = train(chosen.algorithm, model, chosen.output / f"seed-{seed}", seed, others)
    print("\n| seed | sampled, before | after | gain, points | greedy, before | after | gain, points | CPU minutes |")
    print("|---|---|---|---|---|---|---|---|")
    for seed, run in runs.items():
        print(row(seed, run))


if __name__ == "__main__":
    main()
