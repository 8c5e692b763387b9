"""Play the tasks of a split: plan the episodes, play those that the journal does not have, and write them in order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym_flow import data as registry
from agentgym_flow._util.files import check_new
from agentgym_flow.core import TextEnv, check_integer, check_positive, make_text_env, stable_hash
from agentgym_flow.episodes import Episode, read_log
from agentgym_flow.errors import BadResume, BadSetting, ExecutorFailed
from agentgym_flow.play.groups import ERROR, EpisodeSpec, rollout
from agentgym_flow.play.journal import Journal, check_same, path_of
from agentgym_flow.policies.base import AsyncPolicy, Policy

TRAIN_TASKS = 500
"""The default number of tasks of the split `train`. Of other splits, all tasks are played by default."""


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """The episodes to play: the first attempt at all tasks, then the second attempt at all tasks, and so on.

    Attributes:
        tasks: the task numbers in the split, ascending.
        split_tasks: the number of tasks in the split (of the chosen types, if any).
        attempts: the number of episodes per task.
        seed: task i has the seed `seed + i`, in all attempts.
        share: the part of the episodes that this process plays.
    """

    tasks: Sequence[int]
    split_tasks: int
    attempts: int
    seed: int
    share: slice = field(default_factory=lambda: slice(None))

    @classmethod
    def of(
        cls,
        env: TextEnv,
        num_episodes: int | None = None,
        attempts: int = 1,
        seed: int = 0,
        task_types: Sequence[str] | None = None,
        share: slice = slice(None),
    ) -> EpisodePlan:
        """Return the plan for the split of `env`, with the arguments and errors of `play_split`."""
        attempts, seed = check_positive("attempts", attempts), check_integer("seed", seed, 0)
        tasks = env.drawn_tasks if task_types is None else env.tasks_of_types(task_types)
        if num_episodes is None:
            count = min(TRAIN_TASKS, len(tasks)) if env.split == "train" else len(tasks)
        else:
            count = check_positive("num_episodes", num_episodes)
        if count > len(tasks):
            such = " of these types" if len(tasks) < env.num_tasks else ""
            raise BadSetting(
                f"split {env.split!r} has {len(tasks)} tasks{such}, so {count} episodes (num_episodes) would play some "
                "twice: leave the number out to play each once, or set attempts to play each several times"
            )
        return cls(tasks[:count], len(tasks), attempts, seed, share)

    @property
    def places(self) -> list[tuple[int, int]]:
        """The task and the attempt of each episode, in order."""
        return [(task, attempt) for attempt in range(self.attempts) for task in self.tasks][self.share]


def play_split(
    policy: Policy | AsyncPolicy,
    env_id: str,
    *,
    split: str,
    num_episodes: int | None = None,
    attempts: int = 1,
    task_types: Sequence[str] | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    num_envs: int = 64,
    write: Callable[[Episode], None] | None = None,
    journal: OpenJournal | None = None,
    on_plan: Callable[[EpisodePlan], None] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    share: slice = slice(None),
) -> list[Episode]:
    """Play tasks of a split and return the episodes. `evaluate` and `collect` use this function.

    `write` is called with the episodes in the order of the plan, as early as possible; after an interruption it gets
    all finished episodes. Episodes in the `journal` are not played again. `share` is the part of the plan to play. All
    other arguments and the errors are those of `evaluate`.
    """
    make_env = maker(env_id, {**(env_kwargs or {}), "split": split})
    with closing(make_env()) as env:
        plan = EpisodePlan.of(env, num_episodes, attempts, seed, task_types, share)
        kept = None if journal is None else journal(plan, env)
        known = {} if kept is None else kept.episodes(env)
        if on_plan is not None:
            on_plan(plan)
        if len(known) < len(plan.places):
            env.check_servers()
        env.keep_answers(kept)
        try:
            return _play(policy, make_env, plan, known, kept, num_envs, write, on_episode)
        finally:
            env.keep_answers(None)


def _play(
    policy: Policy | AsyncPolicy,
    make_env: Callable[[], TextEnv],
    plan: EpisodePlan,
    known: Mapping[tuple[int, int], Episode],
    journal: Journal | None,
    num_envs: int,
    write: Callable[[Episode], None] | None,
    on_episode: Callable[[Episode], None] | None,
) -> list[Episode]:
    """Play the episodes of the plan that are not `known`; return all episodes in order."""
    in_order = _OrderedWriter(plan.places, write)

    def take(episode: Episode) -> None:
        in_order.add(episode)
        if on_episode is not None:
            on_episode(episode)

    def finish(episode: Episode) -> None:
        error = episode.meta.get(ERROR, {})
        if error.get("class") == ExecutorFailed.__name__:  # all further episodes would fail as well
            raise ExecutorFailed(error["message"])
        episode.meta["policy"] = policy.name
        if journal is not None:
            journal.add_episode(episode)
        take(episode)

    player = policy if journal is None else journal.recording(policy)
    specs = [EpisodeSpec(plan.seed + task, task, n) for task, n in plan.places if (task, n) not in known]
    try:
        for episode in known.values():
            take(episode)
        played = rollout(player, make_env, specs, num_envs=num_envs, on_episode=finish)
    finally:
        in_order.flush()
    every = {**known, **{(episode.task, episode.attempt): episode for episode in played}}
    return [every[place] for place in plan.places]


OpenJournal = Callable[[EpisodePlan, TextEnv], Journal]
"""A function that opens the journal for a plan and an environment."""


@contextmanager
def journalled(
    policy: Policy | AsyncPolicy, file: Path, *, replace: bool, resume: bool, inputs: Sequence[str]
) -> Iterator[tuple[OpenJournal, bool]]:
    """Yield a function that opens the journal of a run, and whether the run replaces an existing `file`.

    At the end the journal is closed, and removed unless the body raised.

    Args:
        policy: the policy that plays.
        file: the file that the run writes.
        replace: replace an existing file and journal.
        resume: continue a stopped run, if there is one.
        inputs: files that the run reads, which it must not overwrite.

    Raises:
        BadResume: both `replace` and `resume` are true.
        FileExistsError: `file` exists, and is neither to be replaced nor from the stopped run.
    """
    if resume and replace:
        raise BadResume("resume continues with existing files, and replace deletes them: choose one")
    stopped = resume and path_of(file).exists()  # then `file` has the episodes that had finished
    check_new(file, replace=replace or stopped, inputs=inputs)
    check_new(path_of(file), replace=True, inputs=inputs)  # the journal itself checks whether it may be used
    opened: list[Journal] = []
    done = False

    def journal(plan: EpisodePlan, env: TextEnv) -> Journal:
        opened.append(Journal(file, _settings(policy, plan, env), resume=resume, replace=replace))
        return opened[0]

    try:
        yield journal, replace or stopped
        done = True
    finally:
        for one in opened:
            one.close(done=done)


def _settings(policy: Policy | AsyncPolicy, plan: EpisodePlan, env: TextEnv) -> dict[str, Any]:
    """Return all settings that affect the episodes of a run."""
    return {
        "policy": policy.name,
        "policy settings": getattr(policy, "settings", {}),
        "environment": env.env_id,
        "arguments": env.settings,
        "max_steps": env.max_steps,
        "data": env.data,
        "split": env.split,
        "tasks": _named(plan.tasks),
        "attempts": plan.attempts,
        "seed": plan.seed,
    }


def _named(tasks: Sequence[int]) -> int | str:
    """Return the number of tasks if they are the first ones of the split, otherwise their hash."""
    return len(tasks) if list(tasks) == list(range(len(tasks))) else stable_hash(list(tasks))


def check_complete(
    log: Path,
    policy: Policy | AsyncPolicy,
    env_id: str,
    *,
    split: str,
    num_episodes: int | None,
    attempts: int,
    task_types: Sequence[str] | None,
    seed: int,
    env_kwargs: Mapping[str, Any] | None,
) -> None:
    """Raise `BadResume` if `log` does not have exactly the episodes that `play_split` would play with these arguments.

    Settings of the policy are not compared, because a log does not contain them. Raises `BadLog` if it is not a log.
    """
    with closing(maker(env_id, {**(env_kwargs or {}), "split": split})()) as env:
        plan = EpisodePlan.of(env, num_episodes, attempts, seed, task_types)
        new = json.loads(json.dumps(_settings(policy, plan, env)))
    places: list[tuple[int, int]] = []
    for logged in read_log(log):
        places.append((logged.task, logged.attempt))
        old = {
            "policy": (logged.meta or {}).get("policy"),
            "environment": logged.env_id,
            "arguments": logged.kwargs,
            "max_steps": logged.max_steps,
            "data": logged.data,
            "split": logged.split,
            "seed": logged.seed - logged.task,
        }
        check_same({**new, **old}, new, f"{log}")
    tasks = sorted({task for task, _ in places})
    attempts = max((attempt + 1 for _, attempt in places), default=0)
    old = {"tasks": _named(tasks), "attempts": attempts, "episodes": len(places)}
    check_same({**new, **old}, new | {"episodes": len(plan.places)}, f"{log}")


def data_files(env_kwargs: Mapping[str, Any] | None) -> list[str]:
    """Return the existing files and folders in the arguments of an environment: data, corpus, cache of a server.

    Raises `BadData` if the registry of data cannot be read.
    """
    kwargs = env_kwargs or {}
    data, remote = kwargs.get("data"), kwargs.get("remote")
    found = [data.path if isinstance(data, registry.DataSet) else data, kwargs.get("corpus")]
    found += [registry.place(str(data))] if isinstance(data, str | os.PathLike) else []
    found += remote.values() if isinstance(remote, Mapping) else []
    return [os.fspath(one) for one in found if isinstance(one, str | os.PathLike) and os.path.exists(one)]


def maker(env_id: str, kwargs: dict[str, Any]) -> Callable[[], TextEnv]:
    """Return a function that makes the environment. Official data is resolved only once."""
    if kwargs.get("data") is not None:
        kwargs = {**kwargs, "data": registry.resolve(kwargs["data"])}
    return lambda: make_text_env(env_id, **kwargs)


class _OrderedWriter:
    """Writes episodes in the order of the plan, each as soon as all earlier ones have finished."""

    def __init__(self, places: Sequence[tuple[int, int]], write: Callable[[Episode], None] | None) -> None:
        self._write = write
        self._places = {place: number for number, place in enumerate(places)}
        self._next = 0
        self._waiting: dict[int, Episode] = {}

    def add(self, episode: Episode) -> None:
        """Add a finished episode."""
        if self._write is None:
            return
        self._waiting[self._places[episode.task, episode.attempt]] = episode
        while self._next in self._waiting:
            self._write(self._waiting.pop(self._next))
            self._next += 1

    def flush(self) -> None:
        """Write the finished episodes that still wait for an earlier one."""
        for place in sorted(self._waiting):
            assert self._write is not None  # add() keeps nothing without one
            self._write(self._waiting.pop(place))
