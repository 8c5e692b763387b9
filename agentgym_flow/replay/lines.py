"""Check the lines of a log one after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentgym_flow.episodes import Episode, LogLimits, read_line
from agentgym_flow.errors import BadLog, BeyondLimits
from agentgym_flow.replay.stepping import Divergence, Environments, ReplayOutcome, check, settings_of

Line = tuple[int, bytes]
"""The number of a line and the line."""

_JSON = json.JSONEncoder(separators=(",", ":"), default=repr)
_LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class LinePlan:
    """The settings for checking the lines of a log.

    Attributes:
        name: the name of the file, for messages.
        data: paths of official data, by name.
        limits: the limits for a line.
        fetch: whether environments may download data.
        keep: keys of `info` to store with the turns of the replayed episodes; None if these are not needed.
        require_sandbox: whether nothing may be checked in a sandbox that is not `strong`.
    """

    name: str
    data: Mapping[str, str | Path]
    limits: LogLimits
    fetch: bool
    keep: Sequence[str] | None
    require_sandbox: bool = False


_NOTHING = ReplayOutcome()


class LinePosition(NamedTuple):
    """The position of an episode in the log, for counting.

    Attributes:
        settings: a digest of the environment, its settings, its data and the split, in hex.
        task: the task.
        seed: the seed.
        attempt: the attempt.
        num_tasks: the number of tasks in the split; 0 if no environment could be made.
    """

    settings: str
    task: int
    seed: int
    attempt: int
    num_tasks: int


@dataclass(frozen=True, slots=True)
class LineResult:
    """The result of checking a line.

    Attributes:
        number: the number of the line, from 1.
        malformed: why it cannot be read, in which case all other fields are unset; empty if it can be read.
        claim: success and score in the log.
        place: its position in the log.
        divergence: the first divergence, if any.
        outcome: the end of the replay.
        episode: the replayed episode, if it was requested.
        given_up: whether it cannot be read because of a limit.
    """

    number: int
    malformed: str = ""
    claim: tuple[bool, float] = (False, 0.0)
    place: LinePosition | None = None
    divergence: Divergence | None = None
    outcome: ReplayOutcome = _NOTHING
    episode: Episode | None = None
    given_up: bool = False

    @classmethod
    def unread(cls, number: int, error: BadLog) -> Self:
        """Return the result for a line that cannot be read."""
        return cls(number, f"{error!s:.{_LONGEST_MESSAGE}}", given_up=isinstance(error, BeyondLimits))

    def to_json(self) -> bytes:
        """Return JSON that `from_json` converts back to an equal object."""
        place, apart, episode = self.place, self.divergence, self.episode
        row = [
            self.number,
            self.malformed,
            self.claim,
            place,
            apart and [apart.step, apart.what, _brief(apart.logged), _brief(apart.replayed)],
            self.outcome,
            episode and episode.as_dict(),
            self.given_up,
        ]
        return _JSON.encode(row).encode("ascii")

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Return the result that `to_json` has converted."""
        number, malformed, claim, place, apart, outcome, episode, given_up = json.loads(text)
        return cls(
            number,
            malformed,
            (claim[0], claim[1]),
            place and LinePosition(*place),
            apart and Divergence(*apart),
            ReplayOutcome(*outcome),
            episode and Episode.from_dict(episode),
            given_up,
        )


def _brief(value: Any) -> Any:
    """Return a value of a divergence, cut to a limited length."""
    return value if value is None or len(text := repr(value)) <= 200 else f"{text[:200]}..."


class LineChecker:
    """Checks lines one after the other. As a context manager, it closes its environments."""

    def __init__(self, plan: LinePlan) -> None:
        self._plan = plan
        self._environments = Environments(plan.data, plan.limits, fetch=plan.fetch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._environments.close()

    def check(self, number: int, raw: bytes) -> LineResult:
        """Return the result for a line. Raises only `KeyboardInterrupt`."""
        where = f"{self._plan.name} line {number}"
        try:
            logged = read_line(raw, where, self._plan.limits)
        except MemoryError:
            logged = BeyondLimits(f"{where}: reading it needs more memory than allowed (max_memory_mb)")
        if isinstance(logged, BadLog):
            return LineResult.unread(number, logged)
        try:
            settings = settings_of(logged)
        except ValueError as error:  # numbers such as 1e999 are infinite
            return LineResult(number, f"{where}: {error}")
        divergence, outcome, episode = check(logged, self._environments, self._plan.keep, settings)
        num_tasks = self._environments.num_tasks(settings, logged.max_steps)
        place = LinePosition(sha256(settings).hexdigest()[:32], logged.task, logged.seed, logged.attempt, num_tasks)
        return LineResult(number, "", (logged.success, logged.score), place, divergence, outcome, episode)
