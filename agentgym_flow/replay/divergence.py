"""Find the first difference between a log and its replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentgym_flow.core import canonical
from agentgym_flow.episodes import BOARD_SCHEMA, SCHEMA, LinkValues, LoggedEpisode, next_link

REMARKS = frozenset({"attempt", "completions", "meta"})
"""The fields of a line that replay cannot verify."""


FINAL_DIGEST = "final digest differs; which step does, a log of version 1 tells (verify --against)"
"""What differs if a log of version 2 differs in an observation or a state, in this step or before."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a log and its replay.

    Attributes:
        step: the number of the action, from 1; 0 is the start.
        what: the field that differs, or the problem that prevents the replay.
        logged: the value in the log.
        replayed: the value in the replay.
    """

    step: int
    what: str
    logged: Any = None
    replayed: Any = None

    def __str__(self) -> str:
        where = f"step {self.step}" if self.step else "start"
        if self.logged is None and self.replayed is None:
            return f"{where}: {self.what}"
        return f"{where}: {self.what}: the log has {self.logged!r:.100}, replay has {self.replayed!r:.100}"


class ReplayStart(NamedTuple):
    """The result of a reset: the fields of a log that describe the start, by name; h_0; and the recording entry."""

    fields: Mapping[str, Any]
    link: bytes
    recording: Any


class ReplayOutcome(NamedTuple):
    """The end of a replayed episode."""

    terminated: bool = False
    truncated: bool = False
    success: bool = False
    score: float = 0.0


def compare(
    logged: LoggedEpisode, start: ReplayStart, steps: Iterable[LinkValues]
) -> tuple[Divergence | None, ReplayOutcome]:
    """Return the first divergence, and the outcome after the steps that were compared.

    A difference in a named field is reported before one in a digest. Of the steps, only their recording is stored.
    """
    actions = len(logged.actions)
    for name, found in start.fields.items():
        if _differs(getattr(logged, name), found):
            what = "task_key (another version of the package, or other data)" if name == "task_key" else name
            return Divergence(0, what, getattr(logged, name), found), ReplayOutcome()
    link, recording, step, one = start.link, [start.recording], 0, None
    if logged.digests is not None and logged.digests[0] != link.hex()[:16]:
        what = "first observation, state key or seed (by digest)"
        return Divergence(0, what, logged.digests[0], link.hex()[:16]), ReplayOutcome()
    for step, one in enumerate(steps, 1):
        if logged.rewards[step - 1] != one[2]:
            return Divergence(step, "reward", logged.rewards[step - 1], one[2]), ReplayOutcome(*one[3:7])
        if step == actions and (apart := _differing_end(logged, step, ReplayOutcome(*one[3:7]))):
            return apart, ReplayOutcome(*one[3:7])
        link = next_link(link, *one)
        if logged.digests is not None and logged.digests[step] != link.hex()[:16]:
            what = "action, observation or state (by digest)"
            return Divergence(step, what, logged.digests[step], link.hex()[:16]), ReplayOutcome(*one[3:7])
        recording.append(one[8])
    outcome = ReplayOutcome(*one[3:7]) if one else ReplayOutcome()
    if actions > step:
        return Divergence(step + 1, "actions after the end", logged.actions[step], "the episode had ended"), outcome
    return _compare_end(logged, step, link, outcome, recording), outcome


def _compare_end(
    logged: LoggedEpisode, step: int, link: bytes, outcome: ReplayOutcome, recording: list[Any]
) -> Divergence | None:
    """Return a divergence in the fields of the whole episode."""
    recorded = recording if any(entry is not None for entry in recording) else None
    if logged.schema not in (SCHEMA, BOARD_SCHEMA):
        return Divergence(step, "schema", logged.schema, SCHEMA)
    if logged.digest != link.hex():
        return Divergence(step, "digest" if logged.digests is not None else FINAL_DIGEST, logged.digest, link.hex())
    if _differs(logged.recording, recorded):
        return Divergence(step, "recording", logged.recording, recorded)
    return _differing_end(logged, step, outcome)


def _differing_end(logged: LoggedEpisode, step: int, outcome: ReplayOutcome) -> Divergence | None:
    for name, found in outcome._asdict().items():
        if getattr(logged, name) != found:
            return Divergence(step, name, getattr(logged, name), found)
    return None


def _differs(said: Any, found: Any) -> bool:
    """Return whether two values have different canonical JSON, in which 1, 1.0 and true differ."""
    if said is None or (type(said) is type(found) and isinstance(said, str | int | float)):
        return bool(said != found)
    return canonical(said) != canonical(found)
