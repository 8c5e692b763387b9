"""Step one logged episode again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from agentgym_flow.core import TextEnv
from agentgym_flow.data import FETCHED, DataSet, located, no_cache, no_fetching, place
from agentgym_flow.envs import make_text_env, text_env_class, text_env_parameters
from agentgym_flow.episode import Episode, EpisodeRecorder, first_link
from agentgym_flow.episode_log import LoggedEpisode, LogLimits
from agentgym_flow.errors import AgentGymFlowError, BadData, BadLog, UnknownEnvironment
from agentgym_flow.replay.divergence import Beginning, Divergence, ReplayOutcome, Step, compare
from agentgym_flow.seeding import canonical
from agentgym_flow.settings import check_settings

_MOST_ENVIRONMENTS = 32  # a log may have new settings in every line
_OURS = frozenset({"split", "max_steps", "data", "render_mode"})  # arguments that `kwargs` must not hold
_LONGEST_MESSAGE = 500
_HEX_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+")


def replay(logged: LoggedEpisode, data: Mapping[str, str | Path] | None = None, *, fetch: bool = False) -> Episode:
    """Step a logged episode again and return it whole, with observations and state keys.

    Stops early where the environment ends the episode before the actions do. Nothing is compared; see `verify`.
    This happens in this process, without its limits on time and memory; `verify_log` has them.

    Args:
        logged: a line of a log.
        data: where official data is, by name; otherwise it is looked for among the registered data sets.
        fetch: let the environment download official data that it gets by itself.

    Raises:
        BadLog: the line describes an environment or a start that cannot be made, or goes beyond `LogLimits`.
        BadData: its official data is not here, or is not the data of the log.
        UnknownEnvironment, UnknownOption, BadSetting: the line names an environment, a setting or a value that a log
            cannot have.
    """
    with closing(Environments(data or {}, fetch=fetch)) as environments:
        return _step_again(logged, environments.of(logged, settings_of(logged)).env)


def verify(
    logged: LoggedEpisode, data: Mapping[str, str | Path] | None = None, *, fetch: bool = False
) -> Divergence | None:
    """Step a logged episode again and return the first divergence, or None when all is as logged.

    Arguments as for `replay`. Raises nothing for a bad line: an environment or data that cannot be had is a divergence
    at the start.
    """
    with closing(Environments(data or {}, fetch=fetch)) as environments:
        return check(logged, environments)[0]


def check(
    logged: LoggedEpisode, environments: Environments, keep: Sequence[str] | None = None, settings: bytes = b""
) -> tuple[Divergence | None, ReplayOutcome, Episode | None]:
    """Return the first divergence, what stepping came to, and the replayed episode where `keep` is given.

    `settings` is `settings_of(logged)`, where that is known already. Whatever is raised on the way is a divergence at
    the start, with no episode. No cache on disk is used: who can write to one would decide what is confirmed.
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
        start = _started(made, episode.seed, episode.observation, episode.state_key, episode.tape)
        divergence, outcome = compare(logged, start, _steps_of(episode))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it is (SystemExit, MemoryError): a fault of the line
        environments.close()  # one of them may be in any state now
        reason = str(error)
        if not isinstance(error, AgentGymFlowError):
            reason = f"{logged.env_id:.80} failed on replay: {type(error).__name__}: {error}"
        return Divergence(0, f"cannot be replayed: {reason:.{_LONGEST_MESSAGE}}"), ReplayOutcome(), None
    return divergence, outcome, episode if keep is not None else None


class ReplayEnv(NamedTuple):
    """An environment, and the fields of a log that it shows once it is made; none where they are as logged."""

    env: TextEnv
    fields: Mapping[str, Any]
    num_tasks: int

    @classmethod
    def of(cls, env: TextEnv, logged: LoggedEpisode) -> ReplayEnv:
        """Compare them once, for all lines with the same settings."""
        names = ("env_id", "kwargs", "data", "split", "max_steps")
        found = {name: getattr(env, "settings" if name == "kwargs" else name) for name in names}
        alike = all(canonical(getattr(logged, name)) == canonical(value) for name, value in found.items())
        return cls(env, {} if alike else found, env.num_tasks)


