"""What verifying a log found: counted line by line, in little memory however long the log is."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from agentgym_flow.replay.divergence import Divergence, ReplayOutcome

MOST_PROBLEMS = 1000
"""So many problems of each kind are kept in full; the others are only counted."""

Expected = int | Literal["split"] | None
"""How many episodes a log should hold: a number, every task of the split, or not known."""

_KEY_BYTES = 16
_MOST_ATTEMPTS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """What verifying a log found.

    Attributes:
        episodes: lines in the log.
        matched: episodes that came out exactly as logged.
        unfinished: matched episodes that neither terminated nor were truncated (an error, or cut short).
        success: the share of successes as recomputed; a line that did not match counts as a failure.
        score: the mean native metric as recomputed; a line that did not match counts 0.
        claimed_success: the share of successes as the readable lines state it.
        claimed_score: the mean native metric as the readable lines state it.
        diverged: how many episodes did not match.
        unreadable: how many lines cannot be read.
        given_up: how many of these because of a limit on the log, or because the process that checked them ended.
        repeated: how many episodes are there twice.
        divergences: (line number, divergence) of each episode that did not match; the first `MOST_PROBLEMS`.
        malformed: (line number, message) of each line that cannot be read; the first `MOST_PROBLEMS`.
        duplicates: (line number, earlier line number) of each episode that is there twice: the same task, seed and
            attempt; the first `MOST_PROBLEMS`.
        gaps: (line number, missing attempt) of each task whose attempts do not count 0, 1, 2, ...: the line with the
            first attempt after the gap; the first `MOST_PROBLEMS`.
        missing: what is not there of the episodes that were expected, in words; empty if nothing.
        walls: what confined the processes that stepped the episodes; empty when it was this process.
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
    walls: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every line matched, none is there twice, no attempt is left out, and nothing expected is missing."""
        return self.matched == self.episodes > 0 and not (self.repeated or self.gaps or self.missing)

    def problems(self) -> list[str]:
        """Return one sentence per problem, in the order of the lines; of each kind the first `MOST_PROBLEMS`."""
        if not self.episodes:
            return ["the log holds no episode"]
        found = [(line, f"line {line}, {divergence}") for line, divergence in self.divergences]
        found += list(self.malformed)
        found += [(line, f"line {line}: the same episode as line {first}") for line, first in self.duplicates]
        found += [
            (line, f"line {line}: attempt {attempt} at the same task is not in the log") for line, attempt in self.gaps
        ]
        sentences = [sentence for _, sentence in sorted(found)]
        counts = [
            (self.diverged, self.divergences),
            (self.unreadable, self.malformed),
            (self.repeated, self.duplicates),
        ]
        more = sum(count - len(kept) for count, kept in counts)
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


class LogPosition(NamedTuple):
    """What a line says of its place in the log, as far as counting needs it.

    Attributes:
        settings: a digest of the environment, its settings, its data and the split, in hex.
        task: the task.
        seed: the seed.
        attempt: the attempt.
        num_tasks: the tasks of the split; 0 where no environment could be made.
    """

    settings: str
    task: int
    seed: int
    attempt: int
    num_tasks: int


class Tally:
    """Counts while a log is read. A line takes 64 bytes, whatever is in it.

    Args:
        expected: how many episodes the log should hold.
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

    def add_malformed(self, number: int, message: str, given_up: bool = False) -> None:
        """Count a line that cannot be read."""
        self._unreadable += 1
        self._given_up += given_up
        if len(self._malformed) < MOST_PROBLEMS:
            self._malformed.append((number, message))

    def add(
        self,
        number: int,
        claim: tuple[bool, float],
        place: LogPosition,
        divergence: Divergence | None,
        outcome: ReplayOutcome,
    ) -> None:
        """Count an episode."""
        self._lines += 1
        self._claimed += claim[0]
        self._claimed_scores.append(claim[1])
        self._note(number, place)
        if divergence is not None:
            self._diverged += 1
            if len(self._divergences) < MOST_PROBLEMS:
                self._divergences.append((number, divergence))
            return
        self._matched += 1
        self._successes += outcome.success
        self._unfinished += not (outcome.terminated or outcome.truncated)
        self._scores.append(outcome.score)

    def _note(self, number: int, place: LogPosition) -> None:
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

    def verdict(self, walls: tuple[str, ...] = ()) -> LogVerdict:
        """Return what was found."""
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
            walls=walls,
        )

    def _sorted(self, column: int) -> Iterator[list[tuple[int, int]]]:
        """Yield the (attempt, line number) of all lines with the same key, in order, key by key."""
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
            return (
                "" if episodes == self._expected else f"the log has {episodes} episodes, {self._expected} were expected"
            )
        if self._mixed:
            return "the log mixes splits or settings, so that no split is complete; expect a number of episodes instead"
        absent = [task for task in range(self._num_tasks) if task not in self._tasks]
        if self._num_tasks and not absent:
            return ""
        if not self._num_tasks:
            return "how many tasks the split has is not known, because no environment could be made"
        named = ", ".join(map(str, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        return f"of the {self._num_tasks} tasks of the split, {len(absent)} are not in the log: {named}"


def brief(value: Any) -> Any:
    """Return a value of a divergence for keeping: short ones unchanged, others cut."""
    return value if value is None or len(text := repr(value)) <= 200 else f"{text[:200]}..."
