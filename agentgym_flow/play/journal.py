"""The journal of an evaluation or collection, from which it is resumed: settings, finished episodes, answers.

The journal is a file of JSON lines next to the log, `<log>.unfinished`. Every line is written to disk immediately, so
Ctrl-C, a kill or a failing server loses no finished episode and no paid answer. The journal is removed when the log is
complete.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agentgym_flow._util.files import lock, named_in_errors
from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import TextEnv, stable_hash
from agentgym_flow.episodes import LOGPROBS, REASONING, Episode, EpisodeRecorder, LoggedEpisode, PolicyOutput
from agentgym_flow.errors import BadLog, BadResume
from agentgym_flow.play.groups import ERROR
from agentgym_flow.policies.base import AsyncPolicy, Policy, PolicyInput, PolicyWrapper, checked
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS, TOOL_CALLS, OpenAIPolicy
from agentgym_flow.policies.spending import USAGE, add_usage, new_usage
from agentgym_flow.replay.stepping import step_again

SUFFIX = ".unfinished"
"""The suffix of a journal's name."""

_EPISODE = '{"episode":'

Place = tuple[int, int]
"""The task and the attempt of an episode."""


def path_of(log: Path) -> Path:
    """Return the path of the journal of a log."""
    return log.with_name(log.name + SUFFIX)


class Journal:
    """The journal of one run. It is the `AnswerStore` of the run's environments. Close it at the end.

    Args:
        log: the file that the run writes.
        settings: all settings that affect the episodes, JSON-serialisable.
        resume: continue with an existing journal, if there is one.
        replace: replace an existing journal.

    Raises:
        FileExistsError: a journal exists, and neither `resume` nor `replace` is set.
        BadResume: the stopped run had other settings, or another process is using the journal.
        BadLog: the journal is damaged.
        OSError: the journal cannot be written.
    """

    def __init__(self, log: Path, settings: Mapping[str, Any], *, resume: bool = False, replace: bool = False) -> None:
        self.path = path_of(log)
        self._settings = json.loads(json.dumps(settings))
        self._episodes: dict[Place, LoggedEpisode] = {}
        self._outputs: dict[tuple[int, int, int, str], Mapping[str, Any]] = {}
        self._answers: dict[str, list[Any]] = {}
        self._lock = Lock()
        self._written = False
        if self.path.exists() and not (resume or replace):
            raise FileExistsError(
                errno.EEXIST, "a run was stopped there: resume it (--resume) or replace it (--force)", self.path
            )
        with named_in_errors(self.path):
            self._file: IO[bytes] = self.path.open("a+b")
        try:
            if not lock(self._file):
                raise BadResume(f"another process is still at this run: it has {self.path} open")
            self._file.seek(0)
            if replace:  # only after the lock, because another process may be using it
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
                break  # the process ended while it wrote this line
            try:
                self._take_line(number, line.decode("ascii").rstrip("\n"))
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                if isinstance(error, (BadLog, BadResume)):
                    raise
                raise BadLog(f"{self.path.name} line {number} is damaged; start again with --force") from None
            end += len(line)
        self._file.seek(end)
        self._file.truncate()
        if end == 0:
            self._append(json.dumps({"settings": self._settings}))
            self._written = False

    def _take_line(self, number: int, line: str) -> None:
        if line.startswith(_EPISODE):
            logged = LoggedEpisode.parse(line[len(_EPISODE) : -1], f"{self.path.name} line {number}")
            if ERROR not in (logged.meta or {}):  # others are played again, because the error may be temporary
                self._episodes[logged.task, logged.attempt] = logged
        else:
            row = json.loads(line)
            if number == 1:
                check_same(row["settings"], self._settings, "the stopped run")
                return
            if "output" in row:
                task, attempt, turn, seen = row["at"]
                self._outputs[task, attempt, turn, seen] = row
            else:
                self._answers.setdefault(row["asked"], []).append(row["answer"])
        self._written = True

    def _append(self, line: str) -> None:
        with self._lock, named_in_errors(self.path):
            self._file.write(line.encode("ascii") + b"\n")
            self._file.flush()
            self._written = True

    def close(self, *, done: bool = False) -> None:
        """Close the file, and remove it if the run is `done` or the journal has nothing to resume from."""
        self._file.close()
        if done or not self._written:
            self.path.unlink(missing_ok=True)

    # ---------------------------------------------------------------- finished episodes
    def add_episode(self, episode: Episode) -> None:
        """Add a finished episode."""
        self._append(f"{_EPISODE}{LoggedEpisode.of(episode).line()}}}")

    def episodes(self, env: TextEnv) -> dict[Place, Episode]:
        """Return the finished episodes, replayed on `env` without external requests.

        Episodes in which the environment raised are left out.

        Raises `BadLog` if a replay differs, because the package or the data has changed.
        """
        return {place: _step_again(env, logged) for place, logged in self._episodes.items()}

    # ---------------------------------------------------------------- answers of the policy
    def recording(self, policy: Policy | AsyncPolicy) -> Policy | AsyncPolicy:
        """Return the policy, wrapped so that it reuses its recorded answers and records new ones.

        Only the answers of an `AsyncPolicy` that ignores `rng` are recorded. Other policies are returned unchanged, and
        play unfinished episodes again.
        """
        if isinstance(policy, AsyncPolicy) and getattr(policy, "ignores_rng", False):
            return _RecordedPolicy(policy, self)
        return policy

    def output(self, policy_input: PolicyInput) -> PolicyOutput | None:
        """Return the recorded answer to this input, and report its failed requests again; None if there is none."""
        found = self._outputs.get(_place_of(policy_input))
        if found is None:
            return None
        action, completion, failures, policy, cut, truncated_by, *logprobs = found["output"]
        meta = policy_input.episode.meta
        for key, told in {FAILED_REQUESTS: failures, LOGPROBS: logprobs, **found.get("notes", {})}.items():
            if told:
                meta.setdefault(key, []).extend(told)
        if USAGE in found:
            add_usage(meta.setdefault(USAGE, {}), found[USAGE])
        return PolicyOutput(action, completion=completion, policy=policy, cut=cut, truncated_by=truncated_by)

    def items(self, policy_input: PolicyInput) -> list[Any]:
        """Return the parts of the recorded answer to this input that its server wants back."""
        return list(self._outputs[_place_of(policy_input)].get("items", ()))

    def add_output(self, row: Mapping[str, Any]) -> None:
        """Record an answer, in the form of `_row_of`."""
        self._append(json.dumps(row, separators=(",", ":")))

    # ---------------------------------------------------------------- answers of servers behind an environment
    def take(self, asked: str) -> Any | None:
        """Return the next recorded answer to a request, each answer once, in order; None if there is none."""
        with self._lock:
            kept = self._answers.get(asked)
            return kept.pop(0) if kept else None

    def add(self, asked: str, answer: Any) -> None:
        """Record the JSON-serialisable answer to a request."""
        self._append(json.dumps({"asked": asked, "answer": answer}, separators=(",", ":")))


