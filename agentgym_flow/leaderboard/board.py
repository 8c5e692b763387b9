"""The board of a track: accepted entries with their ranks and outcomes, and the reference policies of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agentgym_flow.leaderboard.comparison import rank_ranges
from agentgym_flow.leaderboard.files import REFERENCE, TRACKS
from agentgym_flow.leaderboard.publish import entries, verdict_file
from agentgym_flow.leaderboard.statistics import Estimate, clustered_mean
from agentgym_flow.leaderboard.submission import CLASSES, README, REPLAYED, SOURCE, Folder, Submission, class_of
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import Mean, SubmissionVerdict
from agentgym_flow.report import Curve


@dataclass(frozen=True)
class EntryAttempt:
    """One submission under a name: its date, and its score or the reason for its rejection."""

    date: str
    score: Mean | None
    reason: str


@dataclass(frozen=True)
class Entry:
    """An accepted submission.

    Attributes:
        path: its folder.
        about: the content of its `submission.yaml`.
        readme: its README.
        verdict: the verdict of CI.
        score: the metric of the track.
        tries: all submissions of this track under the same name, if there are several.
        source: the source code of the training; empty if it was not submitted.
    """

    path: Path
    about: Submission
    readme: str
    verdict: SubmissionVerdict
    score: Mean
    tries: tuple[EntryAttempt, ...] = ()
    source: str = ""

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.path.name

    @property
    def mean_steps(self) -> float:
        """The mean number of actions of an episode."""
        return float(np.mean(self.verdict.steps))


@dataclass(frozen=True)
class BoardRow:
    """An entry with its rank range, such as `1` or `2 to 4`."""

    entry: Entry
    rank: str


@dataclass(frozen=True)
class Table:
    """Entries that can be compared, because their prompts are in the same class; best first."""

    prompts: str
    rows: list[BoardRow]


@dataclass(frozen=True)
class Leaderboard:
    """The entries of a track.

    Attributes:
        track: the track.
        proved: reproduced and attested entries, one table for each class of prompts.
        replayed: replayed entries, one table for each class of prompts.
        references: the reference policies, which are not ranked.
    """

    track: Track
    proved: list[Table] = field(default_factory=list)
    replayed: list[Table] = field(default_factory=list)
    references: list[BoardRow] = field(default_factory=list)

    @property
    def entries(self) -> list[Entry]:
        """All entries."""
        ranked = [row for table in (*self.proved, *self.replayed) for row in table.rows]
        return [row.entry for row in (*ranked, *self.references)]

    @property
    def leaders(self) -> list[tuple[str, Entry]]:
        """The best reproduced or attested entry of each class of prompts, with the class."""
        return [(table.prompts, table.rows[0].entry) for table in self.proved]


def boards(root: Path) -> list[Leaderboard]:
    """Return the board of each track below `root`, sorted by name.

    If several entries with the same name are accepted, the last one counts. Raises `BadTrack` or `BadSubmission` if a
    file of the leaderboards is damaged.
    """
    found: dict[str, list[Entry]] = {}
    tries: dict[tuple[str, str], list[EntryAttempt]] = {}
    for folder in entries(root):
        file = verdict_file(root, folder)
        if not file.is_file():
            continue
        verdict, day, name = SubmissionVerdict.read(file), folder.name[:10], folder.name[11:]
        reason = "" if verdict.reason is None else verdict.reason.message
        tries.setdefault((folder.parent.name, name), []).append(EntryAttempt(day, verdict.score, reason))
        if not verdict.accepted or verdict.score is None:
            continue
        about = Folder.read(folder).about
        readme, source = (
            (folder / name).read_text("utf-8", "replace") if (folder / name).is_file() else ""
            for name in (README, SOURCE)
        )
        found.setdefault(folder.parent.name, []).append(
            Entry(folder, about, readme, verdict, verdict.score, source=source)
        )
    made = []
    for file in sorted((root / TRACKS).glob("*.json")):
        track = Track.read(file)
        latest = {entry.about.name: entry for entry in found.get(track.name, [])}
        several = {name: tuple(tried) for (of, name), tried in tries.items() if of == track.name and len(tried) > 1}
        all_of = [replace(entry, tries=several.get(name, ())) for name, entry in latest.items()]
        ranked = [entry for entry in all_of if not entry.about.name.startswith(REFERENCE)]
        made.append(
            Leaderboard(
                track,
                _tables([entry for entry in ranked if entry.verdict.badge != REPLAYED]),
                _tables([entry for entry in ranked if entry.verdict.badge == REPLAYED]),
                _rows([entry for entry in all_of if entry not in ranked]),
            )
        )
    return made


def _tables(ranked: list[Entry]) -> list[Table]:
    """Return one table for each class of prompts that has entries."""
    by_class = {name: [entry for entry in ranked if class_of(entry.about.prompt) == name] for name in CLASSES}
    return [Table(name, _rows(chosen)) for name, chosen in by_class.items() if chosen]


def _rows(chosen: list[Entry]) -> list[BoardRow]:
    """Return entries, best first, with their rank ranges."""
    best_first = sorted(chosen, key=lambda entry: (-entry.score.mean, entry.id))
    fresh = any(entry.verdict.season for entry in best_first)  # then every entry has played different tasks
    ranges = rank_ranges([entry.verdict.scores for entry in best_first], paired=not fresh)
    return [
        BoardRow(entry, f"{one.best}" if one.best == one.worst else f"{one.best} to {one.worst}")
        for entry, one in zip(best_first, ranges, strict=True)
    ]


MOST_POINTS = 101
"""The largest number of points of a curve."""


class EpisodeOutcome(NamedTuple):
    """The result of one episode of an entry.

    Attributes:
        task: the task number in the split, or, for fresh tasks, in their season.
        type: the type of the task; empty if unknown.
        attempt: the number of the attempt.
        score: the metric of the track.
        steps: the number of actions.
        watch: the number of the episode in the player, from 1; 0 if it is not there.
    """

    task: int
    type: str
    attempt: int
    score: float
    steps: int
    watch: int


def outcomes(entry: Entry, track: Track, watched: Mapping[tuple[int, int], int]) -> list[EpisodeOutcome]:
    """Return the scored episodes, failures first.

    Args:
        entry: the entry.
        track: its track.
        watched: (task, attempt) -> the number of the episode in the player. It is not used for fresh tasks, because
            the player shows the tasks in the log.
    """
    fresh = bool(entry.verdict.season)
    found = [
        EpisodeOutcome(
            number if fresh else track.tasks[number].number,
            "" if fresh else track.tasks[number].type,
            attempt,
            score,
            steps,
            0 if fresh else watched.get((track.tasks[number].number, attempt), 0),
        )
        for number, row in enumerate(zip(entry.verdict.scores, entry.verdict.steps, strict=True))
        for attempt, (score, steps) in enumerate(zip(*row, strict=True))
    ]
    return sorted(found, key=lambda outcome: (outcome.score, outcome.task, outcome.attempt))


def achieved_within(entry: Entry, track: Track) -> Curve:
    """Return the metric in percent over the number of steps. An episode counts from the step at which it ended."""
    scores, steps = np.asarray(entry.verdict.scores), np.asarray(entry.verdict.steps)
    at = np.unique(np.linspace(0, track.max_steps, MOST_POINTS).round().astype(int))
    means: dict[int, Estimate] = {}
    for ended in (counts := [int((steps <= step).sum()) for step in at]):
        if ended not in means:
            means[ended] = clustered_mean(np.where(steps <= at[counts.index(ended)], scores, 0.0))
    value, low, high = (100 * np.array([means[ended] for ended in counts])).T.tolist()
    return Curve("all tasks", at.tolist(), value, low, high, x_label="steps", y_label=f"{track.metric} (%)")
