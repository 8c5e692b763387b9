"""`agentgym-flow verify`: replay every episode of a log, and report where it first differs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from agentgym_flow import replay
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import printed, stderr, stdout
from agentgym_flow.episodes import LogLimits
from agentgym_flow.errors import BadLog, BadSetting
from agentgym_flow.replay.tally import Expected

_SHOWN = 20
_LIMITS = LogLimits()


def _limit(what: str) -> Any:
    return typer.Option(help=what, rich_help_panel="Limits: each line beyond a limit counts as a failure")


LogPath = Annotated[Path, typer.Argument(metavar="LOG", dir_okay=False, help="An episode log, .jsonl or .jsonl.gz.")]
DataPaths = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME=PATH", help="The path of official data that is not registered. Repeatable."),
]
Jobs = Annotated[int | None, typer.Option(min=0, help="Number of processes (default: one per core).")]


def verify(
    log: LogPath,
    data: DataPaths = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="N|split", help="Fail unless the log has N episodes, or all tasks of the split."),
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Let environments download official data. Disables the sandbox.")
    ] = False,
    jobs: Jobs = None,
    max_lines: Annotated[int, _limit("Lines per log.")] = _LIMITS.max_lines,
    max_bytes: Annotated[int, _limit("Bytes per log, uncompressed.")] = _LIMITS.max_bytes,
    max_line_bytes: Annotated[int, _limit("Bytes per line.")] = _LIMITS.max_line_bytes,
    max_actions: Annotated[int, _limit("Actions per episode.")] = _LIMITS.max_actions,
    max_action_length: Annotated[int, _limit("Characters per action.")] = _LIMITS.max_action_length,
    max_cpu_seconds: Annotated[float, _limit("CPU seconds per line.")] = _LIMITS.max_cpu_seconds,
    max_memory_mb: Annotated[
        int, _limit("Memory per process, in addition to its memory at start.")
    ] = _LIMITS.max_memory_mb,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Replay every episode of a log. Exits with status 0 if all episodes match the log, and with 1 if any differs.

    Replay needs no model and no GPU: it only steps the environment. It does not prove who chose the actions.
    If no line of the file is an episode, the command exits with status 2 (with --json, 1).
    """
    paths = environments.data_paths(data)
    limits = LogLimits(
        max_lines, max_bytes, max_line_bytes, max_actions, max_action_length, max_cpu_seconds, max_memory_mb
    )
    with stderr().status("stepping") as status:

        def on_line(number: int) -> None:
            status.update(f"stepping: {number} episodes")

        verdict = replay.verify_log(
            log, paths, jobs=jobs, limits=limits, expect=_expected(expect), fetch=fetch, on_line=on_line
        )
    nothing = verdict.unreadable == verdict.episodes and not verdict.given_up
    if nothing and not as_json:  # one line instead of thousands of equal ones
        raise BadLog(f"{log} contains no readable episode. {verdict.problems()[0]}")
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
        console.print("sandbox:", printed(", ".join(verdict.walls) or "none"))
    if not verdict.ok:
        raise typer.Exit(1)


def _expected(text: str | None) -> Expected:
    if text is None or text == "split":
        return cast("Expected", text)
    if not (text.isascii() and text.isdigit()):
        raise BadSetting(f"--expect takes a number of episodes or the word split, got {text!r:.60}")
    return int(text)


def _alike(problems: Iterable[str]) -> list[tuple[str, int]]:
    """Return one problem for each group that differs only in line numbers, with the number of others in its group."""
    first: dict[str, str] = {}
    count: Counter[str] = Counter()
    for problem in problems:
        kind = re.sub(r"\bline \d+", "line", problem)
        first.setdefault(kind, problem)
        count[kind] += 1
    return [(problem, count[kind] - 1) for kind, problem in first.items()]
