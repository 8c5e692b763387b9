"""Replay one logged episode, and find its first difference from the log."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from agentgym_flow.core import TextEnv, canonical, check_settings, make_text_env, text_env_class, text_env_parameters
from agentgym_flow.data import FETCHED, DataSet, located, no_cache, no_fetching, place
from agentgym_flow.episodes import (
    BOARD_SCHEMA,
    SCHEMA,
    Episode,
    EpisodeRecorder,
    LinkValues,
    LoggedEpisode,
    LogLimits,
    PolicyOutput,
    first_link,
    next_link,
)
from agentgym_flow.errors import AgentGymFlowError, BadData, BadLog, UnknownEnvironment

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


_MOST_ENVIRONMENTS = 32  # every line of a log may have new settings
_RESERVED = frozenset({"split", "max_steps", "data", "render_mode"})  # arguments that `kwargs` must not contain
_LONGEST_MESSAGE = 500
_HEX_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+")


def replay(logged: LoggedEpisode, data: Mapping[str, str | Path] | None = None, *, fetch: bool = False) -> Episode:
    """Replay a logged episode and return it completely, with observations and state keys.

    The replay stops if the environment ends the episode before the last action. Nothing is compared; see `verify`. It
    runs in this process, without limits on time and memory; `verify_log` has these limits.

    Args:
        logged: a line of a log.
        data: paths of official data, by name. Other data is taken from the registry.
        fetch: let the environment download official data.

    Raises:
        BadLog: the environment or the start of the episode cannot be created, or the line exceeds `LogLimits`.
        BadData: the official data is not on this machine, or has another digest than in the log.
        UnknownEnvironment, UnknownOption, BadSetting: the environment, a setting or a value is not allowed in a log.
    """
    with closing(Environments(data or {}, fetch=fetch)) as environments:
        return _step_again(logged, environments.of(logged, settings_of(logged)).env)


def verify(
    logged: LoggedEpisode, data: Mapping[str, str | Path] | None = None, *, fetch: bool = False
) -> Divergence | None:
    """Replay a logged episode and return the first divergence; None if the replay is identical.

    The arguments are those of `replay`. Never raises because of the line: if the environment cannot be created or the
    data is missing, this is a divergence at the start.
    """
    with closing(Environments(data or {}, fetch=fetch)) as environments:
        return check(logged, environments)[0]


def check(
    logged: LoggedEpisode, environments: Environments, keep: Sequence[str] | None = None, settings: bytes = b""
) -> tuple[Divergence | None, ReplayOutcome, Episode | None]:
    """Return the first divergence, the end of the replay, and the replayed episode if `keep` is given.

    `settings` is `settings_of(logged)`, if it is already known. Every exception is a divergence at the start, without
    an episode. No cache on disk is used, because anyone who can write to it could influence the verdict.
    """
    with no_cache():
        return _check(logged, environments, keep, settings)


def _check(
    logged: LoggedEpisode, environments: Environments, keep: Sequence[str] | None, settings: bytes
) -> tuple[Divergence | None, ReplayOutcome, Episode | None]:
    try:
        made = environments.of(logged, settings or settings_of(logged))
        if keep is None and type(made.env).step is TextEnv.step:
            return *compare(logged, *_stepped(logged, made)), None
        episode = _step_again(logged, made.env, keep or ())
        start = _started(made, episode.seed, episode.observation, episode.state_key, episode.recording)
        divergence, outcome = compare(logged, start, (turn.link for turn in episode.turns))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the line is responsible, also for SystemExit and MemoryError
        environments.close()  # the state of one of them is undefined
        reason = str(error)
        if not isinstance(error, AgentGymFlowError):
            reason = f"{logged.env_id:.80} failed on replay: {type(error).__name__}: {error}"
        return Divergence(0, f"cannot be replayed: {reason:.{_LONGEST_MESSAGE}}"), ReplayOutcome(), None
    return divergence, outcome, episode if keep is not None else None


class ReplayEnv(NamedTuple):
    """An environment, and its values for the fields of a log that describe its settings; none if they are equal."""

    env: TextEnv
    fields: Mapping[str, Any]
    num_tasks: int

    @classmethod
    def of(cls, env: TextEnv, logged: LoggedEpisode) -> ReplayEnv:
        """Compare the settings, once for all lines with the same settings."""
        names = ("env_id", "kwargs", "data", "split", "max_steps")
        found = {name: getattr(env, "settings" if name == "kwargs" else name) for name in names}
        alike = all(canonical(getattr(logged, name)) == canonical(value) for name, value in found.items())
        return cls(env, {} if alike else found, env.num_tasks)


class Environments:
    """Makes the environments of logged episodes, and reuses them for episodes with equal settings.

    Args:
        data: paths of official data, by name.
        limits: the limits for an episode.
        fetch: whether environments may download data.
    """

    def __init__(self, data: Mapping[str, str | Path], limits: LogLimits | None = None, *, fetch: bool = False) -> None:
        self._data = data
        self._limits = limits or LogLimits()
        self._fetch = fetch
        self._checked: dict[str, DataSet] = {}
        self._made: dict[tuple[bytes, int], ReplayEnv] = {}

    def of(self, logged: LoggedEpisode, settings: bytes) -> ReplayEnv:
        """Return a new or used environment with the settings of `logged`.

        `settings` is `settings_of(logged)`. Raises the same errors as `replay`.
        """
        self._check_length(logged)
        _check_texts([logged.kwargs, logged.recording])
        key = settings, logged.max_steps
        if key not in self._made:
            if len(self._made) >= _MOST_ENVIRONMENTS:
                self.close()
            with nullcontext() if self._fetch else no_fetching():
                self._made[key] = ReplayEnv.of(self._make(logged), logged)
        return self._made[key]

    def num_tasks(self, settings: bytes, max_steps: int) -> int:
        """Return the number of tasks in the split of an environment; 0 if the environment has not been made."""
        made = self._made.get((settings, max_steps))
        return made.num_tasks if made else 0

    def close(self) -> None:
        """Close and forget all environments."""
        for made in self._made.values():
            made.env.close()
        self._made.clear()

    def _check_length(self, logged: LoggedEpisode) -> None:
        limits = self._limits
        if len(logged.actions) > limits.max_actions:
            raise BadLog(f"{len(logged.actions)} actions are more than max_actions={limits.max_actions}")
        longest = max(map(len, logged.actions), default=0)
        if longest > limits.max_action_length:
            raise BadLog(
                f"an action of {longest} characters is longer than max_action_length={limits.max_action_length}"
            )

    def _make(self, logged: LoggedEpisode) -> TextEnv:
        forbidden = sorted(_RESERVED & logged.kwargs.keys())
        if forbidden:
            raise BadLog(f"kwargs must not hold {forbidden[0]!r}")
        kind = _class_of(logged.env_id)
        parameters = text_env_parameters(kind) or logged.kwargs
        check_settings(kind.logged_settings, logged.kwargs, parameters=parameters)
        if len(logged.data) > 1:
            raise BadLog(f"an environment reads one data set, the log names {', '.join(sorted(logged.data))}")
        kwargs: dict[str, Any] = {**logged.kwargs, "split": logged.split, "max_steps": logged.max_steps}
        for name in logged.data:
            if name in self._data or not name.startswith(FETCHED):
                kwargs["data"] = self._find(name)
        try:
            env = make_text_env(logged.env_id, **kwargs)
        except AgentGymFlowError:
            raise
        except Exception as error:
            raise BadLog(
                f"{logged.env_id} cannot be made with {logged.kwargs!r:.200}: {type(error).__name__}: {error}"
            ) from error
        for name, digest in logged.data.items():
            self._check_digest(name, digest, env)
        return env

    def _check_digest(self, name: str, digest: str, env: TextEnv) -> None:
        found = env.data.get(name)
        if found is None:
            raise BadData(f"the log names official data {name!r}, which {env.env_id} with these settings does not use")
        if found == digest:
            return
        if env.former_data.get(name) == digest:
            raise BadData(
                f"the log is of an earlier version of this package, which gave the official data {name!r} another "
                "SHA-256 and its tasks other keys: play the episodes again, or verify the log with that version"
            )
        remedy = f"name a file of it: --data {name}=PATH"
        if not name.startswith(FETCHED):
            remedy = f"run: agentgym-flow data add {name} PATH"
        where = f"data set {name!r}" + (f" at {self._checked[name].path}" if name in self._checked else "")
        raise BadData(
            f"{where} has the SHA-256 {found[:16]}..., the log was made with {digest[:16]}...: "
            f"get that version and {remedy}"
        )

    def _find(self, name: str) -> DataSet:
        if name not in self._checked:
            path = self._data.get(name) or place(name)
            if path is None:
                remedy = f"agentgym-flow data add {name} PATH"
                raise BadData(f"the log was made with official data {name!r:.80}; register it with: {remedy:.200}")
            self._checked[name] = located(name, path)
        return self._checked[name]


def _class_of(env_id: str) -> type[TextEnv]:
    """Return the class of an environment of this package, or of one that the caller has already imported."""
    entry = gym.registry[env_id].entry_point if env_id in gym.registry else None
    if isinstance(entry, str) and not env_id.startswith("agentgym_flow/"):
        module = entry.partition(":")[0]
        if module not in sys.modules:
            raise UnknownEnvironment(
                f"{env_id:.80} is not imported because a log names it; if you trust it: --import {module}"
            )
    return text_env_class(env_id)


def _check_texts(values: list[Any]) -> None:
    """Raise `BadLog` for a text with the same digest as a number, because one could replace the other."""
    while values:
        value = values.pop()
        if isinstance(value, str):
            if _HEX_FLOAT.fullmatch(value):
                raise BadLog(f"the text {value!r} has the same digest as the number {float.fromhex(value)!r}")
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value


def settings_of(logged: LoggedEpisode) -> bytes:
    """Return the settings of an episode's environment, without the step budget, as canonical JSON."""
    return canonical([logged.env_id, logged.kwargs, logged.data, logged.split])


