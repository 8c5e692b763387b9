"""Shared by the benchmark scripts: arguments, measurements in turns, names of boards, tables.

Times are CPU time where possible, which other jobs on the machine disturb little. Contestants take turns, so that
disturbances affect all of them and ratios remain valid on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def arguments(description: str, repetitions: int | None = None) -> argparse.ArgumentParser:
    """Return a parser that prints `description` verbatim, with the option `--repetitions` unless that is None."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if repetitions is not None:
        what = f"repetitions of every figure (default {repetitions})"
        parser.add_argument("--repetitions", type=int, default=repetitions, help=what)
    return parser


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the time of one call of `run` by `clock`, CPU time by default."""
    start = clock()
    run()
    return clock() - start


def per_second(run: Callable[[], object], calls: int) -> float:
    """Return calls of `run` per second of CPU time, after one call to warm up."""

    def repeat() -> None:
        for _ in range(calls):
            run()

    run()
    return calls / seconds(repeat)


def in_turns(
    contestants: Mapping[str, Callable[[], float]],
    repetitions: int,
    summary: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, float]:
    """Measure all contestants one after the other, `repetitions` times; return the summary of each."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repetitions):
        for name, measure in contestants.items():
            figures[name].append(measure())
    return {name: summary(values) for name, values in figures.items()}


def resident() -> float:
    """Return the resident memory of this process in MB; on Linux only."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_megabytes() -> float:
    """Return the largest resident memory of this process so far, in MB; on Linux only."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kibibytes


def board_name(size: Sequence[int], boxes: int) -> str:
    """Return for example `10x10, 4 boxes`."""
    return f"{size[0]}x{size[1]}, {boxes} box{'es' if boxes > 1 else ''}"


def print_header(*columns: str, numeric: bool = False) -> None:
    """Print the first two lines of a Markdown table; columns of a `numeric` one are right-aligned."""
    print_row(*columns)
    print_row(*["---:" if numeric else "---"] * len(columns))


def print_row(*cells: object) -> None:
    """Print one line of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |")
