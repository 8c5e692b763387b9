"""Verify a whole log."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from agentgym_flow.core import check_integer
from agentgym_flow.episode import Episode
from agentgym_flow.episode_log import LogLimits, raw_lines
from agentgym_flow.errors import BadLog
from agentgym_flow.replay.lines import LineChecker, LinePlan, LineResult
from agentgym_flow.replay.tally import Expected, LogVerdict, Tally


def verify_log(
    path: str | Path,
    data: Mapping[str, str | Path] | None = None,
    on_episode: Callable[[int, Episode | None], None] | None = None,
    keep: Sequence[str] = (),
    *,
    jobs: int | None = None,
    limits: LogLimits | None = None,
    expect: Expected = None,
    fetch: bool = False,
    on_line: Callable[[int], None] | None = None,
) -> LogVerdict:
    """Verify every line of a log and sum up. Whatever the file holds is reported, never raised.

    The episodes are stepped in processes forked from this one, which know what it has imported and registered. They
    have no network and write nowhere, as far as the kernel can see to that (`LogVerdict.walls`).

    Args:
        path: a `.jsonl` or `.jsonl.gz` file.
        data: where official data is, by name; otherwise it is looked for among the registered data sets.
        on_episode: called after every line with its number and the episode as replayed (None if that was impossible).
        keep: keys of `info` that are kept on the turns of these episodes, where their environment has them.
        jobs: processes; None for one per core. 0: this process, without limits on CPU time and memory and without
            walls: for logs of your own. Elsewhere than on Linux it is always this process.
        limits: what a line and the whole log may take; `LogLimits()` if None.
        expect: how many episodes there should be, or `"split"` for every task of the split at least once.
        fetch: let environments download official data that they get by themselves; takes the walls down.
        on_line: called after every line with its number.

    Raises:
        BadLog: there is no such file.
        BadSetting: `jobs` or `expect` cannot work.
    """
    if not Path(path).exists():
        raise BadLog(f"there is no log at {path}")
    if expect is not None and expect != "split":
        check_integer("expect", expect, 0)
    processes = _cores() if jobs is None else check_integer("jobs", jobs, 0)
    limits = limits or LogLimits()
    where = {name: Path(place).absolute() for name, place in (data or {}).items()}
    plan = LinePlan(Path(path).name, where, limits, fetch, tuple(keep) if on_episode is not None else None)
    tally = Tally(expect)
    walls: list[str] = []
    # Closed at once when a callback raises: then no process goes on stepping.
    with closing(_checked(path, plan, processes if sys.platform == "linux" else 0, walls)) as found:
        for checked in found:
            checked.count(tally)
            if on_episode is not None:
                on_episode(checked.number, checked.episode)
            if on_line is not None:
                on_line(checked.number)
    return tally.verdict(tuple(walls))


def _checked(path: str | Path, plan: LinePlan, jobs: int, walls: list[str]) -> Generator[LineResult, None, None]:
    """Yield what is found of each line, in order; then put into `walls` what confined those who looked."""
    lines = raw_lines(path, plan.limits)
    if not jobs:
        with LineChecker(plan) as checker:
            for number, raw in lines:
                yield LineResult.unread(number, raw) if isinstance(raw, BadLog) else checker.check(number, raw)
        return
    from agentgym_flow.replay.workers import CheckerPool  # not on every system

    with tempfile.TemporaryDirectory(prefix="agentgym_flow-") as scratch:
        workers = CheckerPool(plan, jobs, Path(scratch))
        yield from workers.check(lines)
        walls += workers.walls


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