def _stepped(logged: LoggedEpisode, made: ReplayEnv) -> tuple[ReplayStart, Iterator[LinkValues]]:
    """Start the episode, and return an iterator of its steps, without building `info` or storing the episode.

    Without them, verification takes two thirds of the time.
    """
    env = made.env
    env.external.use_recording(_recording(logged))
    observation, info = env.reset(seed=logged.seed, options={"task": logged.task})
    start = _started(made, logged.seed, observation, info["state_key"], env.external.recorded_responses)
    return start, _steps(logged.actions, env)


def _steps(actions: Sequence[str], env: TextEnv) -> Iterator[LinkValues]:
    for action in actions:
        (observation, reward, terminated, _), truncated = env.advance(action)
        success, score = env.success(), float(env.score())
        key, recording = env.state_key(), env.external.recorded_responses
        yield action, observation, float(reward), terminated, truncated, success, score, key, recording
        if terminated or truncated:
            return


def _started(made: ReplayEnv, seed: int, observation: str, state_key: str, recording: Any) -> ReplayStart:
    env = made.env
    settings = [env.env_id, env.settings, env.data, env.task_key, seed, env.max_steps]
    found = {**made.fields, "task": env.task, "task_key": env.task_key}
    return ReplayStart(found, first_link(settings, observation, state_key), recording)


