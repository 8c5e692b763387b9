"""How far long work is: a bar on a terminal, elsewhere a line from time to time."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentgym_flow.episodes import Episode

LEAST_SECONDS = 5.0
"""The least number of seconds between two lines."""

MOST_SECONDS = 30.0
"""A line comes at every tenth of the work, and after this many seconds, or later in work that takes long."""


def console_here(*, error: bool = False) -> Console:
    """Return a console on the present standard output or error, which moves nothing where that is not a terminal.

    `FORCE_COLOR`, which notebooks and CI set, asks for colours. Rich takes it for a terminal and would fill a file
    with the frames of its bars.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is not None and stream.isatty():
        return Console(stderr=error, highlight=False)
    asked = bool(os.environ.get("FORCE_COLOR"))
    return Console(stderr=error, highlight=False, force_terminal=False, color_system="standard" if asked else "auto")


class LiveProgress:
    """Shows count, figures and remaining time of some work, within a `with` block.

    Work of a few seconds prints no line.

    Args:
        console: where to show it.
        what: the name of the work.
        total: the number of its parts; None: unknown.
        first: the number of parts that are done already.
        parallel: the number of parts that are worked on at a time.
    """

    def __init__(
        self, console: Console, what: str, total: int | None = None, first: int = 0, parallel: int = 1
    ) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("to go"),
        )
        self._console = console
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._bars.add_task(what, total=total, completed=first, figures="")
        self._what, self._total, self._first, self._parallel = what, total, first, parallel
        self._lines = 0 if not total else first * 10 // total
        self._done = first
        self._began = self._printed = self._moved = time.monotonic()

    def __enter__(self) -> Self:
        self._began = self._printed = time.monotonic()
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin_at(self, first: int, total: int) -> None:
        """Begin with so many parts that are done already, as those of a run that is continued."""
        self._first, self._total, self._lines = first, total, first * 10 // max(1, total)
        self._bars.reset(self._bar, completed=first, total=total)

    def update(
        self, done: int, figures: str = "", *, what: str | None = None, total: int | None = None, tokens: int = 0
    ) -> None:
        """Show that `done` parts are done, with figures such as `loss 0.31`, and how many tokens come a second.

        `tokens` are those of finished parts; those under way are taken to be half done on average. Another `what`
        begins another phase of the work, with a total and a remaining time of its own; 0: unknown.
        """
        now = time.monotonic()
        if what not in (None, self._what):
            self._what, self._total, self._first, self._began, self._lines = str(what), None, done, now, 0
        if done != self._done:
            self._done, self._moved = done, now
        self._total = self._total if total is None else total or None
        half_done = min(self._parallel - 1, self._total - done) / 2 if self._total else 0.0
        if tokens:
            sampled = tokens * (1 + half_done / max(1, done - self._first))
            figures += f", {sampled / max(now - self._began, 1e-9):,.3g} tokens/s"
        self._bars.tasks[0].total = self._total
        self._bars.update(self._bar, completed=done, description=self._what, figures=figures)
        lines = done * 10 // self._total if self._total else 0
        gone, since = now - self._began, now - self._printed
        comes_late = since >= max(MOST_SECONDS, gone / 10)
        if self._console.is_terminal or since < LEAST_SECONDS or (lines == self._lines and not comes_late):
            return
        self._lines, self._printed = lines, now
        parts = [f"{self._what}: {done:,}", f"{timedelta(seconds=round(gone))} gone"]
        if self._total:
            parts[0] += f" of {self._total:,}"
        if self._total and done > self._first:
            each = (self._moved - self._began) / (done - self._first + half_done)
            to_go = max(0.0, each * (self._total - done - half_done) - (now - self._moved))
            parts[1] += f", about {timedelta(seconds=round(to_go))} to go"
        self._console.print(
            ", ".join([*parts, *filter(None, [figures])]), soft_wrap=True, markup=False, highlight=False
        )


class LiveSuccess(LiveProgress):
    """Shows the number of finished episodes, their success rate so far, tokens per second, and the remaining time."""

    def __init__(self, console: Console, what: str, total: int | None = None, parallel: int = 1) -> None:
        super().__init__(console, what, total, parallel=parallel)
        self.episodes = self.successes = self._tokens = 0

    def add(self, episode: Episode) -> None:
        """Count a finished episode."""
        self.episodes += 1
        self.successes += episode.success
        self._tokens += sampled_tokens(episode)
        if self.episodes > self._first:
            self.update(self.episodes, f"success {self.rate()}", tokens=self._tokens)

    def rate(self) -> str:
        """Return the success rate as shown."""
        return f"{self.successes / self.episodes:.1%}"


def sampled_tokens(episode: Episode) -> int:
    """Return the number of tokens of an episode's answers, as far as they are known."""
    return sum(len(turn.output.completion_ids or ()) for turn in episode.turns)