class Environments:
    """Makes the environment of a logged episode; a log of one environment makes it once.

    Args:
        data: where official data is, by name.
        limits: what an episode may hold.
        fetch: whether environments may download data.
    """

    def __init__(self, data: Mapping[str, str | Path], limits: LogLimits | None = None, *, fetch: bool = False) -> None:
        self._data = data
        self._limits = limits or LogLimits()
        self._fetch = fetch
        self._checked: dict[str, DataSet] = {}
        self._made: dict[tuple[bytes, int], ReplayEnv] = {}

    def of(self, logged: LoggedEpisode, settings: bytes) -> ReplayEnv:
        """Return an environment with the settings of `logged`, perhaps one that has played before.

        `settings` is `settings_of(logged)`. Raises as `replay` does.
        """
        self._check_length(logged)
        _check_texts([logged.kwargs, logged.tape])
        key = settings, logged.max_steps
        if key not in self._made:
            if len(self._made) >= _MOST_ENVIRONMENTS:
                self.close()
            with nullcontext() if self._fetch else no_fetching():
                self._made[key] = ReplayEnv.of(self._make(logged), logged)
        return self._made[key]

    def num_tasks(self, settings: bytes, max_steps: int) -> int:
        """Return the tasks in the split of an environment that was made; else 0."""
        made = self._made.get((settings, max_steps))
        return made.num_tasks if made else 0

    def close(self) -> None:
        """Close the environments made so far and forget them."""
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
        forbidden = sorted(_OURS & logged.kwargs.keys())
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
    """Return the class of an environment of this package, or of one that the caller has imported."""
    entry = gym.registry[env_id].entry_point if env_id in gym.registry else None
    if isinstance(entry, str) and not env_id.startswith("agentgym_flow/"):
        module = entry.partition(":")[0]
        if module not in sys.modules:
            raise UnknownEnvironment(
                f"{env_id:.80} is not imported because a log names it; if you trust it: --import {module}"
            )
    return text_env_class(env_id)


def _check_texts(values: list[Any]) -> None:
    """Raise `BadLog` for a text that has the digest of a number: one could be put in place of the other."""
    while values:
        value = values.pop()
        if isinstance(value, str):
            if _HEX_FLOAT.fullmatch(value):
                raise BadLog(f"the text {value!r} cannot be told from the number {float.fromhex(value)!r} by digest")
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value


def settings_of(logged: LoggedEpisode) -> bytes:
    """Return what of an episode says which environment it was played in, the step budget aside."""
    return canonical([logged.env_id, logged.kwargs, logged.data, logged.split])


def _tape(logged: LoggedEpisode) -> list[Any]:
    # Without a tape an environment is given an empty one: replay never asks the outside world again.
    return logged.tape or [None] * (len(logged.actions) + 1)


def _stepped(logged: LoggedEpisode, made: ReplayEnv) -> tuple[Beginning, Iterator[Step]]:
    """Start the episode, and return its steps one by one: nothing else of `info` is made, and no episode is kept."""
    env = made.env
    env.use_tape(_tape(logged))
    observation, info = env.reset(seed=logged.seed, options={"task": logged.task})
    return _started(made, logged.seed, observation, info["state_key"], env.tape_entry), _steps(logged.actions, env)


def _steps(actions: Sequence[str], env: TextEnv) -> Iterator[Step]:
    for action in actions:
        (observation, reward, terminated, _), truncated = env.advance(action)
        success, score = env.success(), float(env.score())
        yield action, observation, float(reward), terminated, truncated, success, score, env.state_key(), env.tape_entry
        if terminated or truncated:
            return


def _started(made: ReplayEnv, seed: int, observation: str, state_key: str, tape: Any) -> Beginning:
    env = made.env
    settings = [env.env_id, env.settings, env.data, env.task_key, seed, env.max_steps]
    found = {**made.fields, "task": env.task, "task_key": env.task_key}
    return Beginning(found, first_link(settings, observation, state_key), tape)


def _steps_of(episode: Episode) -> Iterator[Step]:
    for turn in episode.turns:
        observation, reward, score = turn.next_observation, float(turn.reward), float(turn.score)
        outcome = (turn.terminated, turn.truncated, turn.success, score)
        yield turn.action, observation, reward, *outcome, turn.next_state_key, turn.tape


def _step_again(logged: LoggedEpisode, env: TextEnv, keep: Sequence[str] = ()) -> Episode:
    recorder = EpisodeRecorder(env)
    env.request_info(key for key in keep if key in env.optional_info)
    try:
        env.use_tape(_tape(logged))
        episode = recorder.reset(seed=logged.seed, task=logged.task, attempt=logged.attempt)
        recorder.keep = tuple(key for key in keep if key in recorder.info)
        for action in logged.actions:
            if recorder.done:
                break
            recorder.step(action)
    except AgentGymFlowError:
        raise
    except Exception as error:
        raise BadLog(f"{logged.env_id} failed on replay: {type(error).__name__}: {error}") from error
    return episode
