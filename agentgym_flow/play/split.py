"""Play the tasks of a split: plan the episodes, play those that the journal does not have, and write them in order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentgym_flow import data as registry
from agentgym_flow._util.files import check_new
from agentgym_flow.core import TextEnv, check_integer, check_positive, make_text_env, stable_hash, tasks_of_types
from agentgym_flow.episodes import Episode, LogWriter, read_log
from agentgym_flow.errors import BadResume, BadSetting, ExecutorFailed
from agentgym_flow.play.groups import ERROR, EpisodeSpec, rollout
from agentgym_flow.play.journal import Journal, Place, check_same, path_of
from agentgym_flow.policies.base import AsyncPolicy, Policy
from agentgym_flow.policies.spending import USAGE, LimitedPolicy, add_usage

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
        known: the number of episodes that the stopped run has finished.
    """

    tasks: Sequence[int]
    split_tasks: int
    attempts: int
    seed: int
    share: slice
    known: int = 0

    @property
    def places(self) -> list[Place]:
        """The task and the attempt of each episode, in order."""
        return [(task, attempt) for attempt in range(self.attempts) for task in self.tasks][self.share]


@dataclass(frozen=True, slots=True)
class Play:
    """What a policy plays, and the file that its episodes are written to. `evaluate` explains the fields.

    Attributes:
        policy: the policy that plays.
        env_id: the id of the environment.
        split: the split.
        num_episodes: the number of tasks, the first of the split; None for the default.
        attempts: the number of episodes per task.
        task_types: the types of the tasks; None for all.
        seed: the seed of task 0.
        env_kwargs: other arguments of the environment.
        num_envs: the largest number of episodes played in parallel.
        share: the part of the plan to play.
        file: the file to write, beside which a journal is kept; None to write nothing.
        replace: replace an existing file and journal.
        resume: continue a stopped run, if there is one.
        max_tokens_total: the largest number of tokens of a model server's answers; None for no limit.
        max_cost: the largest cost of these answers in dollars; None for no limit.
        on_plan: called once with the plan, before the first episode.
        on_episode: called with every episode as soon as it finishes.
    """

    policy: Policy | AsyncPolicy
    env_id: str
    split: str
    num_episodes: int | None = None
    attempts: int = 1
    task_types: Sequence[str] | None = None
    seed: int = 0
    env_kwargs: Mapping[str, Any] | None = None
    num_envs: int = 64
    share: slice = field(default_factory=lambda: slice(None))
    file: Path | None = None
    replace: bool = False
    resume: bool = False
    max_tokens_total: int | None = None
    max_cost: float | None = None
    on_plan: Callable[[EpisodePlan], None] | None = None
    on_episode: Callable[[Episode], None] | None = None

    def maker(self) -> Callable[[], TextEnv]:
        """Return a function that makes the environment. Official data is resolved only once."""
        kwargs = {**(self.env_kwargs or {}), "split": self.split}
        if kwargs.get("data") is not None:
            kwargs["data"] = registry.resolve(kwargs["data"])
        return lambda: make_text_env(self.env_id, **kwargs)

    def plan(self, env: TextEnv) -> EpisodePlan:
        """Return the episodes to play in `env`. Raises `BadSetting` or `UnknownOption` as `evaluate` does."""
        attempts, seed = check_positive("attempts", self.attempts), check_integer("seed", self.seed, 0)
        tasks = env.drawn_tasks if self.task_types is None else tasks_of_types(env, self.task_types)
        if self.num_episodes is None:
            count = min(TRAIN_TASKS, len(tasks)) if env.split == "train" else len(tasks)
        else:
            count = check_positive("num_episodes", self.num_episodes)
        if count > len(tasks):
            such = " of these types" if len(tasks) < env.num_tasks else ""
            raise BadSetting(
                f"split {env.split!r} has {len(tasks)} tasks{such}, so {count} episodes (num_episodes) would play some "
                "twice: leave the number out to play each once, or set attempts to play each several times"
            )
        return EpisodePlan(tasks[:count], len(tasks), attempts, seed, self.share)

    def check_file(self) -> bool:
        """Return whether the run replaces the existing file: because it may, or because a stopped run goes on with it.

        Raises:
            BadResume: both `replace` and `resume` are true.
            FileExistsError: the file exists, and is neither to be replaced nor from the stopped run.
        """
        assert self.file is not None
        if self.resume and self.replace:
            raise BadResume("resume continues with existing files, and replace deletes them: choose one")
        stopped = self.resume and path_of(self.file).exists()  # then the file has the episodes that had finished
        inputs = data_files(self.env_kwargs)
        check_new(self.file, replace=self.replace or stopped, inputs=inputs)
        check_new(path_of(self.file), replace=True, inputs=inputs)  # the journal itself checks whether it may be used
        return self.replace or stopped

    def check_complete(self) -> None:
        """Raise `BadResume` if the log in `file` does not have exactly the episodes that `play_split` would play.

        Settings of the policy are not compared, because a log does not contain them. Raises `BadLog` if it is not one.
        """
        assert self.file is not None
        with closing(self.maker()()) as env:
            plan = self.plan(env)
            new = json.loads(json.dumps(_settings(self.policy, plan, env)))
        places: list[Place] = []
        for logged in read_log(self.file):
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
            check_same({**new, **old}, new, f"{self.file}")
        tasks = sorted({task for task, _ in places})
        attempts = max((attempt + 1 for _, attempt in places), default=0)
        old = {"tasks": _named(tasks), "attempts": attempts, "episodes": len(places)}
        check_same({**new, **old}, new | {"episodes": len(plan.places)}, f"{self.file}")


