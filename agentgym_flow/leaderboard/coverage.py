"""Whether a log holds exactly the episodes of a track, each once, and what each of them came to by its own words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentgym_flow.episode_log import LoggedEpisode, LogLimits, scan_log
from agentgym_flow.errors import BadLog, BadSubmission
from agentgym_flow.leaderboard.track import Track, TrackEpisode
from agentgym_flow.seeding import canonical


@dataclass(frozen=True, slots=True)
class Claims:
    """What a log says of the episodes of a track; true once every episode has been stepped again.

    Attributes:
        scores: the metric of the track, [tasks, attempts], in the order of its tasks.
        steps: the number of actions of each episode, alike.
    """

    scores: NDArray[np.float64]
    steps: NDArray[np.int64]


def claims(log: Path, track: Track, limits: LogLimits) -> Claims:
    """Return what a log says. Raises `BadSubmission` at the first line that does not belong, or for what is missing."""
    rows = {task.number: row for row, task in enumerate(track.tasks)}
    expected = {start: rows[start.task] for start in track.starts()}
    shape = len(track.tasks), track.attempts
    scores, steps, lines = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    settings = canonical([track.env_id, track.kwargs, track.data, track.split, track.max_steps])
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
            raise BadSubmission(f"{where}: {_words(start)} is there already, in line {lines[place]}")
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
    said = [found.env_id, found.kwargs, found.data, found.split, found.max_steps]
    if canonical(said) == settings:
        return
    for name, own, other in zip(
        ("env_id", "kwargs", "data", "split", "max_steps"),
        said,
        (track.env_id, track.kwargs, track.data, track.split, track.max_steps),
        strict=True,
    ):
        if canonical(own) != canonical(other):
            raise BadSubmission(f"{where}: {name} is {own!r:.200}, in track {track.name} {other!r:.200}")


def _words(start: TrackEpisode) -> str:
    return f"the episode of task {start.task}, seed {start.seed}, attempt {start.attempt}"
