"""Verify a whole log: the verdict, and the counting of lines, which needs little memory for any length of the log."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tempfile
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from agentgym_flow.core import check_integer
from agentgym_flow.episodes import Episode, LogLimits, raw_lines
from agentgym_flow.errors import BadLog, SandboxUnavailable
from agentgym_flow.replay.lines import LineChecker, LinePlan, LinePosition, LineResult
from agentgym_flow.replay.stepping import Divergence
from agentgym_flow.sandbox.verdict import Level, Machine


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
    require_sandbox: bool = False,
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
        require_sandbox: replay nothing unless the sandbox is `strong`, see `LogVerdict.sandbox`.

    Raises:
        BadLog: the file does not exist.
        BadSetting: `jobs` or `expect` is invalid.
        SandboxUnavailable: the sandbox is required, and this machine cannot build it, or `jobs=0` or `fetch` does
            without it; the message says what is missing.
    """
    if not Path(path).exists():
        raise BadLog(f"there is no log at {path}")
    if expect is not None and expect != "split":
        check_integer("expect", expect, 0)
    if jobs is None:
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    else:
        processes = check_integer("jobs", jobs, 0)
    if require_sandbox and (fetch or not processes):
        raise SandboxUnavailable("The sandbox is required: leave out fetch, and use jobs of 1 or more.")
    if require_sandbox and sys.platform != "linux":
        raise SandboxUnavailable(f"The sandbox of verification is required and needs Linux, not {sys.platform}.")
    limits = limits or LogLimits()
    where = {name: Path(place).absolute() for name, place in (data or {}).items()}
    plan = LinePlan(
        Path(path).name, where, limits, fetch, tuple(keep) if on_episode is not None else None, require_sandbox
    )
    tally = Tally(expect)
    machines: list[Machine] = []
    # If a callback raises, closing stops all processes immediately.
    with closing(_checked(path, plan, processes if sys.platform == "linux" else 0, machines)) as found:
        for checked in found:
            tally.add(checked)
            if on_episode is not None:
                on_episode(checked.number, checked.episode)
            if on_line is not None:
                on_line(checked.number)
    return tally.verdict(*machines)


def _checked(path: str | Path, plan: LinePlan, jobs: int, machines: list[Machine]) -> Generator[LineResult, None, None]:
    """Yield the result for each line, in order; at the end, add the sandbox to `machines`, if there is one."""
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
        machines += [] if workers.sandbox is None else [workers.sandbox]


MOST_PROBLEMS = 1000
"""The number of problems of each kind that are stored; further ones are only counted."""

Expected = int | Literal["split"] | None
"""The expected episodes of a log: a number, every task of the split, or unknown."""

_NO_SANDBOX = Machine("none", ())

