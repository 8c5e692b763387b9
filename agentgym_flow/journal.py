"""What a stopped evaluation or collection goes on from: its settings, its finished episodes, the answers it has got.

A journal lies beside the log that it is for, as `<log>.unfinished`: JSON lines, each on disk as soon as it is known, so
that neither Ctrl-C nor a kill nor a failing server loses what was played and paid for. It is removed when the log is
complete.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from agentgym_flow._util.files import naming
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import TextEnv
from agentgym_flow.episode import Episode, EpisodeRecorder
from agentgym_flow.episode_log import LoggedEpisode
from agentgym_flow.errors import BadLog, BadResume
from agentgym_flow.policies.base import Around, AsyncPolicy, Policy, PolicyInput, PolicyOutput, checked
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS, LOGPROBS
from agentgym_flow.rollout import ERROR
from agentgym_flow.seeding import stable_hash

SUFFIX = ".unfinished"
"""What the name of a journal ends in."""

_EPISODE = '{"episode":'

Place = tuple[int, int]
"""A task and an attempt: which episode of an evaluation."""


def path_of(log: Path) -> Path:
    """Return where the journal for a log is."""
    return log.with_name(log.name + SUFFIX)


class Journal:
    """The journal of one run; `AnswerStore` for what its environments ask of servers. Close it in the end.

    Args:
        log: the file that the run writes.
        settings: what decides how the episodes come out, JSON-able.
        resume: go on from the journal that is there, if there is one.
        replace: begin anew, whatever is there.

    Raises:
        FileExistsError: there is a journal, and it is neither to be resumed nor replaced.
        BadResume: the run that was stopped had other settings, or another process is still at it.
        BadLog: the journal is damaged.
        OSError: it cannot be written.
    """

    def __init__(self, log: Path, settings: Mapping[str, Any], *, resume: bool = False, replace: bool = False) -> None:
        self.path = path_of(log)
        self._settings = json.loads(json.dumps(settings))
        self._episodes: dict[Place, LoggedEpisode] = {}
        self._moves: dict[tuple[int, int, int, str], Sequence[Any]] = {}
        self._answers: dict[str, list[Any]] = {}
        self._lock = Lock()
        self._written = False
        if self.path.exists() and not (resume or replace):
            raise FileExistsError(
                errno.EEXIST, "a run was stopped there: resume it (--resume) or replace it (--force)", self.path
            )
        with naming(self.path):
            self._file: IO[bytes] = self.path.open("a+b")
        try:
            _claim(self._file, self.path)
            self._file.seek(0)
            if replace:  # only now: until it is claimed it may be another process's
                self._file.truncate()
            self._read()
        except BaseException:
            self._file.close()
            raise

    # ---------------------------------------------------------------- the file
    def _read(self) -> None:
        end = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break  # the process ended in the middle of it
            try:
                self._take_line(number, line.decode("ascii").rstrip("\n"))
            except (ValueError, LookupError, TypeError) as error:
                if isinstance(error, (BadLog, BadResume)):
                    raise
                raise BadLog(f"{self.path.name} line {number}: it is damaged; begin anew with --force") from None
            end += len(line)
        self._file.seek(end)
        self._file.truncate()
        if end == 0:
            self._append(json.dumps({"settings": self._settings}))
            self._written = False

    def _take_line(self, number: int, line: str) -> None:
        if line.startswith(_EPISODE):
            logged = LoggedEpisode.parse(line[len(_EPISODE) : -1], f"{self.path.name} line {number}")
            if ERROR not in (logged.meta or {}):  # it is played again: what made the environment raise may be over
                self._episodes[logged.task, logged.attempt] = logged
        else:
            row = json.loads(line)
            if number == 1:
                self._check_settings(row["settings"])
                return
            if "move" in row:
                task, attempt, turn, seen = row["at"]
                self._moves[task, attempt, turn, seen] = row["move"]
            else:
                self._answers.setdefault(row["asked"], []).append(row["answer"])
        self._written = True

    def _check_settings(self, old: Mapping[str, Any]) -> None:
        for name in sorted({*old, *self._settings}):
            if old.get(name) != self._settings.get(name):
                raise BadResume(
                    f"the run that was stopped had {name}={old.get(name)!r:.200}, this one has "
                    f"{self._settings.get(name)!r:.200}: resume it with the same settings, or begin anew (--force)"
                )

    def _append(self, line: str) -> None:
        with self._lock, naming(self.path):
            self._file.write(line.encode("ascii") + b"\n")
            self._file.flush()
            self._written = True

    def close(self, *, done: bool = False) -> None:
        """Close the file. It is removed if the evaluation is `done`, and if there is nothing in it to go on from."""
        self._file.close()
        if done or not self._written:
            self.path.unlink(missing_ok=True)

    # ---------------------------------------------------------------- finished episodes
    def add_episode(self, episode: Episode) -> None:
        """Keep a finished episode."""
        self._append(f"{_EPISODE}{LoggedEpisode.of(episode).line()}}}")

    def episodes(self, env: TextEnv) -> dict[Place, Episode]:
        """Return the finished episodes, stepped again on `env` without asking anything outside.

        Those in which the environment raised are not among them.

        Raises `BadLog` if one does not come out as it was: the package or the data has changed since.
        """
        return {place: _step_again(env, logged) for place, logged in self._episodes.items()}

    # ---------------------------------------------------------------- answers of the policy
    def recording(self, policy: Policy | AsyncPolicy) -> Policy | AsyncPolicy:
        """Return the policy, with the answers it has given already, and each further one kept as it comes.

        Answers are kept of an `AsyncPolicy` that ignores `rng`; others play an unfinished episode again.
        """
        if isinstance(policy, AsyncPolicy) and getattr(policy, "ignores_rng", False):
            return _Recorded(policy, self)
        return policy

    def move(self, view: PolicyInput) -> PolicyOutput | None:
        """Return what the policy has answered to this view, if it has; failed requests are reported as before."""
        found = self._moves.get(_place_of(view))
        if found is None:
            return None
        action, completion, failures, policy, *logprobs = found
        if failures:
            view.episode.meta.setdefault(FAILED_REQUESTS, []).extend(failures)
        if logprobs:
            view.episode.meta.setdefault(LOGPROBS, []).extend(logprobs)
        return PolicyOutput(action, completion=completion, policy=policy)

    def add_move(self, row: Mapping[str, Any]) -> None:
        """Keep an answer, as `_row_of` gives it."""
        self._append(json.dumps(row, separators=(",", ":")))

    # ---------------------------------------------------------------- answers of servers behind an environment
    def take(self, asked: str) -> Any | None:
        """Return an answer to a request that was kept, each once, in the order in which they came; None if none."""
        with self._lock:
            kept = self._answers.get(asked)
            return kept.pop(0) if kept else None

    def add(self, asked: str, answer: Any) -> None:
        """Keep the JSON-able answer to a request."""
        self._append(json.dumps({"asked": asked, "answer": answer}, separators=(",", ":")))


def _claim(file: IO[bytes], path: Path) -> None:
    """Let no other process write the journal while this one does; where the system has no such locks, nothing."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadResume(f"another process is still at this run: it has {path} open") from None


