"""Read and write episode logs: one episode per line, UTF-8 JSONL, compressed if the name ends in `.gz`.

A line contains what is needed to replay the episode and to check that the replay is identical. It contains no
observations (replay restores them), no dates, no host names, and no paths but that of the policy (`public`).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Annotated, Any, Self, cast

from msgspec import Meta

from agentgym_flow._util.files import LineWriter
from agentgym_flow._util.values import MAX_DEPTH, Finite, decode, is_deep, typed
from agentgym_flow.core import check_positive
from agentgym_flow.episodes.episode import BOARD_SCHEMA, SCHEMA, Episode, PolicyOutput
from agentgym_flow.errors import BadLog, BadSetting, BeyondLimits

POLICIES = "policies"
"""The key of `meta` with the name of the policy of every turn, if several policies share the episode."""

CUT_TURNS = "cut_turns"
"""The key of `meta` with the numbers of the turns, from 0, whose completions were cut at the token limit."""

LOGPROBS = "logprobs"
"""The key of `meta` with the log-probabilities of the tokens of each turn's completion, in nats."""

REASONING = "reasoning"
"""The key of `meta` with the reasoning by turn that the server separated from the answer (`notes_by_turn`)."""

UNRANKED = "unranked"
"""The key of `meta` with the reason why leaderboards refuse the episode."""

MAX_VALUES = 1 << 20
"""The approximate limit on values per line. A value takes at least 2 bytes as JSON, and up to 100 bytes in memory."""

