"""A whole import: every episode judged, repeated and missing tasks, and the log of the episodes that replay."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agentgym_flow import data as registry
from agentgym_flow._util.values import finite
from agentgym_flow.core import SPLITS, TextEnv, check_positive, make_text_env
from agentgym_flow.data import DataSet
from agentgym_flow.episodes import LoggedEpisode, LogLimits, LogWriter
from agentgym_flow.errors import AgentGymFlowError, BadLog
from agentgym_flow.interchange.court import Court, EpisodeVerdict, Transcript, is_of_replay, recorded_success
from agentgym_flow.interchange.readers import read
from agentgym_flow.interchange.transcripts import MOST_TURNS, RecordedEpisode, parsed
from agentgym_flow.replay.stepping import Environments, check

_FEW = 0.05  # of the episodes: if fewer are longer than the usual budget, they go on after their end


@dataclass(slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        form: the format.
        env_id: the environment.
        split: the split.
        num_tasks: the number of tasks in the split.
        episodes: all episodes, in the order of the files.
        unreadable: the episodes that cannot be read, and why.
        repeated: task -> the episodes beyond the allowed attempts.
        missing: the tasks of the split without an episode.
    """

    form: str
    env_id: str
    split: str
    num_tasks: int
    episodes: list[EpisodeVerdict] = field(default_factory=list)
    unreadable: list[EpisodeVerdict] = field(default_factory=list)
    repeated: dict[int, list[str]] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)

    @property
    def identified(self) -> list[EpisodeVerdict]:
        """The episodes whose task is known."""
        return [one for one in self.episodes if one.task is not None]

    @property
    def unidentified(self) -> list[EpisodeVerdict]:
        """The episodes whose task is not known."""
        return [one for one in self.episodes if one.task is None]

    @property
    def imported(self) -> list[EpisodeVerdict]:
        """The episodes that replay as recorded: all observations agree."""
        return [one for one in self.identified if not any(map(is_of_replay, one.differences))]

    @property
    def differing(self) -> list[EpisodeVerdict]:
        """The identified episodes with any difference, also in claims such as the success."""
        return [one for one in self.identified if one.differences]

    @property
    def recorded_success(self) -> float:
        """The success rate as recorded, of the episodes that record it; NaN if none does."""
        return _mean(one.recorded for one in self.episodes if one.recorded is not None)

    @property
    def replayed_success(self) -> float:
        """The success rate as played again, of the identified episodes; NaN if there are none."""
        return _mean(one.success for one in self.identified)

    def scores(self, *, recorded: bool) -> list[float]:
        """Return the scores as recorded, of the episodes that record one, or those of the replays."""
        if recorded:
            return [one.recorded_score for one in self.episodes if one.recorded_score is not None]
        return [one.score for one in self.identified]

    @property
    def ok(self) -> bool:
        """Whether every episode was read, identified, played once per attempt, and replays as recorded."""
        return not (self.unreadable or self.unidentified or self.repeated or self.differing)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "ok": self.ok,
            "format": self.form,
            "env_id": self.env_id,
            "split": self.split,
            "num_tasks": self.num_tasks,
            "episodes": len(self.episodes) + len(self.unreadable),
            "imported": len(self.imported),
            "repeated": [{"task": task, "where": where} for task, where in sorted(self.repeated.items())],
            "missing": self.missing,
            "left_out_turns": sum(one.left_out for one in self.episodes),
            "recorded_success": finite(self.recorded_success),
            "replayed_success": finite(self.replayed_success),
            "recorded_score": finite(_mean(self.scores(recorded=True))),
            "replayed_score": finite(_mean(self.scores(recorded=False))),
            **{name: [asdict(one) for one in verdicts] for name, verdicts in self._lists().items()},
        }

    def _lists(self) -> dict[str, list[EpisodeVerdict]]:
        return {
            "unreadable": self.unreadable,
            "unidentified": self.unidentified,
            "differing": self.differing,
            "unfinished": [one for one in self.identified if one.unfinished],
            "ambiguous": [one for one in self.identified if len(one.candidates) > 1],
            "results": self.identified,
        }


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else math.nan


