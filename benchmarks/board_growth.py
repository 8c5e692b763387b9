"""How much new entries add to the leaderboards of the repository, as git packs it, with and without a store.

`python benchmarks/board_growth.py [--entries N] [--sharing N]`

Entries are made from the committed ones on generated tasks: each new log (version 2) takes every episode from a random
log of its track, with a digest of its own. Its verdict has the scores of these episodes. As many have weights as
today, 0.5 MB of random numbers in half precision; `--sharing` entries in a row have the same ones.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from agentgym_flow.episodes import LoggedEpisode, read_log
from agentgym_flow.leaderboard.files import ROOT, SUBMISSIONS, VERDICTS
from agentgym_flow.leaderboard.submission import ABOUT, LOG, MODEL_CONFIG, README, WEIGHTS
from agentgym_flow.leaderboard.verdict import SubmissionVerdict

BOARDS = Path(ROOT)
PARAMETERS = 245_000


def make(folder: Path, entries: int, sharing: int) -> None:
    """Write entries and their verdicts below `folder`."""
    rng, numbers = random.Random(0), np.random.default_rng(0)
    logs: dict[str, list[list[LoggedEpisode]]] = defaultdict(list)
    examples: dict[str, list[Path]] = defaultdict(list)
    for entry in sorted((BOARDS / SUBMISSIONS).glob("*/*")):
        logs[entry.parent.name].append([*read_log(entry / LOG)])
        examples[entry.parent.name].append(entry)
    tracks = sorted(track for track, found in logs.items() if len(found) > 1)
    weights = b""
    for number in range(entries):
        track = tracks[number % len(tracks)]
        example = rng.choice(examples[track])
        place = folder / SUBMISSIONS / track / f"2027-01-01-entry-{number}"
        (place / "policy").mkdir(parents=True)
        chosen = [rng.choice(alike) for alike in zip(*logs[track], strict=True)]
        lines = [replace(one.for_board(), digest=rng.randbytes(32).hex()).line() for one in chosen]
        (place / LOG).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode("ascii"), mtime=0))
        about = (example / ABOUT).read_text("utf-8").replace(example.name[11:], place.name[11:])
        (place / ABOUT).write_text(about, "utf-8")
        (place / README).write_bytes((example / README).read_bytes())
        if (example / WEIGHTS).is_file():
            if number % sharing == 0 or not weights:
                weights = numbers.normal(0, 0.02, PARAMETERS).astype(np.float16).tobytes()
            (place / WEIGHTS).write_bytes(weights)
            (place / MODEL_CONFIG).write_bytes((example / MODEL_CONFIG).read_bytes())
        verdict = SubmissionVerdict.read(BOARDS / VERDICTS / track / f"{example.name}.json")
        scores: dict[int, list[float]] = defaultdict(list)
        steps: dict[int, list[int]] = defaultdict(list)
        for one in chosen:
            scores[one.task].append(float(one.success))
            steps[one.task].append(len(one.actions))
        changed = {
            "submission": f"{track}/{place.name}",
            "submission_sha256": rng.randbytes(32).hex(),
            "scores": [*scores.values()],
            "steps": [*steps.values()],
        }
        file = folder / VERDICTS / track / f"{place.name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        msgspec.structs.replace(verdict, **changed).write(file)


def git(folder: Path, *words: str, given: str = "") -> bytes:
    """Return the output of git in a folder."""
    return subprocess.run(["git", *words], cwd=folder, input=given.encode(), capture_output=True, check=True).stdout


def packed(folder: Path, without: tuple[str, ...] = ()) -> float:
    """Return the megabytes of a pack of all files in a repository, without those with some names."""
    rows = git(folder, "ls-files", "-s", "-z").decode().split("\0")[:-1]
    kept = [row for row in rows if not row.endswith(without or "\0")]
    objects = "".join(f"{row.split()[1]} {row.partition(chr(9))[2]}\n" for row in kept)
    return len(git(folder, "pack-objects", "--stdout", "-q", given=objects)) / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--entries", type=int, default=50)
    parser.add_argument("--sharing", type=int, default=1)
    args = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make(folder, args.entries, args.sharing)
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        print(f"{args.entries} entries, of which {args.sharing} in a row share their weights\n")
        print("| in the store | MB packed | MB for 1,000 entries |\n|---|---|---|")
        for name, without in (("nothing", ()), ("weights", (WEIGHTS,)), ("weights and logs", (WEIGHTS, LOG))):
            size = packed(folder, without)
            print(f"| {name} | {size:.1f} | {1000 * size / args.entries:.0f} |")


if __name__ == "__main__":
    main()