def _step_again(logged: LoggedEpisode, env: TextEnv, keep: Sequence[str] = ()) -> Episode:
    recorder = EpisodeRecorder(env)
    env.request_info(key for key in keep if key in env.optional_info)
    try:
        steps = step_again(recorder, logged)
        next(steps, None)
        recorder.keep = tuple(key for key in keep if key in recorder.info)
        for _ in steps:
            pass
    except AgentGymFlowError:
        raise
    except Exception as error:
        raise BadLog(f"{logged.env_id} failed on replay: {type(error).__name__}: {error}") from error
    assert recorder.episode is not None
    return recorder.episode


def step_again(
    recorder: EpisodeRecorder, logged: LoggedEpisode, outputs: Iterable[str | PolicyOutput] | None = None
) -> Iterator[Episode]:
    """Start a logged episode again, and yield it before each of its actions; afterwards it is `recorder.episode`.

    Stops early if the environment ends the episode. `outputs` become those of the turns; None for the actions alone,
    which are all that a replay can verify.
    """
    episode = start_again(recorder, logged)
    for output in logged.actions if outputs is None else outputs:
        if recorder.done:
            return
        yield episode
        recorder.step(output)


def start_again(recorder: EpisodeRecorder, logged: LoggedEpisode) -> Episode:
    """Start a logged episode again. External requests are answered from the recorded responses."""
    recorder.env.external.use_recording(_recording(logged))
    return recorder.reset(seed=logged.seed, task=logged.task, attempt=logged.attempt)


def _recording(logged: LoggedEpisode) -> list[Any]:
    # If there is no recording, an empty one prevents external requests.
    return logged.recording or [None] * (len(logged.actions) + 1)