# The group is possessive, because a line may have millions of escapes. Before 3.11.5, Python matches such a group
# correctly only if no branch can fail after its first character, hence the `?`.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[,\[{]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits on reading and verifying a log. Logs are untrusted, and a small compressed file can become huge.

    The last four limits apply only to verification. Those on values and on `meta` are high, except for leaderboards:
    reading a value takes up to a microsecond, and a few kilobytes, compressed, may hold a hundred million.

    Attributes:
        max_lines: lines; the rest of the file is not read.
        max_bytes: bytes of all lines, uncompressed; the rest of the file is not read.
        max_line_bytes: bytes of a line; a longer line is skipped. Reading a line can need ten times as much memory.
        max_values: commas and opening brackets of all lines; the rest of the file is not read.
        max_meta_depth: lists and objects inside each other in the `meta` of a line; `meta` itself is the first.
        max_meta_values: values in it.
        max_meta_characters: characters of the texts and names in it.
        max_actions: actions per episode.
        max_action_length: characters per action. An action that is too long for its environment is only hashed.
        max_cpu_seconds: CPU time for a line, including the creation of the environment.
        max_memory_mb: megabytes that a process may allocate after its start.

    Raises `BadSetting` if a limit is not positive.
    """

    max_lines: int = 100_000
    max_bytes: int = 1 << 30
    max_line_bytes: int = 1 << 24
    max_values: int = 1 << 62
    max_meta_depth: int = MAX_DEPTH
    max_meta_values: int = 1 << 62
    max_meta_characters: int = 1 << 62
    max_actions: int = 10_000
    max_action_length: int = 1 << 24
    max_cpu_seconds: float = 20.0
    max_memory_mb: int = 1024

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name != "max_cpu_seconds":
                check_positive(limit.name, value)
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
                raise BadSetting(f"{limit.name} must be a positive number, got {value!r:.60}")

    def meta_excess(self, meta: Mapping[str, Any]) -> str:
        """Return how the `meta` of a line exceeds the limits; empty if it does not."""
        depth = values = characters = 0
        layer: list[Any] = [meta]
        while layer:
            parts = [*chain.from_iterable(part.values() if type(part) is dict else part for part in layer)]
            names = [name for part in layer if type(part) is dict for name in part]
            characters += sum(map(len, names)) + sum([len(part) for part in parts if type(part) is str])
            depth, values = depth + 1, values + len(parts)
            for what, found in (("depth", depth), ("values", values), ("characters", characters)):
                if found > (most := getattr(self, f"max_meta_{what}")):
                    return f"meta has {what} {found:,}, more than max_meta_{what}={most}"
            layer = [part for part in parts if type(part) is dict or type(part) is list]
        return ""


NO_LIMITS = LogLimits(*(1 << 62,) * 9)
"""Limits that no log exceeds, for logs that this machine wrote."""


@dataclass(slots=True)
class LoggedEpisode:
    """One line of a log. The fields are in the order of the file.

    Attributes:
        schema: `"agentgym_flow.episode/1"`, or `"agentgym_flow.episode/2"` in the logs of leaderboards.
        env_id: the id of the text environment.
        kwargs: its settings.
        data: official data used, name -> SHA-256.
        split: the split.
        task: the index of the task.
        task_key: the identity of the decision problem.
        seed: the seed of the reset.
        attempt: the number of the attempt.
        max_steps: the step budget.
        actions: the actions, one per step.
        rewards: the native rewards, one per step.
        terminated: whether the rules ended the episode.
        truncated: whether the step budget ended the episode.
        success: whether the task was achieved.
        score: the native metric, in [0, 1].
        digests: the first 16 hex digits of h_0 ... h_T, one more than actions; None in version 2.
        digest: all 64 hex digits of h_T.
        recording: the recorded external results, starting with the reset; absent if there are none.
        completions: the raw texts of the policy, one per step; absent if they are equal to the actions.
        meta: unverified information about the run; absent if there is none.
    """

    schema: str
    env_id: str
    kwargs: dict[str, Any]
    data: dict[str, str]
    split: str
    task: int
    task_key: str
    seed: int
    attempt: int
    max_steps: int
    actions: list[str]
    rewards: list[Finite]
    terminated: bool
    truncated: bool
    success: bool
    score: Annotated[float, Meta(ge=0, le=1)]
    digests: list[str] | None
    digest: str
    recording: list[Any] | None = None
    completions: list[str] | None = None
    meta: dict[str, Any] | None = None

    @classmethod
    def of(cls, episode: Episode) -> Self:
        """Return the log line of a recorded episode."""
        chain = episode.digests()
        recording = [episode.recording, *(turn.recording for turn in episode.turns)]
        outputs = [turn.output for turn in episode.turns]
        spoken = any(output.completion is not None for output in outputs)
        meta = dict(episode.meta)
        if any(output.policy is not None for output in outputs):
            meta[POLICIES] = [output.policy for output in outputs]
        if any(output.cut for output in outputs):
            meta[CUT_TURNS] = [number for number, output in enumerate(outputs) if output.cut]
        return cls(
            schema=SCHEMA,
            env_id=episode.env_id,
            kwargs=episode.kwargs,
            data=episode.data,
            split=episode.split,
            task=episode.task,
            task_key=episode.task_key,
            seed=episode.seed,
            attempt=episode.attempt,
            max_steps=episode.max_steps,
            actions=[output.action for output in outputs],
            rewards=[float(turn.reward) for turn in episode.turns],
            terminated=episode.terminated,
            truncated=episode.truncated,
            success=episode.success,
            score=float(episode.score),
            digests=[link[:16] for link in chain],
            digest=chain[-1],
            recording=recording if any(entry is not None for entry in recording) else None,
            completions=[output.text for output in outputs] if spoken else None,
            meta=meta or None,
        )

    def for_board(self) -> Self:
        """Return the same episode in version 2 of the format, which is a quarter as large, as `public`."""
        return replace(self.public(), schema=BOARD_SCHEMA, digests=None)

    def public(self) -> Self:
        """Return the same episode without the folders of this machine that `policy` and `template` in `meta` name."""
        meta = dict(self.meta or {})
        for key in meta.keys() & {"policy", "template"}:  # such as hf:FOLDER
            kind, _, folder = str(meta[key]).partition(":")
            if Path(folder).is_absolute() and not folder.startswith("//"):  # of an address
                meta[key] = f"{kind}:{Path(folder).name}"
        return replace(self, meta=self.meta and meta)

    def outputs(self) -> list[PolicyOutput]:
        """Return what the policy did in each turn. Replay can verify only the actions."""
        outputs = [PolicyOutput(action) for action in self.actions]
        policies, cut = ((self.meta or {}).get(key) for key in (POLICIES, CUT_TURNS))
        for output, completion in zip(outputs, self.completions or (), strict=False):
            output.completion = None if completion == output.action else completion
        if isinstance(policies, list):  # `meta` is not checked when it is read
            for output, policy in zip(outputs, policies, strict=False):
                output.policy = policy if isinstance(policy, str) else None
        for number in cut if isinstance(cut, list) else ():
            if type(number) is int and 0 <= number < len(outputs):
                outputs[number].cut = True
        return outputs

    def add_remarks(self, episode: Episode) -> None:
        """Copy the policy's outputs and `meta` from the log to a replay of the same episode."""
        for turn, output in zip(episode.turns, self.outputs(), strict=False):
            turn.output = output
        remarks = self.meta or {}
        episode.meta.update({key: value for key, value in remarks.items() if key not in (POLICIES, CUT_TURNS)})

    def line(self) -> str:
        """Return the line of JSON without the newline. It is ASCII, because lone surrogates have no UTF-8 form."""
        row = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        return json.dumps(row, allow_nan=False, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str, where: str = "line") -> Self:
        """Return the episode in one line of JSON. Raises `BadLog` with a message that starts with `where`."""
        try:
            row = decode(line)
        except json.JSONDecodeError as error:
            raise BadLog(f"{where}: not JSON ({error}); the log was truncated or edited") from None
        except ValueError as error:
            raise BadLog(f"{where}: {error}") from None
        if not isinstance(row, dict):
            raise BadLog(f"{where}: an episode is a JSON object, found {type(row).__name__}")
        if (schema := row.get("schema")) not in (SCHEMA, BOARD_SCHEMA):
            raise BadLog(f"{where}: schema is {schema!r}, this version reads {SCHEMA!r} and {BOARD_SCHEMA!r}")
        if ("digests" in row) != (schema == SCHEMA):
            raise BadLog(f"{where}: digests are in every line of {SCHEMA!r}, and in no line of {BOARD_SCHEMA!r}")
        row.setdefault("digests", None)
        if "tape" in row and "recording" not in row:  # its name in older logs
            row["recording"] = row.pop("tape")
        if unknown := sorted(row.keys() - {field.name for field in fields(cls)}):
            raise BadLog(f"{where}: unknown field {unknown[0]!r}")
        logged = typed(row, cls, BadLog, where)
        logged._check_shape(where)
        return logged

    def _check_shape(self, where: str) -> None:
        steps = len(self.actions)
        if self.digests is None and self.schema == SCHEMA:
            raise BadLog(f"{where}: field 'digests' must be list, found null")
        for name, expected in (
            ("rewards", steps), ("digests", steps + 1), ("recording", steps + 1), ("completions", steps),
        ):  # fmt: skip
            items = getattr(self, name)
            if items is not None and len(items) != expected:
                raise BadLog(f"{where}: {name} must be a list of {expected} for {steps} actions, found {len(items)}")
        if is_deep([self.kwargs, self.recording, self.meta]):
            raise BadLog(f"{where}: a value is nested more than {MAX_DEPTH} deep")


