"""The cost or savings of each data algorithm: episodes played, trained on, and useful, alone and combined.

    python benchmarks/dataflow_algorithms.py [--envs sokoban,alfworld] [--batches 24] [--output runs/algorithms]

The tiny policy is cloned, and then trained with RewardFlow on batches of 16 tasks x 8 attempts, with one worker and
S = 0. All runs of an environment start with the same weights and make equally many updates. *Again* are earlier
episodes that are reused. *Varied* are episodes in groups with mixed outcomes, and their fraction: in other groups only
the steps give a signal. Success is that of one run on test tasks, sampled and greedy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from _supervised import PROGRAM, Child, finish, last_status
from _timing import print_header, print_row

GROUPS, SIZE, STEPS = 16, 8, 2

ENVS: dict[str, list[object]] = {
    "sokoban": [
        "--env",
        "Sokoban-v0",
        "--config",
        "sokoban_tiny_long",
        "--env_kwargs",
        '{"size": 6, "boxes": 1, "min_pushes": 3}',
    ],
    "alfworld": ["--env", "ALFWorld-v0", "--env_kwargs", '{"max_steps": 16}'],
}

DYNAMIC = ["--dynamic_sampling", "true"]
RELABEL = ["relabel", "keep_signal"]
ALGORITHMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "none": ({}, []),
    "drop_alike": ({"operators": ["drop_alike"]}, []),
    "relabel, keep_signal": ({"operators": RELABEL}, []),
    "dynamic sampling": ({}, DYNAMIC),
    "filter_solved": ({"tasks": {"filter_solved": {"threshold": 0.8}}}, []),
    "greso": ({"tasks": "greso"}, []),
    "replay, 25 %": ({"replay": {"share": 0.25, "choose": "newest", "staleness": 8}}, []),
    "greso, relabel, keep_signal, dynamic sampling": ({"tasks": "greso", "operators": RELABEL}, DYNAMIC),
}
"""Settings of the dataflow, and of the trainer."""


def command(env: str, batches: int, output: Path) -> list[object]:
    """Return the common part of the commands of an environment."""
    batch = ["--num_generations", SIZE, "--groups_per_batch", GROUPS, "--steps_per_batch", STEPS]
    batch += ["--per_device_train_batch_size", GROUPS * SIZE // 4, "--max_steps", STEPS * batches]
    rest = ["--threads", 1, "--save_strategy", "no", "--validations", 0, "--logging_steps", STEPS]
    return [*PROGRAM, "train", "rewardflow", *ENVS[env], *batch, *rest, "--output_dir", output]


def run(env: str, name: str, batches: int, tests: int, warm: Path, output: Path) -> None:
    """Do a run, and print its results."""
    flow, options = ALGORITHMS[name]
    output.mkdir(parents=True)
    settings = output / "flow.yaml"
    settings.write_text(yaml.safe_dump({"staleness": 0, "workers": 1, "num_envs": 64, **flow}), "utf-8")
    begin = ["--model", warm, "--warm_start_levels", 0, "--eval_episodes", tests]
    line = [*command(env, batches, output / "run"), *begin, *options, "--dataflow", settings]
    finish(Child("train", line, output))
    status = last_status(output / "run" / "dataflow", settings)
    (stream,) = status["streams"].values()
    (policy,) = stream["policies"].values()
    rows = [json.loads(row) for row in (output / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in rows if "success" in row]
    played = [now["episodes"] - before for now, before in zip(rows, [0, *(r["episodes"] for r in rows)], strict=False)]
    varied = sum(count * (1 - row["frac_reward_zero_std"]) for count, row in zip(played, rows, strict=True))
    replayed = SIZE * sum(row.get("dataflow/replayed_groups", 0.0) for row in rows)
    trained = sum(policy["ages"].values())
    after = json.loads((output / "run" / "summary.json").read_text("utf-8"))["after"]
    tested = [f"{100 * after[how]['success']:.1f}" for how in ("sampled", "greedy")]
    cells = [sum(played), trained, replayed, varied]
    print_row(name, *(f"{cell:,.0f}" for cell in cells), f"{100 * varied / sum(played):.0f} %", *tested)


def main() -> None:
    """Do all runs, and print a table for each environment."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/algorithms"), help="replaced if it is there")
    parser.add_argument("--envs", default=",".join(ENVS))
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--tests", type=int, default=300)
    chosen = parser.parse_args()
    for env in chosen.envs.split(","):
        folder = chosen.output / env
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        finish(Child("warm", [*command(env, 1, folder / "warm"), "--eval_episodes", 1], folder))
        print(f"\n{env}, {chosen.batches} batches\n")
        print_header("data algorithm", "played", "trained", "again", "varied", "share", "sampled", "greedy")
        for name in ALGORITHMS:
            slug = name.replace(", ", "-").replace(" ", "_").replace("%", "")
            run(env, name, chosen.batches, chosen.tests, folder / "warm" / "warm_start", folder / slug)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
