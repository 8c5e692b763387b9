"""Verify a whole log."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from agentgym_flow.core import check_integer
from agentgym_flow.episodes import Episode, LogLimits, raw_lines
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
    """Verify every line of a log and return the verdict. The content of the file never raises.

    Episodes are replayed in forked processes, which have all imports and registrations of this process. They have no
    network and cannot write files, as far as the kernel supports it (`LogVerdict.walls`).

    Args:
        path: a `.jsonl` or `.jsonl.gz` file.
        data: paths of official data, by name. Other data is taken from the registry.
        on_episode: called after every line with its number and the replayed episode (None if replay was impossible).
        keep: keys of `info` to store with the turns of these episodes, if the environment has them.
        jobs: the number of processes; None for one per core. 0: use this process, without sandbox and limits on CPU
            time and memory; only for trusted logs. On other systems than Linux, this process is always used.
        limits: the limits for a line and for the whole log; None for `LogLimits()`.
        expect: the expected number of episodes, or `"split"` for at least one episode of every task in the split.
        fetch: let environments download official data; disables the sandbox.
        on_line: called after every line with its number.

    Raises:
        BadLog: the file does not exist.
        BadSetting: `jobs` or `expect` is invalid.
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
    # If a callback raises, closing stops all processes immediately.
    with closing(_checked(path, plan, processes if sys.platform == "linux" else 0, walls)) as found:
        for checked in found:
            checked.count(tally)
            if on_episode is not None:
                on_episode(checked.number, checked.episode)
            if on_line is not None:
                on_line(checked.number)
    return tally.verdict(tuple(walls))


def _checked(path: str | Path, plan: LinePlan, jobs: int, walls: list[str]) -> Generator[LineResult, None, None]:
    """Yield the result for each line, in order; at the end, add the layers of the sandbox to `walls`."""
    lines = raw_lines(path, plan.limits)
    if not jobs:
        with LineChecker(plan) as checker:
            for number, raw in lines:
                yield LineResult.unread(number, raw) if isinstance(raw, BadLog) else checker.check(number, raw)
        return
    from agentgym_flow.replay.workers import CheckerPool  # needs Linux

    with tempfile.TemporaryDirectory(prefix="agentgym_flow-") as scratch:
        workers = CheckerPool(plan, jobs, Path(scratch))
        yield from workers.check(lines)
        walls += workers.walls


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