# ---------------------------------------------------------------- a whole log
def import_log(
    form: str,
    path: str | Path,
    env_id: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    split: str = "test",
    mapping: str | Path | None = None,
    attempts: int = 1,
    out: str | Path | None = None,
    on_episode: Callable[[int], None] | None = None,
) -> ImportReport:
    """Read the episodes of a file or folder, play them again, and report what differs.

    Args:
        form: the format, one of `FORMATS`.
        path: the file or folder.
        env_id: the environment.
        env_kwargs: its arguments, such as `data`; without `max_steps`, the budget is that of the longest episode, but
            at least the usual one.
        split: the split that was played.
        mapping: a JSON file with the games that indices mean: a list of paths or of entries with `task_type` and
            `task_id`, or an object of such lists.
        attempts: how many episodes of a task are expected.
        out: a new log of the episodes that replay; it is not written if none does.
        on_episode: called with the number of episodes judged so far.

    Raises:
        BadLog: the path or the mapping has nothing that can be read.
        UnknownOption, UnknownSplit, BadData, ...: the format, or the errors of the environment.
    """
    check_positive("attempts", attempts)
    kwargs = dict(env_kwargs or {})
    games = _read_mapping(Path(mapping)) if mapping is not None else []
    records = list(read(form, Path(path)))
    with closing(make_text_env(env_id, **kwargs, split=split)) as env:
        court = Court(env, games)
        readable = [one for one in records if isinstance(one, RecordedEpisode)]
        found = [court.transcript(one) for one in readable]
        longest = max((len(one.turns) for one in found), default=0)
        beyond = sum(len(one.turns) > env.max_steps for one in found)
        if "max_steps" not in kwargs and beyond > _FEW * len(found):  # all lines of a log have one budget
            env.max_steps = min(longest, MOST_TURNS)
        report = ImportReport(form, env_id, env.split, env.num_tasks)
        report.unreadable = [EpisodeVerdict("", why=str(one)) for one in records if isinstance(one, BadLog)]
        lines = _judge_all(court, readable, found, report, kwargs, on_episode)
        _assign(court, readable, found, report, lines, attempts)
        _count(report, readable, attempts)
    if out is not None and lines:
        with LogWriter(out) as writer:
            for recorded, verdict in zip(readable, report.episodes, strict=True):
                if (line := lines.get(id(verdict))) is not None:
                    line.attempt = verdict.attempt
                    line.meta = {
                        **(line.meta or {}),
                        "imported": {"format": form, "file": recorded.file, "index": recorded.index},
                    }
                    writer.write(line)
    return report


def _judge_all(
    court: Court,
    readable: Sequence[RecordedEpisode],
    found: Sequence[Transcript],
    report: ImportReport,
    kwargs: Mapping[str, Any],
    on_episode: Callable[[int], None] | None,
) -> dict[int, LoggedEpisode]:
    """Judge all episodes, and return the line of a log for each that replays, by the identity of its verdict."""
    lines: dict[int, LoggedEpisode] = {}
    others = _Elsewhere(court.env, kwargs)
    limits = LogLimits()
    data = dict.fromkeys(court.env.data, kwargs["data"]) if "data" in kwargs else {}
    data = {name: one.path if isinstance(one, DataSet) else registry.resolve(one).path for name, one in data.items()}
    with closing(Environments(data, limits)) as environments:
        for number, (recorded, transcript) in enumerate(zip(readable, found, strict=True), 1):
            try:
                if recorded.logged is not None:
                    verdict, line = _judge_line(court, recorded, transcript, environments)
                else:
                    verdict, line = _judge(court, recorded, transcript, others)
            except Exception as error:  # such as a damaged game: it concerns this episode
                reason = f"{type(error).__name__}: {error}"
                verdict, line = EpisodeVerdict(str(recorded), why=f"cannot be replayed: {reason:.300}"), None
            report.episodes.append(verdict)
            if line is not None and not any(map(is_of_replay, verdict.differences)):
                lines[id(verdict)] = line
            if on_episode is not None:
                on_episode(number)
    budget = max((one.spoken for one in found), default=0)
    for verdict, transcript in zip(report.episodes, found, strict=True):
        verdict.unfinished = verdict.unfinished and transcript.spoken < budget
    others.close()
    return lines


def _judge(
    court: Court, recorded: RecordedEpisode, transcript: Transcript, others: _Elsewhere
) -> tuple[EpisodeVerdict, LoggedEpisode | None]:
    tasks, why = court.candidates(recorded, transcript)
    if not transcript.turns:
        tasks, why = [], "it has no action"
    if not tasks:
        why += others.mention(recorded, transcript)
        claim = recorded_success(recorded)
        return EpisodeVerdict(str(recorded), why=why, recorded=claim, recorded_score=recorded.reward), None
    verdict, episode = court.judge_all(recorded, transcript, tasks)
    return verdict, LoggedEpisode.of(episode)


def _judge_line(
    court: Court, recorded: RecordedEpisode, transcript: Transcript, environments: Environments
) -> tuple[EpisodeVerdict, LoggedEpisode | None]:
    """Judge an episode with a line of our own log, as `verify` does; and its texts, if the format has them."""
    logged, env = recorded.logged, court.env
    assert logged is not None
    verdict = EpisodeVerdict(str(recorded), recorded=logged.success, recorded_score=logged.score)
    for what, own, other in (("environment", env.env_id, logged.env_id), ("split", env.split, logged.split)):
        if own != other:
            verdict.why = f"it was played in {what} {other!r:.80}, not {own!r}"
            return verdict, None
    apart, outcome, _ = check(logged, environments)
    if apart is not None and apart.what.startswith(("cannot be replayed", "task_key")):
        verdict.why = f"{apart}"
        return verdict, None
    if transcript.turns and [turn.action for turn in transcript.turns] == logged.actions:  # not a number, for example
        verdict, _ = court.judge(recorded, transcript, logged.task)
    verdict.task, verdict.steps = logged.task, len(logged.actions)
    verdict.success, verdict.score = outcome.success, outcome.score
    verdict.unfinished = not (outcome.terminated or outcome.truncated)
    if verdict.recorded is None:
        verdict.recorded, verdict.recorded_score = logged.success, logged.score
    if apart is not None:
        verdict.differences.insert(0, replace(apart, what=f"line of the log: {apart.what}"))
        return verdict, None
    return verdict, logged


