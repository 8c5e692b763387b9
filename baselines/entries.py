"""Create this project's entries on the leaderboards: the built-in policies of all environments, and trained ones.

    python -m baselines.entries --season s0 --work runs/entries

On official tasks, the submitted policies of another board play. Each entry is created by the commands that its page
shows. Finished training runs are reused; the folders of interrupted ones are deleted. An entry replaces earlier ones of
the same name on the same track.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentgym_flow.leaderboard.files import REFERENCE, ROOT, SUBMISSIONS, VERDICTS
from agentgym_flow.leaderboard.submission import ABOUT, Submission, make_submission
from agentgym_flow.training.config_file import algorithm_settings
from agentgym_flow.training.run_folder import SUMMARY

ALGORITHMS = ("grpo", "rloo", "gigpo", "rewardflow", "cwrpo")
FIXED = {"random": "Random valid actions", "scripted": "The script, which reads the text only", "expert": "The expert"}
TITLES = {"grpo": "GRPO", "rloo": "RLOO", "gigpo": "GiGPO", "rewardflow": "RewardFlow", "cwrpo": "CWRPO"}
AUTHOR = "agentgym_flow"


@dataclass(frozen=True)
class Board:
    """The training for a track.

    Attributes:
        track: its name without the season.
        env: the environment.
        settings: additional settings of the training runs; by default only the environment's settings file.
        layouts: algorithm -> layout, if it is not `turn`.
        weights_of: for official tasks, which have no fresh ones: the board whose submitted weights play; nothing is
            trained.
    """

    track: str
    env: str
    settings: Sequence[str] = ()
    layouts: dict[str, str] = field(default_factory=dict)
    weights_of: str = ""


BOARDS = (
    # Trained on smaller boards: on those of the track hardly any attempt succeeds, so there is nothing to learn from.
    Board(
        "sokoban-10x10-4",
        "Sokoban-v0",
        shlex.split(
            """--config sokoban_tiny_long --env_kwargs '{"size": 7, "boxes": 2, "min_pushes": 3}' --num_generations 8
            --per_device_train_batch_size 64 --max_steps 64 --num_envs 256"""
        ),
    ),
    Board("alfworld", "ALFWorld-v0", ("--env_kwargs", '{"max_steps": 50}', "--max_steps", "80")),
    Board("alfworld-seen", "ALFWorld-v0", weights_of="alfworld"),
    Board("alfworld-unseen", "ALFWorld-v0", weights_of="alfworld"),
    Board("webshop", "WebShop-v0", ("--env_kwargs", '{"max_steps": 15}')),
    Board("search", "Search-v0"),
    Board("canvas", "Canvas-v0", layouts={"cwrpo": "conversation"}),
    Board("problems", "Problems-v0"),
)


@dataclass(frozen=True)
class LeaderboardEntry:
    """An entry: its name, title and policy, and the arguments of `train` and `submit`."""

    name: str
    title: str
    policy: str
    train: Sequence[str] = ()
    submit: Sequence[str] = ()


def entries(board: Board, season: str, work: Path, root: Path) -> Iterator[LeaderboardEntry]:
    """Yield the entries of a track; their runs are folders in `work`."""
    for policy, title in FIXED.items():
        yield LeaderboardEntry(f"{REFERENCE}{policy}", title, policy)
    trained_in = f"agentgym_flow/{board.env}"
    if board.weights_of:
        for other in sorted((root / SUBMISSIONS / f"{board.weights_of}-{season}").glob("*-tiny-*")):
            about = Submission.parse((other / ABOUT).read_bytes())
            played = ("--badge", "replayed", "--prompt", about.prompt, "--trained-in", trained_in)
            yield LeaderboardEntry(about.name, about.title, f"hf:{other / 'policy'}", submit=played)
        return
    for algorithm in ("warm start", *ALGORITHMS):
        run = work / board.track / ("rewardflow" if algorithm == "warm start" else algorithm)
        folder, name = ("warm_start", "warm-start") if algorithm == "warm start" else ("checkpoint", algorithm)
        # A file that is named takes precedence over what a paper fixes.
        fixed = algorithm_settings(run.name, trained_in) if "--config" in board.settings else {}
        own = [f"--{name}={json.dumps(value)}" for name, value in fixed.items()]
        train = ("train", run.name, "--env", board.env, *board.settings, *own, "--output_dir", str(run), *_RUN)
        submit = ["--badge", "reproduced", "--half", "--policy", str(run / folder), "--prompt", "compact"]
        submit += ["--trained-in", trained_in]
        submit += ["--layout", layout] if (layout := board.layouts.get(algorithm)) else []
        title = f"Tiny policy, {'cloned' if algorithm == 'warm start' else TITLES[algorithm]}"
        yield LeaderboardEntry(f"tiny-{name}", title, f"hf:{run / folder}", train, submit)


_RUN = shlex.split("--threads 1 --validations 2 --eval_episodes 200 --save_strategy no")


def make(board: Board, entry: LeaderboardEntry, season: str, work: Path, root: Path) -> None:
    """Train, play the track, and submit."""
    track = f"{board.track}-{season}"
    out = work / board.track / f"{entry.name}-on-{season}"
    evaluate = ("evaluate", "--track", track, "--policy", entry.policy, "--out", str(out))
    if entry.train and not _finished(run := Path(entry.train[entry.train.index("--output_dir") + 1])):
        if run.exists():  # an interrupted run: training beside it would leave its checkpoint as the entry's policy
            shutil.rmtree(run)
        _run(*entry.train)
    _run(*evaluate, "--force")
    for old in (root / SUBMISSIONS / track).glob(f"*-*-*-{entry.name}"):
        if old.name[11:] == entry.name:
            shutil.rmtree(old)
            (root / VERDICTS / track / f"{old.name}.json").unlink(missing_ok=True)
    shown = [_words(words) for words in (entry.train, evaluate) if words]
    command = " && ".join(shown)
    if entry.name.startswith(REFERENCE):  # `submit` refuses these names
        about = {"name": entry.name, "badge": "replayed", "prompt": "none", "title": entry.title, "authors": [AUTHOR]}
        make_submission(out, {**about, "command": command, "training": {"environments": [], "data": ""}}, root)
        return
    who = ("--name", entry.name, "--title", entry.title, "--author", AUTHOR)
    _run("submit", str(out), *who, "--command", command, *entry.submit, "--root", str(root))


def _words(words: Sequence[str]) -> str:
    return shlex.join(("agentgym-flow", *words))


def _finished(run: Path) -> bool:
    try:
        return bool(json.loads((run / SUMMARY).read_text("utf-8"))["status"] == "finished")
    except (OSError, ValueError, KeyError):
        return False


def _run(*words: str) -> None:
    sys.stdout.write(f"$ {_words(words)}\n")
    sys.stdout.flush()
    subprocess.run(
        [sys.executable, "-m", "agentgym_flow", *words], check=True, env={"OMP_NUM_THREADS": "1", **os.environ}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the entries; return 0."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--season", required=True, help="the name of the season, such as s0")
    parser.add_argument("--work", type=Path, default=Path("runs/entries"), help="the folder of the runs")
    parser.add_argument("--root", type=Path, default=Path(ROOT), help="the folder of the boards")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="tracks and entries, such as webshop tiny-grpo"
    )
    asked = parser.parse_args(arguments)
    names = {board.track for board in BOARDS}
    tracks, chosen = set(asked.only) & names, set(asked.only) - names
    for board in BOARDS:
        if tracks and board.track not in tracks:
            continue
        for entry in entries(board, asked.season, asked.work, asked.root):
            if not chosen or entry.name in chosen:
                make(board, entry, asked.season, asked.work, asked.root)
    _run("leaderboard", "publish", "--root", str(asked.root))
    _run("leaderboard", "render", "--root", str(asked.root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
