"""Compare two entries of one track, task by task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.comparison import Comparison, compare
from agentgym_flow.leaderboard.places import SUBMISSIONS, TRACKS
from agentgym_flow.leaderboard.publish import verdict_file
from agentgym_flow.leaderboard.track import Track, TrackTask
from agentgym_flow.leaderboard.verdict import SubmissionVerdict


@dataclass(frozen=True)
class EntryComparison:
    """A comparison of two entries, and the tasks with the largest differences."""

    comparison: Comparison
    tasks: list[TrackTask]


def compared(root: Path, first: str, second: str, most: int = 20) -> EntryComparison:
    """Compare two entries.

    Args:
        root: the folder of the leaderboards.
        first: `<track>/<date>-<name>`.
        second: another entry of the track.
        most: the largest number of tasks to name.

    Raises `BadSetting` if an entry does not exist or is not accepted, or the entries have played different tasks.
    """
    verdicts = _accepted(root, first), _accepted(root, second)
    tracks = {name.partition("/")[0] for name in (first, second)}
    if len(tracks) != 1:
        raise BadSetting(f"{first} and {second} are entries of different tracks")
    if any(verdict.season for verdict in verdicts):
        raise BadSetting("reproduced entries have played different tasks: compare their intervals")
    track = Track.read(root / TRACKS / f"{tracks.pop()}.json")
    found = compare(verdicts[0].scores, verdicts[1].scores, most)
    return EntryComparison(found, [track.tasks[one.task] for one in found.tasks])


def _accepted(root: Path, name: str) -> SubmissionVerdict:
    file = verdict_file(root, root / SUBMISSIONS / name)
    if name.count("/") != 1 or ".." in name:
        raise BadSetting(f"{name!r:.120} is not an entry: name it TRACK/DATE-NAME")
    if not file.is_file():
        raise BadSetting(
            f"{name!r:.120} has no verdict in {root}: correct the name, or run `agentgym-flow leaderboard publish`"
        )
    verdict = SubmissionVerdict.read(file)
    if not verdict.accepted:
        raise BadSetting(f"{name} was refused, so it has no scores")
    return verdict