def _place_of(view: PolicyInput) -> tuple[int, int, int, str]:
    episode = view.episode
    return episode.task, episode.attempt, len(episode.turns), stable_hash([view.observation])[:16]


def _row_of(view: PolicyInput, move: PolicyOutput) -> dict[str, Any]:
    """Return what a journal keeps of the answer to a view."""
    logprobs = view.episode.meta.get(LOGPROBS, [])[len(view.episode.turns) :]
    return {"at": _place_of(view), "move": [move.action, move.completion, _failures(view), move.policy, *logprobs]}


def _failures(view: PolicyInput) -> list[dict[str, Any]]:
    """Return the failed requests of the present turn."""
    turn = len(view.episode.turns)
    return [one for one in view.episode.meta.get(FAILED_REQUESTS, ()) if one["turn"] == turn]


def _step_again(env: TextEnv, logged: LoggedEpisode) -> Episode:
    recorder = EpisodeRecorder(env)
    if logged.tape is not None:
        env.use_tape(logged.tape)
    episode = recorder.reset(seed=logged.seed, task=logged.task, attempt=logged.attempt)
    for action in logged.actions:
        if recorder.done:
            break
        recorder.step(action)
    episode.meta = {}
    logged.add_remarks(episode)
    if LoggedEpisode.of(episode).line() != logged.line():
        raise BadLog(
            f"task {logged.task}, attempt {logged.attempt}: the episode does not come out as it did before the stop; "
            "the package or the data has changed since: begin anew (--force)"
        )
    return episode


class _Recorded(Around):
    """A policy that has some of its answers already."""

    def __init__(self, policy: AsyncPolicy, journal: Journal) -> None:
        super().__init__(policy)
        self._journal = journal
        self._answered = False
        self._new: list[dict[str, Any]] = []

    async def respond(self, view: PolicyInput) -> PolicyOutput:
        """Return the move for one view; the policy is asked if it is not known."""
        known = self._journal.move(view)
        if known is not None:
            return known
        move = checked(self.policy, await self.policy.respond(view))
        self._new.append(_row_of(view, move))
        self._answered = self._answered or not _failures(view)
        if self._answered:
            self._keep()
        return move

    async def __aexit__(self, *raised: Any) -> None:
        if raised[0] is None:
            self._keep()
        await super().__aexit__(*raised)

    def _keep(self) -> None:
        # Not before anything was answered: a policy that gives up because all requests failed is to ask them again.
        for row in self._new:
            self._journal.add_move(row)
        self._new.clear()
