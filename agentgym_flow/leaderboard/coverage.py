"""Check that a log has exactly the episodes of a track, each once, and return the results that it claims."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentgym_flow.core import canonical
from agentgym_flow.episodes import LoggedEpisode, LogLimits, scan_log
from agentgym_flow.errors import BadLog, BadSubmission
from agentgym_flow.leaderboard.track import Track, TrackEpisode

_SETTINGS = ("env_id", "kwargs", "data", "split", "max_steps")


@dataclass(frozen=True, slots=True)
class Claims:
    """The results of a track's episodes that a log claims. They are verified by replaying the log.

    Attributes:
        scores: the metric of the track, [tasks, attempts], in the order of the track's tasks.
        steps: the number of actions of each episode, with the same shape.
    """

    scores: NDArray[np.float64]
    steps: NDArray[np.int64]


def claims(log: Path, track: Track, limits: LogLimits) -> Claims:
    """Return the claims of a log. Raises `BadSubmission` at the first wrong line, or if an episode is missing."""
    rows = {task.number: row for row, task in enumerate(track.tasks)}
    expected = {start: rows[start.task] for start in track.starts()}
    shape = len(track.tasks), track.attempts
    scores, steps, lines = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    settings = _settings(track)
    for number, found in scan_log(log, limits):
        if isinstance(found, BadLog):
            raise BadSubmission(f"{found}")
        where = f"{log.name} line {number}"
        _check_settings(found, track, settings, where)
        row = expected.get(start := TrackEpisode(found.task, found.seed, found.attempt))
        if row is None:
            raise BadSubmission(f"{where}: {_words(start)} is not in track {track.name}")
        if found.task_key != track.tasks[row].key:
            raise BadSubmission(
                f"{where}: task {found.task} has the key {found.task_key:.64}, in the track {track.tasks[row].key}"
            )
        place = row, found.attempt
        if lines[place]:
            raise BadSubmission(f"{where}: {_words(start)} is already in line {lines[place]}")
        lines[place] = number
        scores[place] = float(found.success) if track.metric == "success" else found.score
        steps[place] = len(found.actions)
    missing = np.argwhere(lines == 0)
    if len(missing):
        task, attempt = missing[0]
        first = f"task {track.tasks[task].number}, attempt {attempt}"
        raise BadSubmission(f"{log.name}: {len(missing)} of {track.episodes} episodes are missing, first {first}")
    return Claims(scores, steps)


def _check_settings(found: LoggedEpisode, track: Track, settings: bytes, where: str) -> None:
    if _settings(found) == settings:
        return
    for name in _SETTINGS:
        own, other = getattr(found, name), getattr(track, name)
        if canonical(own) != canonical(other):
            raise BadSubmission(f"{where}: {name} is {own!r:.200}, in track {track.name} {other!r:.200}")


def _settings(of: LoggedEpisode | Track) -> bytes:
    return canonical(list(attrgetter(*_SETTINGS)(of)))


def _words(start: TrackEpisode) -> str:
    return f"the episode of task {start.task}, seed {start.seed}, attempt {start.attempt}"
