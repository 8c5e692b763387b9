"""Render the leaderboards as a static site of self-contained pages. The same files give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow._util.values import printable
from agentgym_flow.leaderboard.board import Entry, Leaderboard, boards
from agentgym_flow.leaderboard.definitions import definitions
from agentgym_flow.leaderboard.eval_results import eval_result
from agentgym_flow.leaderboard.outcomes import achieved_within, outcomes
from agentgym_flow.leaderboard.places import SITE
from agentgym_flow.leaderboard.watching import listed, watched
from agentgym_flow.report.charts import charts
from agentgym_flow.report.rendering import security_policy, source, templates

DATASET = "agentgym-flow/leaderboards"
"""The data set in exported results."""

FOOTER = "Rendered by agentgym_flow."
"""The footer of every page. It has no version, because a release must not change pages with unchanged entries."""

_PACKAGE = "agentgym_flow.leaderboard"


def render(root: Path, *, jobs: int | None = None) -> None:
    """Write the site of the leaderboards below `root`, and replace an existing one at the end.

    Args:
        root: the folder of the leaderboards.
        jobs: the number of processes for replay; None for one per core.

    Raises `BadTrack` or `BadSubmission` if a file of the leaderboards is damaged.
    """
    with write_folder_atomically(root / SITE, replace=True) as partial:
        for name, text in pages(root, jobs=jobs).items():
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


def pages(root: Path, *, jobs: int | None = None) -> dict[str, str]:
    """Return the files of the site: name -> text."""
    found = boards(root)
    there = {board.track.name.removesuffix(f"-{board.track.season}") for board in found}
    awaited = [one for one in definitions(root) if one.name not in there]
    made = {"index.html": _page("index.html.j2", "Leaderboards", boards=found, awaited=awaited)}
    for board in found:
        track = board.track.name
        logs = {entry.id: listed(entry, board.track) for entry in board.entries}
        recorded = {name: sum(line.recorded for line in lines) for name, lines in logs.items()}
        made[f"{track}/index.html"] = _page("board.html.j2", board.track.title, board=board, recorded=recorded)
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
                recorded=recorded[entry.id],
                watched=player.page,
                outcomes=outcomes(entry, board.track, player.places),
                charts=charts([achieved_within(entry, board.track)]),
            )
            made[f"{place}/eval_results.yaml"] = _exported(board, entry)
            if player.page:
                made[f"{place}/episodes.html"] = player.page
    return made


def _page(template: str, title: str, **parts: Any) -> str:
    style = source("page.css") + source("board.css", package=_PACKAGE)
    script = source("sort.js", package=_PACKAGE)
    environment = templates(_PACKAGE)
    environment.filters |= {"percent": _percent, "place": _place, "settings": _settings, "breakable": _breakable}
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