_KEY_BYTES = 16
_MOST_ATTEMPTS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """The result of verifying a log. Lists of problems contain the first `MOST_PROBLEMS`.

    Attributes:
        episodes: the number of lines.
        matched: the number of episodes whose replay is identical.
        unfinished: the number of matched episodes that neither terminated nor were truncated.
        success: the success rate in the replay; a line that did not match counts as a failure.
        score: the mean native metric in the replay; a line that did not match counts 0.
        claimed_success: the success rate that the readable lines claim.
        claimed_score: the mean native metric that the readable lines claim.
        diverged: the number of episodes that did not match.
        unreadable: the number of lines that cannot be read.
        given_up: the number of unreadable lines that exceeded a limit or ended the process that checked them.
        repeated: the number of duplicate episodes.
        divergences: (line number, divergence) of episodes that did not match.
        malformed: (line number, message) of lines that cannot be read.
        duplicates: (line number, earlier line number) of episodes with the same task, seed and attempt.
        gaps: (line number, missing attempt) of tasks whose attempts are not 0, 1, 2, ...; the line has the first
            attempt after the gap.
        missing: a sentence about expected episodes that are missing; empty if none are.
        sandbox: how the processes that replayed the episodes were isolated: `strong`: no network, and no writing
            outside of a folder that was deleted; `limited`: walls are missing; `none`: no walls, or this process.
        walls: the walls of this sandbox, of `network`, `landlock` and `seccomp`.
    """

    episodes: int
    matched: int
    unfinished: int
    success: float
    score: float
    claimed_success: float
    claimed_score: float
    diverged: int
    unreadable: int
    given_up: int
    repeated: int
    divergences: tuple[tuple[int, Divergence], ...]
    malformed: tuple[tuple[int, str], ...]
    duplicates: tuple[tuple[int, int], ...]
    gaps: tuple[tuple[int, int], ...]
    missing: str
    sandbox: Level
    walls: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all lines matched, without duplicates, gaps or missing episodes."""
        return self.matched == self.episodes > 0 and not (self.repeated or self.gaps or self.missing)

    def problems(self) -> list[str]:
        """Return one sentence per problem, in the order of the lines."""
        if not self.episodes:
            return ["the log holds no episode"]
        found = [(line, f"line {line}, {divergence}") for line, divergence in self.divergences]
        found += list(self.malformed)
        found += [(line, f"line {line}: the same episode as line {first}") for line, first in self.duplicates]
        found += [(line, f"line {line}: attempt {gap} at the same task is not in the log") for line, gap in self.gaps]
        sentences = [sentence for _, sentence in sorted(found)]
        stored = len(self.divergences) + len(self.malformed) + len(self.duplicates)
        more = self.diverged + self.unreadable + self.repeated - stored
        return sentences + [f"{more} more lines with problems"] * (more > 0) + [self.missing] * bool(self.missing)

    def __str__(self) -> str:
        line = f"{self.matched} of {self.episodes} episodes match; success {self.success:.1%}, score {self.score:.3f}"
        counts = [
            (self.unfinished, "unfinished"),
            (self.unreadable, "unreadable"),
            (self.repeated, "duplicated"),
            (len(self.gaps), "with a gap in their attempts"),
        ]
        return line + "".join(f", {number} {what}" for number, what in counts if number)


class Tally:
    """Counts the lines of a log. It needs 64 bytes for any line.

    Args:
        expected: the expected episodes of the log.
    """

    def __init__(self, expected: Expected = None) -> None:
        self._expected = expected
        self._malformed: list[tuple[int, str]] = []
        self._divergences: list[tuple[int, Divergence]] = []
        self._lines = self._matched = self._unfinished = self._successes = self._claimed = 0
        self._diverged = self._unreadable = self._given_up = 0
        self._scores, self._claimed_scores = array("d"), array("d")
        self._keys, self._attempts, self._numbers = bytearray(), array("q"), array("q")
        self._tasks: set[int] = set()
        self._settings: str | None = None
        self._mixed = False
        self._num_tasks = 0

    def add(self, line: LineResult) -> None:
        """Count a line."""
        if line.place is None:
            self._unreadable += 1
            self._given_up += line.given_up
            if len(self._malformed) < MOST_PROBLEMS:
                self._malformed.append((line.number, line.malformed))
            return
        self._lines += 1
        self._claimed += line.claim[0]
        self._claimed_scores.append(line.claim[1])
        self._note(line.number, line.place)
        if line.divergence is not None:
            self._diverged += 1
            if len(self._divergences) < MOST_PROBLEMS:
                self._divergences.append((line.number, line.divergence))
            return
        self._matched += 1
        self._successes += line.outcome.success
        self._unfinished += not (line.outcome.terminated or line.outcome.truncated)
        self._scores.append(line.outcome.score)

    def _note(self, number: int, place: LinePosition) -> None:
        task = hashlib.sha256(f"{place.settings} {place.task}".encode()).digest()
        episode = hashlib.sha256(task + f"{place.seed}".encode()).digest()
        self._keys += task[:_KEY_BYTES] + episode[:_KEY_BYTES]
        self._attempts.append(min(max(place.attempt, -1), _MOST_ATTEMPTS))
        self._numbers.append(number)
        if self._expected == "split":
            self._mixed |= self._settings not in (None, place.settings)
            self._settings = place.settings
            self._num_tasks = max(self._num_tasks, place.num_tasks)
            if 0 <= place.task < place.num_tasks:
                self._tasks.add(place.task)

    def verdict(self, sandbox: Machine = _NO_SANDBOX) -> LogVerdict:
        """Return the verdict."""
        episodes = self._lines + self._unreadable
        total, claims = max(1, episodes), max(1, self._lines)
        duplicates = self._duplicates()
        return LogVerdict(
            episodes=episodes,
            matched=self._matched,
            unfinished=self._unfinished,
            success=self._successes / total,
            score=math.fsum(self._scores) / total,
            claimed_success=self._claimed / claims,
            claimed_score=math.fsum(self._claimed_scores) / claims,
            diverged=self._diverged,
            unreadable=self._unreadable,
            given_up=self._given_up,
            repeated=len(duplicates),
            divergences=tuple(self._divergences),
            malformed=tuple(self._malformed),
            duplicates=tuple(duplicates[:MOST_PROBLEMS]),
            gaps=tuple(sorted(self._gaps())[:MOST_PROBLEMS]),
            missing=self._missing(episodes),
            sandbox=sandbox.level,
            walls=sandbox.walls,
        )

    def _sorted(self, column: int) -> Iterator[list[tuple[int, int]]]:
        """Yield the sorted (attempt, line number) pairs of all lines with the same key, key by key."""
        keys = np.frombuffer(bytes(self._keys), np.dtype((np.void, _KEY_BYTES))).reshape(-1, 2)[:, column]
        _, groups = np.unique(keys, return_inverse=True)
        attempts, numbers = np.asarray(self._attempts), np.asarray(self._numbers)
        order = np.lexsort((numbers, attempts, groups))
        ends = np.flatnonzero(np.diff(groups[order], append=-1)) + 1
        start = 0
        for end in ends.tolist():
            places = order[start:end]
            yield list(zip(attempts[places].tolist(), numbers[places].tolist(), strict=True))
            start = end

    def _duplicates(self) -> list[tuple[int, int]]:
        found = []
        for members in self._sorted(1):
            first = members[0]
            for attempt, number in members[1:]:
                if attempt == first[0]:
                    found.append((number, first[1]))
                else:
                    first = attempt, number
        return sorted(found)

    def _gaps(self) -> Iterator[tuple[int, int]]:
        for members in self._sorted(0):
            expected = 0
            for attempt, number in members:
                if attempt > expected or attempt < 0:
                    yield number, expected
                    break
                expected = attempt + 1

    def _missing(self, episodes: int) -> str:
        if self._expected is None:
            return ""
        if self._expected != "split":
            wrong = episodes != self._expected
            return f"the log has {episodes} episodes, {self._expected} were expected" if wrong else ""
        if self._mixed:
            return "the log mixes splits or settings, so that no split is complete; expect a number of episodes instead"
        absent = [task for task in range(self._num_tasks) if task not in self._tasks]
        if self._num_tasks and not absent:
            return ""
        if not self._num_tasks:
            return "the number of tasks in the split is unknown, because no environment could be made"
        named = ", ".join(map(str, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        return f"of the {self._num_tasks} tasks of the split, {len(absent)} are not in the log: {named}"