def _assign(
    court: Court,
    readable: Sequence[RecordedEpisode],
    found: Sequence[Transcript],
    report: ImportReport,
    lines: dict[int, LoggedEpisode],
    attempts: int,
) -> None:
    """Give episodes that fit several tasks different ones as far as possible, so that none counts as repeated."""
    attempts = max([attempts, *(1 + one.attempt for one in readable if one.attempt is not None)])
    holders: dict[int, list[int]] = defaultdict(list)

    def place(number: int, tried: set[int]) -> bool:
        for task in report.episodes[number].candidates:
            if task in tried:
                continue
            tried.add(task)
            if len(holders[task]) < attempts:
                holders[task].append(number)
                return True
            for other in holders[task]:
                if place(other, tried):
                    holders[task][holders[task].index(other)] = number
                    return True
        return False

    numbers = [number for number, one in enumerate(report.episodes) if one.candidates]
    for number in sorted(numbers, key=lambda number: len(report.episodes[number].candidates)):
        place(number, set())
    for task, number in ((task, number) for task, held in holders.items() for number in held):
        verdict = report.episodes[number]
        if verdict.task != task:
            moved, episode = court.judge(readable[number], found[number], task)
            moved.candidates, moved.unfinished = verdict.candidates, verdict.unfinished
            report.episodes[number] = moved
            if lines.pop(id(verdict), None) is not None:
                lines[id(moved)] = LoggedEpisode.of(episode)


def _count(report: ImportReport, readable: Sequence[RecordedEpisode], attempts: int) -> None:
    """Number the attempts, and find repeated and missing tasks."""
    by_task: dict[int, list[tuple[EpisodeVerdict, int | None]]] = defaultdict(list)
    for verdict, recorded in zip(report.episodes, readable, strict=True):
        if verdict.task is not None:
            by_task[verdict.task].append((verdict, recorded.attempt))
    for task, episodes in by_task.items():
        known = {attempt for _, attempt in episodes if attempt is not None}
        for number, (verdict, attempt) in enumerate(episodes):
            verdict.attempt = number if attempt is None or len(known) < len(episodes) else attempt
        if len(episodes) > max(attempts, len(known)):
            report.repeated[task] = [verdict.where for verdict, _ in episodes]
    report.missing = [task for task in range(report.num_tasks) if task not in by_task]


class _Elsewhere:
    """Looks for unidentified episodes in the other splits of the same data, which are read on first use."""

    def __init__(self, env: TextEnv, kwargs: Mapping[str, Any]) -> None:
        self._env = env
        self._kwargs = kwargs
        self._courts: list[Court] | None = None

    def mention(self, recorded: RecordedEpisode, transcript: Transcript) -> str:
        """Return in which split an episode is found, as the end of a message; `""` if in none."""
        if self._courts is None:
            self._courts = list(self._made())
        for court in self._courts:
            tasks, _ = court.candidates(recorded, transcript)
            if tasks:
                return f"; it is task {tasks[0]} of split {court.env.split!r}"
        return ""

    def _made(self) -> Iterator[Court]:
        for split in SPLITS:
            if split != self._env.split:
                try:
                    yield Court(make_text_env(self._env.env_id, **self._kwargs, split=split))
                except AgentGymFlowError:  # the data has no such split
                    continue

    def close(self) -> None:
        for court in self._courts or ():
            court.env.close()


def _read_mapping(path: Path) -> list[str | int]:
    """Return the tasks that indices mean, as AgentBench (lists by type) and AgentGym (entries) write them."""
    try:
        raw = path.read_bytes() if path.stat().st_size < 1 << 26 else b""
    except OSError as error:
        raise BadLog(f"{path}: cannot be read ({error.strerror})") from None
    value = parsed(raw, str(path))
    if isinstance(value, dict):
        value = [one for part in value.values() for one in (part if isinstance(part, list) else [None])]
    entries = (
        [f"{one.get('task_type')}/{one.get('task_id')}" if isinstance(one, dict) else one for one in value or ()]
        if isinstance(value, list)
        else [None]
    )
    if not entries or not all(isinstance(one, str | int) for one in entries):
        raise BadLog(
            f"{path}: must be a list of games, or an object of such lists"
            + (f" ({value})" if isinstance(value, BadLog) else "")
        )
    return [str(one) if isinstance(one, str) else int(one) for one in entries if one is not None]
