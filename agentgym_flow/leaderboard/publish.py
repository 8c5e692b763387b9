"""Compute the missing verdicts of merged entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.places import SUBMISSIONS, VERDICTS
from agentgym_flow.leaderboard.reproduce import MakePolicy
from agentgym_flow.leaderboard.verdict import SubmissionVerdict


def entries(root: Path) -> list[Path]:
    """Return the folders of all submissions below `root`, in order."""
    return sorted(path for path in (root / SUBMISSIONS).glob("*/*") if path.is_dir())


def verdict_file(root: Path, entry: Path) -> Path:
    """Return the file with the verdict on an entry."""
    return root / VERDICTS / entry.parent.name / f"{entry.name}.json"


def publish(
    root: Path,
    *,
    data: Mapping[str, str | Path] | None = None,
    jobs: int | None = None,
    make_policy: MakePolicy | None = None,
    secret: str = "",
) -> Iterator[SubmissionVerdict]:
    """Check each entry without a verdict, write its verdict, and yield it. Existing verdicts do not change.

    `root` is the folder of the leaderboards. Other arguments and the errors are those of `judge`.
    """
    for entry in entries(root):
        file = verdict_file(root, entry)
        if file.exists():
            continue
        place = entry.parent.name, entry.name
        verdict = judge(entry, place, root, data=data, jobs=jobs, make_policy=make_policy, secret=secret)
        verdict.write(file)
        yield verdict