def play_split(play: Play, write: Callable[[LogWriter, Episode], None] = LogWriter.write) -> list[Episode]:
    """Play, and return the episodes in the order of the plan. `evaluate` and `collect` use this function.

    Episodes in the journal of a stopped run are not played again. `write` writes an episode to the file; it is called
    in the order of the plan, as early as possible. After an interruption it writes all finished episodes. The journal
    is removed at the end unless something raised.

    Raises the errors of `evaluate`.
    """
    journal: Journal | None = None

    def close_journal(raised: type[BaseException] | None, *_: object) -> None:
        if journal is not None:
            journal.close(done=raised is None)

    with ExitStack() as stack:
        writer = None
        if play.file is not None:
            replacing = play.check_file()
            stack.push(close_journal)  # after the file was closed
            writer = stack.enter_context(LogWriter(play.file, keep_finished=True, replace=replacing))
        make_env = play.maker()
        env = stack.enter_context(closing(make_env()))
        plan = play.plan(env)
        if play.file is not None:
            settings = _settings(play.policy, plan, env)
            journal = Journal(play.file, settings, resume=play.resume, replace=play.replace)
        known = {} if journal is None else journal.episodes(env)
        if play.on_plan is not None:
            play.on_plan(replace(plan, known=len(known)))
        if len(known) < len(plan.places):
            env.external.check_servers()
        env.external.keep_answers(journal)
        try:
            in_order = _OrderedWriter(plan.places, None if writer is None else partial(write, writer))
            return _play(play, make_env, plan, known, journal, in_order)
        finally:
            env.external.keep_answers(None)


def _play(
    play: Play,
    make_env: Callable[[], TextEnv],
    plan: EpisodePlan,
    known: Mapping[Place, Episode],
    journal: Journal | None,
    in_order: _OrderedWriter,
) -> list[Episode]:
    """Play the episodes of the plan that are not `known`; return all episodes in order."""
    settings, of_prompts = getattr(play.policy, "settings", {}), ("template", "template_settings", "layout")
    prompted = {name: settings[name] for name in of_prompts if name in settings}  # exports render them anew

    def take(episode: Episode) -> None:
        in_order.add(episode)
        if play.on_episode is not None:
            play.on_episode(episode)

    def finish(episode: Episode) -> None:
        error = episode.meta.get(ERROR, {})
        if error.get("class") == ExecutorFailed.__name__:  # all further episodes would fail as well
            raise ExecutorFailed(error["message"])
        episode.meta |= {"policy": play.policy.name, **prompted}
        if journal is not None:
            journal.add_episode(episode)
        take(episode)

    player = play.policy if journal is None else journal.recording(play.policy)
    if play.max_tokens_total is not None or play.max_cost is not None:
        player = limited = LimitedPolicy(player, play.max_tokens_total, play.max_cost)
        for episode in known.values():
            add_usage(limited.spent, episode.meta.get(USAGE, {}))
    specs = [EpisodeSpec(plan.seed + task, task, n) for task, n in plan.places if (task, n) not in known]
    try:
        for episode in known.values():
            take(episode)
        played = rollout(player, make_env, specs, num_envs=play.num_envs, on_episode=finish)
    finally:
        in_order.flush()
    every = {**known, **{(episode.task, episode.attempt): episode for episode in played}}
    return [every[place] for place in plan.places]


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


class _OrderedWriter:
    """Writes episodes in the order of the plan, each as soon as all earlier ones have finished."""

    def __init__(self, places: Sequence[Place], write: Callable[[Episode], None] | None) -> None:
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