def _is_bloated(raw: bytes) -> bool:
    """Return whether a line has too many values. Commas and brackets inside strings do not count."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= MAX_VALUES:
        return False
    return next(islice(_TOKEN.finditer(raw), MAX_VALUES, None), None) is not None


class LogWriter(LineWriter):
    """Writes a log, one line per episode. See `LineWriter` for the file after an error or Ctrl-C."""

    def write(self, episode: Episode | LoggedEpisode) -> None:
        """Append one episode."""
        logged = LoggedEpisode.of(episode) if isinstance(episode, Episode) else episode
        self.write_lines([logged.line()])


def write_log(path: str | os.PathLike[str], episodes: Iterable[Episode | LoggedEpisode]) -> None:
    """Write all `episodes` to `path`. If this fails, no file remains."""
    with LogWriter(path) as writer:
        for episode in episodes:
            writer.write(episode)


def read_log(path: str | os.PathLike[str], limits: LogLimits | None = None) -> Iterator[LoggedEpisode]:
    """Yield the episodes of a log, line by line.

    Raises `BadLog` if the file does not exist or is truncated, or if a line cannot be read; the message names both.
    """
    for _, found in scan_log(path, limits):
        if isinstance(found, BadLog):
            raise found
        yield found


def scan_log(
    path: str | os.PathLike[str], limits: LogLimits | None = None
) -> Iterator[tuple[int, LoggedEpisode | BadLog]]:
    """Yield (line number, episode) for every line, with the error instead of the episode if a line cannot be read.

    Stops after the first error that concerns the file: it does not exist, is damaged, or exceeds `limits`.
    """
    name = Path(path).name
    limits = limits or LogLimits()
    for number, raw in raw_lines(path, limits):
        yield number, raw if isinstance(raw, BadLog) else read_line(raw, f"{name} line {number}", limits)


def check_against(log: str | os.PathLike[str], other: str | os.PathLike[str], limits: LogLimits | None = None) -> None:
    """Raise `BadLog` unless two logs have the same lines, apart from their versions."""
    for one, two in zip_longest(read_log(log, limits), read_log(other, limits)):
        if one is None or two is None or one.for_board().line() != two.for_board().line():
            both = one is not None and two is not None
            why = f"task {one.task}, attempt {one.attempt}, differs" if both else "different numbers of episodes"
            raise BadLog(f"{log} was not made from {other} ({why}): name the log of the same evaluation")


def limits_beyond_default(path: str | os.PathLike[str]) -> dict[str, int]:
    """Return the size limits that must be raised to verify a log: name -> value. Empty if there is no log."""
    default = LogLimits()
    lines = total = longest = actions = spoken = 0
    names = ("max_lines", "max_bytes", "max_line_bytes", "max_actions", "max_action_length")
    for number, raw in raw_lines(path, NO_LIMITS):
        if isinstance(raw, BadLog):
            break
        lines, total, longest = number, total + len(raw), max(longest, len(raw))
        if len(raw) > default.max_actions and not isinstance(logged := read_line(raw, ""), BadLog):
            actions = max(actions, len(logged.actions))
            spoken = max(spoken, *map(len, logged.actions), 0)
    needed = zip(names, (lines, total, longest, actions, spoken), strict=True)
    return {name: value for name, value in needed if value > getattr(default, name)}


def raw_lines(path: str | os.PathLike[str], limits: LogLimits) -> Iterator[tuple[int, bytes | BadLog]]:
    """Yield (line number, line) without parsing the lines, with errors like `scan_log`."""
    path = Path(path)
    number, total, values = 0, 0, 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = cast("IO[bytes]", file)
            while raw := lines.readline(limits.max_line_bytes + 1):
                number += 1
                total += len(raw)
                values += sum(raw.count(mark) for mark in b",[{")
                for name, found in (("max_lines", number), ("max_values", values)):
                    if found > (most := getattr(limits, name)):
                        excess = f"more {name.removeprefix('max_')} than {name}={most}"
                        yield number, BeyondLimits(f"{path.name}: {excess}; not read further")
                        return
                if len(raw) > limits.max_line_bytes:
                    where = f"{path.name} line {number}"
                    yield number, BeyondLimits(f"{where}: more bytes than max_line_bytes={limits.max_line_bytes}")
                    while raw and not raw.endswith(b"\n") and total <= limits.max_bytes:
                        total += len(raw := lines.readline(1 << 16))
                elif total <= limits.max_bytes:
                    yield number, raw
                if total > limits.max_bytes:
                    excess = f"more bytes than max_bytes={limits.max_bytes}"
                    yield number, BeyondLimits(f"{path.name}: {excess}; not read further")
                    return
    except FileNotFoundError:
        yield number, BadLog(f"there is no log at {path}")
    except (EOFError, zlib.error, OSError) as error:
        yield number, BadLog(f"{path.name} after line {number}: the file is damaged or truncated ({error})")


def read_line(raw: bytes, where: str, limits: LogLimits | None = None) -> LoggedEpisode | BadLog:
    """Return the episode in a line that ends with a newline, or an error with a message that starts with `where`.

    Of the limits, those on `meta` are applied; None for none.
    """
    if not raw.endswith(b"\n"):
        return BadLog(f"{where}: the last line has no end; the log was truncated")
    if _is_bloated(raw):
        return BeyondLimits(f"{where}: it has more than {MAX_VALUES} values")
    try:
        logged = LoggedEpisode.parse(raw.decode("utf-8"), where)
    except UnicodeDecodeError as error:
        return BadLog(f"{where}: byte {error.start} is not UTF-8; the log was edited")
    except BadLog as error:
        return error
    excess = limits.meta_excess(logged.meta) if limits and logged.meta else ""
    return BeyondLimits(f"{where}: {excess}") if excess else logged


def notes_by_turn(meta: Mapping[str, Any], key: str) -> dict[int, Mapping[str, Any]]:
    """Return what the remarks of an episode, which may be anything in a log, note by turn, from 0."""
    rows = meta.get(key)
    notes = [one for one in rows if isinstance(one, Mapping)] if isinstance(rows, list) else []
    return {one["turn"]: one for one in notes if type(one.get("turn")) is int}