def check_same(old: Mapping[str, Any], new: Mapping[str, Any], run: str) -> None:
    """Raise `BadResume` if the settings of a `run`, named in the message, differ from those of the new run."""
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            raise BadResume(
                f"{run} had {name}={old.get(name)!r:.200}, this one has {new.get(name)!r:.200}: resume with the same "
                "settings, or start again (--force)"
            )


def _place_of(policy_input: PolicyInput) -> tuple[int, int, int, str]:
    episode = policy_input.episode
    return episode.task, episode.attempt, len(episode.turns), stable_hash([policy_input.observation])[:16]


def _row_of(policy_input: PolicyInput, output: PolicyOutput, spent: Mapping[str, float]) -> dict[str, Any]:
    """Return the record of an answer to a policy input, before which the episode had `spent` what it says."""
    logprobs = policy_input.episode.meta.get(LOGPROBS, [])[len(policy_input.episode.turns) :]
    said = [output.action, output.completion, _noted(policy_input, FAILED_REQUESTS)]
    row = {"at": _place_of(policy_input), "output": [*said, output.policy, output.cut, output.truncated_by, *logprobs]}
    notes = {key: told for key in (TOOL_CALLS, REASONING) if (told := _noted(policy_input, key))}
    new = new_usage(policy_input, spent)
    return row | ({"notes": notes} if notes else {}) | ({USAGE: new} if new else {})


def _noted(policy_input: PolicyInput, key: str) -> list[dict[str, Any]]:
    """Return what was noted about the present turn, such as its failed requests."""
    turn = len(policy_input.episode.turns)
    return [one for one in policy_input.episode.meta.get(key, ()) if one["turn"] == turn]


def _step_again(env: TextEnv, logged: LoggedEpisode) -> Episode:
    recorder = EpisodeRecorder(env)
    for _ in step_again(recorder, logged):
        pass
    episode = recorder.episode
    assert episode is not None
    episode.meta = {}
    logged.add_remarks(episode)
    if LoggedEpisode.of(episode).line() != logged.line():
        raise BadLog(
            f"task {logged.task}, attempt {logged.attempt}: the replay differs from the recorded episode, because the "
            "package or the data has changed: start again (--force)"
        )
    return episode


class _RecordedPolicy(PolicyWrapper):
    """A policy that reuses recorded answers and records new ones."""

    def __init__(self, policy: AsyncPolicy, journal: Journal) -> None:
        super().__init__(policy)
        inner = policy
        while isinstance(inner, PolicyWrapper):
            inner = inner.policy
        self._chat = inner if isinstance(inner, OpenAIPolicy) else None
        self._journal = journal
        self._answered = False
        self._new: list[dict[str, Any]] = []

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the recorded answer, or a new one from the policy."""
        known = self._journal.output(policy_input)
        if known is not None:
            if self._chat is not None:  # a conversation goes on from them
                self._chat.messages(policy_input)
                self._chat.keep_items(policy_input, self._journal.items(policy_input))
            return known
        spent = dict(policy_input.episode.meta.get(USAGE, {}))
        output = checked(self.policy, await self.policy.respond(policy_input))
        items = [] if self._chat is None else list(self._chat.items(policy_input))
        self._new.append(_row_of(policy_input, output, spent) | ({"items": items} if items else {}))
        self._answered = self._answered or not _noted(policy_input, FAILED_REQUESTS)
        if self._answered:
            self._keep()
        return output

    async def __aexit__(self, *raised: Any) -> None:
        if raised[0] is None:
            self._keep()
        await super().__aexit__(*raised)

    def _keep(self) -> None:
        # Called only after the first real answer: if all requests fail, a resumed run must send them again.
        for row in self._new:
            self._journal.add_output(row)
        self._new.clear()
