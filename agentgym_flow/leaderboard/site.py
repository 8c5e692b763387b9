"""Render the leaderboards as a static site of self-contained pages. The same files give the same bytes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow._util.values import printable
from agentgym_flow.episodes import Episode, Group, LoggedEpisode, scan_log, write_log
from agentgym_flow.leaderboard.board import Entry, Leaderboard, achieved_within, boards, outcomes
from agentgym_flow.leaderboard.eval_results import eval_result
from agentgym_flow.leaderboard.facts import Bound, bounds, csv_table, how_to_submit, links, parameters, sections
from agentgym_flow.leaderboard.files import SITE
from agentgym_flow.leaderboard.judge import limits_of
from agentgym_flow.leaderboard.season import definitions
from agentgym_flow.leaderboard.submission import LOG, class_of
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.replay import verify_log
from agentgym_flow.report import render_report
from agentgym_flow.report.charts import Curve, charts
from agentgym_flow.report.page import WORKFLOW, failures_first
from agentgym_flow.report.rendering import security_policy, source, templates

DATASET = "agentgym-flow/leaderboards"
"""The data set in exported results."""

FOOTER = "Rendered by agentgym_flow."
"""The footer of every page. It has no version, because a release must not change pages with unchanged entries."""

CSV = "entries.csv"
"""The file with all entries of a board, and beside the index with those of all boards."""

_PACKAGE = "agentgym_flow.leaderboard"


def render(root: Path, *, jobs: int | None = None, files: str = "") -> None:
    """Write the site of the leaderboards below `root`, and replace an existing one at the end.

    Args:
        root: the folder of the leaderboards.
        jobs: the number of processes for replay; None for one per core.
        files: the address of `root` on the web, for links to logs and weights; empty for links from the site to `root`.

    Raises `BadTrack` or `BadSubmission` if a file of the leaderboards is damaged.
    """
    with write_folder_atomically(root / SITE, replace=True) as partial:
        for name, text in pages(root, jobs=jobs, files=files).items():
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8", newline="\n")


def first_difference(root: Path, *, jobs: int | None = None) -> str:
    """Return the name of a file of the site that would now be rendered differently; empty if there is none."""
    made = pages(root, jobs=jobs)
    there = {file.relative_to(root / SITE).as_posix() for file in (root / SITE).rglob("*") if file.is_file()}
    for name in sorted(made.keys() | there):
        if name not in made or name not in there or (root / SITE / name).read_bytes() != made[name].encode():
            return name
    return ""


def pages(root: Path, *, jobs: int | None = None, files: str = "") -> dict[str, str]:
    """Return the files of the site: name -> text. The arguments are those of `render`."""
    found = boards(root)
    there = {board.track.name.removesuffix(f"-{board.track.season}") for board in found}
    awaited = [one for name, one in definitions(root).items() if name not in there]
    made: dict[str, str] = {}
    recorded: dict[str, int] = {}
    for board in found:
        track, lines_at = board.track.name, bounds(board, found)
        sizes = {entry.id: parameters(entry) for entry in board.entries}
        logs = {entry.id: listed(entry, board.track) for entry in board.entries}
        recorded |= {f"{track}/{name}": sum(line.recorded for line in lines) for name, lines in logs.items()}
        for entry in board.entries:
            place = f"{track}/{entry.id}"
            back = [("All tracks", "../../index.html"), (board.track.title, "../index.html")]
            back.append((entry.about.title, "index.html"))
            player = watched(entry, board.track, logs[entry.id], back, FOOTER, jobs=jobs)
            made[f"{place}/index.html"] = _page(
                "entry.html.j2",
                entry.about.title,
                board=board,
                entry=entry,
                recorded=recorded[place],
                logged=[(line, player.places.get((line.task, line.attempt), 0)) for line in logs[entry.id]],
                outcomes=outcomes(entry, board.track, player.places),
                bounds=lines_at,
                parameters=sizes[entry.id],
                links=links(entry, files or "../../.."),
                charts=charts([achieved_within(entry, board.track), *_levels(lines_at, board.track)]),
            )
            made[f"{place}/eval_results.yaml"] = _exported(board, entry)
            if player.page:
                made[f"{place}/episodes.html"] = player.page
        made[f"{track}/index.html"] = _page(
            "board.html.j2",
            board.track.title,
            board=board,
            recorded=recorded,
            bounds=lines_at,
            sections=sections(board),
            parameters=sizes,
            links={entry.id: links(entry, files or "../..") for entry in board.entries},
            commands=how_to_submit(board.track),
        )
        made[f"{track}/{CSV}"] = csv_table([board], recorded)
    made[CSV] = csv_table(found, recorded)
    generated = [board.track for board in found if board.track.rules == "open" and not board.track.data]
    examples = [*generated, *(board.track for board in found)]
    made["index.html"] = _page(
        "index.html.j2",
        "Leaderboards",
        boards=[(board, bounds(board, found)) for board in found],
        legend=max((bounds(board, found) for board in found), key=len, default=[]),
        awaited=awaited,
        example=examples[0] if found else None,
        commands=how_to_submit(examples[0]) if found else "",
    )
    return made


def _levels(found: Sequence[Bound], track: Track) -> list[Curve]:
    """Return the scores of the floor and the ceiling as level lines for the chart of an entry."""
    return [
        Curve(
            f"{one.name}, the {one.style}",
            [0, track.max_steps],
            [100 * score.mean] * 2,
            x_label="steps",
            y_label=f"{track.metric} (%)",
        )
        for one in found
        if (score := one.score()) is not None
    ]


def _page(template: str, title: str, **parts: Any) -> str:
    style = source("page.css") + source("board.css", package=_PACKAGE)
    script = source("tables.js", package=_PACKAGE)
    environment = templates(_PACKAGE)
    environment.filters |= {"percent": _percent, "place": _place, "settings": _settings, "breakable": _breakable}
    environment.filters |= {"short": _short, "class_of": class_of, "short_id": lambda name: name.rpartition("/")[2]}
    return environment.get_template(template).render(
        title=title,
        footer=FOOTER,
        policy=security_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        **parts,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _place(share: float) -> str:
    """Return the x coordinate of a share in the picture of an interval, which is 200 wide."""
    return f"{4 + 192 * share:.2f}"


def _short(count: int) -> str:
    """Return a number with three digits and a unit, such as `243 k` or `7.62 B`."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}\u00a0{unit}"
    return str(count)


