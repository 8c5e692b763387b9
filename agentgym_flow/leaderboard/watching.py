"""The page with episodes of an entry: choose them, replay them, and draw the state graph of each task."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agentgym_flow.episodes import Episode, Group, LoggedEpisode, scan_log, write_log
from agentgym_flow.leaderboard.board import Entry
from agentgym_flow.leaderboard.judge import limits_of
from agentgym_flow.leaderboard.submission import LOG
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.replay import verify_log
from agentgym_flow.report import render_report
from agentgym_flow.report.page import WORKFLOW, failures_first

MOST_EPISODES = 30
"""The largest number of episodes on the page of an entry."""

MOST_CHARACTERS = 2_000_000
"""The approximate largest size of a page; if it is larger, it gets fewer episodes."""


class EpisodeListing(NamedTuple):
    """A line of an entry's log: task, attempt, success, and whether it has recorded responses."""

    task: int
    attempt: int
    success: bool
    recorded: bool


class WatchedEpisodes(NamedTuple):
    """The page (empty if there is none), and the number of each episode in its player: (task, attempt) -> 1, 2, ..."""

    page: str = ""
    places: Mapping[tuple[int, int], int] = {}


def listed(entry: Entry, track: Track) -> list[EpisodeListing]:
    """Return the lines of an entry's log, which was verified when the entry was accepted."""
    return [
        EpisodeListing(one.task, one.attempt, one.success, one.recording is not None) for one in _logged(entry, track)
    ]


def chosen(lines: Sequence[EpisodeListing], most: int = MOST_EPISODES) -> list[list[EpisodeListing]]:
    """Return the episodes to watch, by task. Up to half of them are from tasks with a failure.

    All attempts at a task stay together, unless they exceed `most`.
    """
    tasks: dict[int, list[EpisodeListing]] = {}
    for line in lines:
        tasks.setdefault(line.task, []).append(line)
    failed = [attempts for attempts in tasks.values() if not all(line.success for line in attempts)]
    solved = [attempts for attempts in tasks.values() if all(line.success for line in attempts)]
    kept: list[list[EpisodeListing]] = []

    def fill(room: int, waiting: list[list[EpisodeListing]]) -> None:
        while waiting and (left := room - sum(map(len, kept))) > 0:
            kept.append(waiting.pop(0)[:left])

    fill(most // 2, failed)
    fill(most, solved)
    fill(most, failed)
    return kept


def watched(
    entry: Entry,
    track: Track,
    lines: Sequence[EpisodeListing],
    links: Sequence[tuple[str, str]],
    footer: str,
    *,
    jobs: int | None,
) -> WatchedEpisodes:
    """Return the page with episodes of an entry's log.

    It is empty on official data, because the site must not depend on the data of the machine that renders it.

    Args:
        entry: the entry.
        track: its track.
        lines: the lines of its log.
        links: the links of the page, (name, address).
        footer: the footer of the page.
        jobs: the number of processes for replay; None for one per core.
    """
    if track.data:
        return WatchedEpisodes()
    tasks = _stepped(entry, track, chosen(lines), jobs)
    title = f"{entry.about.title} on {track.title}"
    while True:
        # Without a success, all potentials are unknown, and a graph would show nothing.
        groups = [Group(attempts) for attempts in tasks if any(one.success for one in attempts)]
        others = [one for attempts in tasks if not any(one.success for one in attempts) for one in attempts]
        page = render_report(title=title, groups=groups, episodes=others, links=links, footer=footer)
        if len(page) <= MOST_CHARACTERS or len(tasks) <= 1:
            break
        tasks = tasks[: len(tasks) // 2]
    shown = failures_first([*(one for group in groups for one in group), *others])
    return WatchedEpisodes(page, {(one.task, one.attempt): place for place, one in enumerate(shown, 1)})


def _stepped(entry: Entry, track: Track, tasks: list[list[EpisodeListing]], jobs: int | None) -> list[list[Episode]]:
    """Return episodes of an entry's log by task, replayed in the sandbox of verification."""
    wanted = {(line.task, line.attempt) for attempts in tasks for line in attempts}
    found: dict[tuple[int, int], Episode] = {}

    def keep(_: int, episode: Episode | None) -> None:
        if episode is not None:
            found[episode.task, episode.attempt] = episode

    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, LOG)
        write_log(log, (one for one in _logged(entry, track) if (one.task, one.attempt) in wanted))
        verify_log(log, None, keep, (WORKFLOW,), jobs=jobs, limits=limits_of(track))
    stepped = [[found.get((line.task, line.attempt)) for line in attempts] for attempts in tasks]
    return [kept for attempts in stepped if (kept := [one for one in attempts if one is not None])]


def _logged(entry: Entry, track: Track) -> Iterator[LoggedEpisode]:
    for _, one in scan_log(entry.path / LOG, limits_of(track)):
        if isinstance(one, LoggedEpisode):
            yield one
