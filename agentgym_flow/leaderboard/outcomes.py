"""The results of an entry by episode, and its metric over the number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from agentgym_flow.leaderboard.board import Entry
from agentgym_flow.leaderboard.statistics import Estimate, clustered_mean
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.report import Curve

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
