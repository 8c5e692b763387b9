"""Play the tasks of a split: which episodes those are, and what is done with each as it finishes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym_flow import data as registry
from agentgym_flow._util.files import check_new
from agentgym_flow.core import TextEnv, check_integer, check_positive
from agentgym_flow.envs import make_text_env
from agentgym_flow.episode import Episode
from agentgym_flow.errors import BadResume, BadSetting, ExecutorFailed
from agentgym_flow.journal import Journal, path_of
from agentgym_flow.policies.base import AsyncPolicy, Policy
from agentgym_flow.rollout import ERROR, EpisodeSpec, rollout
from agentgym_flow.seeding import stable_hash

TRAIN_TASKS = 500
"""How many tasks of the split `train` are played unless told otherwise; of the other splits it is all of them."""


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """Which episodes are played: every task `attempts` times, the first attempt at all tasks before the second at any.

    Attributes:
        tasks: the numbers of the tasks in the split, ascending.
        split_tasks: how many tasks the split has, of the chosen types if there are any.
        attempts: how many episodes each task gets.
        seed: task i has the seed `seed + i`, in all attempts.
        share: which of these episodes are played here; the others are somebody else's.
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
        """Return the plan for the split of `env`; the arguments are those of `play_split`, which see for errors."""
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
                "again: leave the number out to play each once, or set attempts to play each several times"
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
    """Play tasks of a split; what `evaluate` sums up and `collect` writes down.

    Args and errors are those of `evaluate`; `share` says which of the plan's episodes are played; `write` is called
    with the episodes in the order of the plan, with each as soon as all before it are there. When the playing ends
    early it gets those that had finished. `journal` opens the journal for a plan and an environment; what it has is not
    played again.
    """
    make_env = maker(env_id, {**(env_kwargs or {}), "split": split})
    with closing(make_env()) as env:
        plan = EpisodePlan.of(env, num_episodes, attempts, seed, task_types, share)
        kept = None if journal is None else journal(plan, env)
        known = {} if kept is None else kept.episodes(env)
        if on_plan is not None:
            on_plan(plan)
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
    """Play the episodes of the plan that are not `known`; return all of them, in order."""
    in_order = _InOrder(plan.places, write)

    def take(episode: Episode) -> None:
        in_order.add(episode)
        if on_episode is not None:
            on_episode(episode)

    def finish(episode: Episode) -> None:
        error = episode.meta.get(ERROR, {})
        if error.get("class") == ExecutorFailed.__name__:  # all further episodes would be lost as well
            raise ExecutorFailed(error["message"])
        episode.meta["policy"] = policy.name
        if journal is not None:
            journal.add_episode(episode)
        take(episode)

    player = policy if journal is None else journal.recording(policy)
    starts = [EpisodeSpec(plan.seed + task, task, n) for task, n in plan.places if (task, n) not in known]
    try:
        for episode in known.values():
            take(episode)
        played = rollout(player, make_env, starts, num_envs=num_envs, on_episode=finish)
    finally:
        in_order.flush()
    every = {**known, **{(episode.task, episode.attempt): episode for episode in played}}
    return [every[place] for place in plan.places]


OpenJournal = Callable[[EpisodePlan, TextEnv], Journal]
"""Opens the journal for a plan and an environment."""


@contextmanager
def journalled(
    policy: Policy | AsyncPolicy, file: Path, *, replace: bool, resume: bool, inputs: Sequence[str]
) -> Iterator[tuple[OpenJournal, bool]]:
    """Give what opens the journal of a run that writes `file`, and whether the run replaces what is at `file`.

    The journal is closed in the end, and removed if the body came to its end.

    Args:
        policy: who acts.
        file: what the run writes.
        replace: begin anew, whatever is there.
        resume: go on with a run that was stopped, if one was.
        inputs: files that the run reads, which it must not write.

    Raises:
        BadResume: both `replace` and `resume` are true.
        FileExistsError: `file` is there, and is neither replaced nor of the run that is gone on with.
    """
    if resume and replace:
        raise BadResume("resume goes on with what is there, replace throws it away: choose one")
    stopped = resume and path_of(file).exists()  # the file has what had finished then
    check_new(file, replace=replace or stopped, inputs=inputs)
    check_new(path_of(file), replace=True, inputs=inputs)  # what is there is for the journal to judge
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
    """Return what decides how the episodes of a run come out."""
    return {
        "policy": policy.name,
        "policy settings": getattr(policy, "settings", {}),
        "environment": env.env_id,
        "arguments": env.settings,
        "max_steps": env.max_steps,
        "data": env.data,
        "split": env.split,
        "tasks": stable_hash(list(plan.tasks)) if plan.tasks != range(len(plan.tasks)) else len(plan.tasks),
        "attempts": plan.attempts,
        "seed": plan.seed,
    }


def data_files(env_kwargs: Mapping[str, Any] | None) -> list[str]:
    """Return the files and folders that the arguments of an environment name: its data, its corpus, a server's cache.

    Raises `BadData` when the registry of data cannot be read.
    """
    kwargs = env_kwargs or {}
    data, remote = kwargs.get("data"), kwargs.get("remote")
    found = [data.path if isinstance(data, registry.DataSet) else data, kwargs.get("corpus")]
    found += [registry.place(str(data))] if isinstance(data, str | os.PathLike) else []
    found += remote.values() if isinstance(remote, Mapping) else []
    return [os.fspath(one) for one in found if isinstance(one, str | os.PathLike) and os.path.exists(one)]


def maker(env_id: str, kwargs: dict[str, Any]) -> Callable[[], TextEnv]:
    """Return what makes the environment; official data is read and hashed once, not once per environment."""
    if kwargs.get("data") is not None:
        kwargs = {**kwargs, "data": registry.resolve(kwargs["data"])}
    return lambda: make_text_env(env_id, **kwargs)


class _InOrder:
    """Writes episodes in the order of their starts, each as soon as all before it are there."""

    def __init__(self, places: Sequence[tuple[int, int]], write: Callable[[Episode], None] | None) -> None:
        self._write = write
        self._places = {place: number for number, place in enumerate(places)}
        self._next = 0
        self._waiting: dict[int, Episode] = {}

    def add(self, episode: Episode) -> None:
        """Take a finished episode."""
        if self._write is None:
            return
        self._waiting[self._places[episode.task, episode.attempt]] = episode
        while self._next in self._waiting:
            self._write(self._waiting.pop(self._next))
            self._next += 1

    def flush(self) -> None:
        """Write what is waiting for an earlier episode that will not come."""
        for place in sorted(self._waiting):
            assert self._write is not None  # add() keeps nothing without one
            self._write(self._waiting.pop(place))
