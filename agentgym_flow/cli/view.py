"""`agentgym-flow view`: turn a log into a page with an episode player."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow._util.files import check_new
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import Force, say, share, stderr
from agentgym_flow.cli.verify import DataPaths, LogPath
from agentgym_flow.episodes import Episode, Group, LoggedEpisode, scan_log
from agentgym_flow.errors import BadLog
from agentgym_flow.replay import LogVerdict, verify_log

_MOST_GRAPHS = 12


def view(
    log: LogPath,
    out: Annotated[Path | None, typer.Option(help="The page to write (default: next to the log).")] = None,
    data: DataPaths = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most the first N episodes of the log.")] = 1000,
    force: Force = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Replay a log, and write a self-contained page with state graphs and an episode player.

    Several attempts at one task from the same start form a group. Each group has a state graph.
    """
    from agentgym_flow.report import WORKFLOW, write_report

    page = out or log.with_name(f"{log.name.removesuffix('.gz').removesuffix('.jsonl')}.html")
    check_new(page, replace=force, inputs=[log, *environments.data_paths(data).values()])
    replayed: dict[int, Episode] = {}
    with stderr().status("stepping"):

        def on_episode(number: int, episode: Episode | None) -> None:
            if episode is not None and len(replayed) < limit:
                replayed[number] = episode

        verdict = verify_log(log, environments.data_paths(data), on_episode, keep=(WORKFLOW,))
    if not replayed:
        raise BadLog(f"{log.name}: no episode of this log can be shown. {verdict.problems()[0]}")
    _add_remarks(log, replayed, verdict)
    page = write_report(
        page,
        title=f"Episodes of {log.name}",
        summary=_summary(verdict, replayed),
        groups=groups_of(list(replayed.values()))[:_MOST_GRAPHS],
        episodes=list(replayed.values()),
    )
    say(str(page))
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        stderr().print("cannot open a browser")


def groups_of(episodes: list[Episode]) -> list[Group]:
    """Return a group for every start with several attempts. Groups with both successes and failures come first."""
    by_start: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_start.setdefault(episode.start_digest, []).append(episode)
    groups = [Group(members) for members in by_start.values() if len(members) > 1]
    return sorted(groups, key=lambda group: len({episode.success for episode in group}), reverse=True)


def _add_remarks(log: Path, replayed: dict[int, Episode], verdict: LogVerdict) -> None:
    """Add to the replayed episodes the remarks of the log and the differences that verification found."""
    diverged = dict(verdict.divergences)
    for number, logged in scan_log(log):
        episode = replayed.get(number)
        if episode is None or not isinstance(logged, LoggedEpisode):
            continue
        logged.add_remarks(episode)
        if number in diverged:
            episode.meta["differs from the log"] = str(diverged[number])


def _summary(verdict: LogVerdict, replayed: dict[int, Episode]) -> dict[str, str]:
    episodes = list(replayed.values())
    seeds = [episode.seed for episode in episodes]
    rows = {
        "environment": _listed(f"{episode.env_id}, {episode.split}" for episode in episodes),
        "policy (as the log says)": _listed(str(episode.meta.get("policy", "not named")) for episode in episodes),
        "settings": _listed(_settings(episode) for episode in episodes),
        "seeds": f"{min(seeds)} to {max(seeds)}" if len(set(seeds)) > 1 else str(seeds[0]),
        "episodes": f"{verdict.episodes:,}",
        "success": share(verdict.success),
        "mean score": f"{verdict.score:.3f}",
        "verified": "every episode matches the log" if verdict.ok else "; ".join(verdict.problems()[:5]),
    }
    if len(replayed) < verdict.episodes:
        rows["shown"] = f"{len(replayed):,} of {verdict.episodes:,} episodes"
    count = len(groups_of(episodes))
    if count > _MOST_GRAPHS:
        rows["state graphs"] = f"{_MOST_GRAPHS} of {count} groups"
    return rows


def _settings(episode: Episode) -> str:
    """Return the arguments of the environment as `name=value` pairs."""
    settings = {**episode.kwargs, "max_steps": episode.max_steps, **episode.data}
    return ", ".join(f"{name}={json.dumps(value):.200}" for name, value in settings.items())[:1000]


def _listed(texts: Iterable[str]) -> str:
    """Return the distinct `texts` in one line: at most the first three, and the number of others."""
    different = sorted(set(texts))
    more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
    return "; ".join(different[:3]) + more
