"""Check one line of a log, and put what was found into JSON, so that it can come from another process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from agentgym_flow.episode import Episode, Turn
from agentgym_flow.episode_log import LogLimits, read_line
from agentgym_flow.errors import BadLog, BeyondLimits
from agentgym_flow.replay.divergence import Divergence, ReplayOutcome
from agentgym_flow.replay.stepping import Environments, check, settings_of
from agentgym_flow.replay.tally import LogPosition, Tally, brief

Line = tuple[int, bytes]
"""The number of a line and the line."""

_JSON = json.JSONEncoder(separators=(",", ":"), default=repr)
_LONGEST_MESSAGE = 500
_OF_TURN = tuple(field.name for field in fields(Turn))
_OF_EPISODE = tuple(field.name for field in fields(Episode) if field.name != "turns")


@dataclass(frozen=True, slots=True)
class LinePlan:
    """What to do with every line.

    Attributes:
        name: the name of the file, for messages.
        data: where official data is, by name.
        limits: what a line may take.
        fetch: whether environments may download data.
        keep: keys of `info` to keep on the turns of the replayed episodes; None when these are not wanted.
    """

    name: str
    data: Mapping[str, str | Path]
    limits: LogLimits
    fetch: bool
    keep: Sequence[str] | None


_NOTHING = ReplayOutcome()


@dataclass(frozen=True, slots=True)
class LineResult:
    """What was found of a line.

    Attributes:
        number: the line's number, from 1.
        malformed: why it cannot be read; empty when it can. Then there is nothing else.
        claim: success and score as logged.
        place: its place in the log.
        divergence: the first one.
        outcome: what stepping came to.
        episode: the replayed episode, where it was wanted.
        given_up: whether it cannot be read because of a limit.
    """

    number: int
    malformed: str = ""
    claim: tuple[bool, float] = (False, 0.0)
    place: LogPosition | None = None
    divergence: Divergence | None = None
    outcome: ReplayOutcome = _NOTHING
    episode: Episode | None = None
    given_up: bool = False

    @classmethod
    def unread(cls, number: int, error: BadLog) -> Self:
        """Return the verdict on a line that cannot be read."""
        return cls(number, f"{error!s:.{_LONGEST_MESSAGE}}", given_up=isinstance(error, BeyondLimits))

    def count(self, tally: Tally) -> None:
        """Add the line to a tally."""
        if self.place is None:
            tally.add_malformed(self.number, self.malformed, self.given_up)
        else:
            tally.add(self.number, self.claim, self.place, self.divergence, self.outcome)

    def to_json(self) -> bytes:
        """Return JSON of which `from_json` makes an equal object."""
        place, apart, episode = self.place, self.divergence, self.episode
        row = [
            self.number,
            self.malformed,
            self.claim,
            place,
            apart and [apart.step, apart.what, brief(apart.logged), brief(apart.replayed)],
            self.outcome,
            episode and [_members(episode, _OF_EPISODE), [_members(turn, _OF_TURN) for turn in episode.turns]],
            self.given_up,
        ]
        return _JSON.encode(row).encode("ascii")

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Return the object that `to_json` was called on."""
        number, malformed, claim, place, apart, outcome, episode, given_up = json.loads(text)
        return cls(
            number,
            malformed,
            (claim[0], claim[1]),
            place and LogPosition(*place),
            apart and Divergence(*apart),
            ReplayOutcome(*outcome),
            episode and Episode(**episode[0], turns=[Turn(**turn) for turn in episode[1]]),
            given_up,
        )


def _members(of: Episode | Turn, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


class LineChecker:
    """Checks lines, one after the other; a context manager, which closes the environments."""

    def __init__(self, plan: LinePlan) -> None:
        self._plan = plan
        self._environments = Environments(plan.data, plan.limits, fetch=plan.fetch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._environments.close()

    def check(self, number: int, raw: bytes) -> LineResult:
        """Return what is found of a line. Raises nothing but `KeyboardInterrupt`."""
        where = f"{self._plan.name} line {number}"
        try:
            logged = read_line(raw, where)
        except MemoryError:
            logged = BeyondLimits(f"{where}: it takes more memory to read than there is (max_memory_mb)")
        if isinstance(logged, BadLog):
            return LineResult.unread(number, logged)
        try:
            settings = settings_of(logged)
        except ValueError as error:  # JSON can hold 1e999
            return LineResult(number, f"{where}: {error}")
        divergence, outcome, episode = check(logged, self._environments, self._plan.keep, settings)
        num_tasks = self._environments.num_tasks(settings, logged.max_steps)
        place = LogPosition(sha256(settings).hexdigest()[:32], logged.task, logged.seed, logged.attempt, num_tasks)
        return LineResult(number, "", (logged.success, logged.score), place, divergence, outcome, episode)


def given_up(number: int, plan: LinePlan, why: str) -> LineResult:
    """Return the verdict on a line that no process could check to its end.

    The line is not read: reading may be what it fails at. So it counts as one that cannot be read.
    """
    return LineResult(number, f"{plan.name} line {number}: {why}", given_up=True)