def _settings(kwargs: Mapping[str, Any]) -> str:
    """Return the settings of an environment in one line, without empty ones and the season."""
    told = {name: value for name, value in kwargs.items() if value not in (None, {}, [], "") and name != "season"}
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in told.items())


def _breakable(name: str) -> Markup:
    """Return a name with possible line breaks after its underscores, for narrow screens."""
    return Markup("_<wbr>").join(printable(name).split("_"))


def _exported(board: Leaderboard, entry: Entry) -> str:
    return eval_result(
        entry.verdict.scores,
        DATASET,
        board.track.name,
        date=entry.about.date,
        notes=f"badge: {entry.verdict.badge}; prompt: {entry.about.prompt}",
    )


OF_THE_LOG = "from the submitter's log. The score comes from other episodes, which CI played on fresh tasks."
"""What the player says about the episodes of a reproduced entry."""

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
    source_of = {"these episodes": OF_THE_LOG} if entry.verdict.season else {}
    while True:
        # Without a success, all potentials are unknown, and a graph would show nothing.
        groups = [Group(attempts) for attempts in tasks if any(one.success for one in attempts)]
        others = [one for attempts in tasks if not any(one.success for one in attempts) for one in attempts]
        page = render_report(title=title, summary=source_of, groups=groups, episodes=others, links=links, footer=footer)
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
