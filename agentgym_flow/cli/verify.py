"""`agentgym-flow verify`: step every episode of a log again and say where it first differs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow import replay
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import printed, stderr, stdout
from agentgym_flow.episode import Episode
from agentgym_flow.errors import BadLog

_SHOWN = 20

LogPath = Annotated[Path, typer.Argument(metavar="LOG", dir_okay=False, help="An episode log, .jsonl or .jsonl.gz.")]
DataPaths = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME=PATH", help="Where official data is, if not registered. Repeatable."),
]


def verify(
    log: LogPath,
    data: DataPaths = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Step every episode of a log again; exit with 0 when all are as logged, with 1 when any differs.

    Needs no model and no GPU: the environment alone decides. It does not prove who chose the actions.
    A file in which no line is an episode is no log: exit with 2.
    """
    paths = environments.data_paths(data)
    with stderr().status("stepping") as status:

        def on_episode(number: int, _: Episode | None) -> None:
            status.update(f"stepping: {number} episodes")

        verdict = replay.verify_log(log, paths, on_episode)
    if len(verdict.malformed) == verdict.episodes:  # one line says it; thousands would say the same
        raise BadLog(f"{log} holds no episode that can be read. {verdict.problems()[0]}")
    if as_json:
        typer.echo(json.dumps({"ok": verdict.ok, **asdict(verdict)}, indent=1))
    else:
        console = stdout()
        alike = _alike(verdict.problems())
        for problem, more in alike[:_SHOWN]:
            rest = f" (and {more} more like it)" if more else ""
            console.print("[red]differs[/]", printed(problem + rest), soft_wrap=True)
        if len(alike) > _SHOWN:
            console.print(f"... and {len(alike) - _SHOWN} more; --json has them all")
        console.print("[green]verified:[/]" if verdict.ok else "[bold red]not verified:[/]", printed(str(verdict)))
    if not verdict.ok:
        raise typer.Exit(1)


def _alike(problems: Iterable[str]) -> list[tuple[str, int]]:
    """Return the first of all problems that differ in their line numbers only, and how many more there are of it."""
    first: dict[str, str] = {}
    count: Counter[str] = Counter()
    for problem in problems:
        kind = re.sub(r"\bline \d+", "line", problem)
        first.setdefault(kind, problem)
        count[kind] += 1
    return [(problem, count[kind] - 1) for kind, problem in first.items()]
