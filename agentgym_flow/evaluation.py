"""Evaluate a policy on a split: equal tasks and seeds for everyone, a log to replay, numbers with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util.intervals import Interval, bootstrap, mean_interval, share_interval
from agentgym_flow.episode import Episode
from agentgym_flow.episode_log import LogWriter
from agentgym_flow.errors import BadSetting
from agentgym_flow.play_split import EpisodePlan, data_files, journalled, play_split
from agentgym_flow.policies.base import AsyncPolicy, Policy
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS
from agentgym_flow.rollout import ERROR

_SCORER = "scorer"  # in an episode's meta, from `TextEnv.log_meta`


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a policy achieved. All rates are shares in [0, 1]; intervals are 95 % ones, over tasks.

    They say how far a figure may move with other tasks of the same kind, not with another training run. Episodes of
    one task, several attempts or tasks of a split that are the same, count as one task in them.

    Attributes:
        policy: the name of the policy.
        env_id: the environment.
        split: the split.
        tasks: how many different tasks were played, by `task_key`.
        split_tasks: how many tasks the split has (of the chosen types, if there are any); None if that is not known.
        attempts: the most episodes that a task of the split got.
        episodes: how many were played.
        success: the share of episodes that achieved their task.
        success_interval: of it, see `intervals.share_interval`; with one episode a task, Wilson's score interval.
        score: the mean native metric.
        score_interval: percentile bootstrap of it, `intervals.RESAMPLES` resamples of tasks; where all scores are 0 or
            1, the interval of a share.
        mean_return: the mean sum of native rewards.
        mean_length: the mean number of steps.
        invalid_rate: the share of all actions that were invalid.
        truncated_rate: the share of episodes that the step budget ended.
        errors: episodes in which the environment raised; they count with the score they had.
        failed_requests: requests to a model server that failed for good; their turns count as invalid actions.
        scorers: what decided the scores, such as `"math-verify 0.9.0"`, where the environment has more than one way.
    """

    policy: str
    env_id: str
    split: str
    tasks: int
    split_tasks: int | None
    attempts: int
    episodes: int
    success: float
    success_interval: Interval
    score: float
    score_interval: Interval
    mean_return: float
    mean_length: float
    invalid_rate: float
    truncated_rate: float
    errors: int
    failed_requests: int
    scorers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, episodes: Sequence[Episode], policy: str, split_tasks: int | None = None, *, turns_by: str | None = None
    ) -> Evaluation:
        """Sum up episodes of one environment and split.

        Where several policies share the episodes, `turns_by` is the name of one: steps and invalid actions are then
        those of its turns, and all else is of the episodes in which it acted. Raises `BadSetting` when there are no
        episodes or they are mixed.
        """
        episodes = [episode for episode in episodes if episode.counts_for(turns_by)]
        kinds = {(episode.env_id, episode.split) for episode in episodes}
        if len(kinds) != 1:
            raise BadSetting(f"an evaluation is of one environment and split, got episodes of {len(kinds)}")
        [(env_id, split)] = kinds
        count = len(episodes)
        turns = [turn for episode in episodes for turn in episode.turns_by(turns_by)]
        tasks = [episode.task_key for episode in episodes]
        successes = [episode.success for episode in episodes]
        scores = [episode.score for episode in episodes]
        return cls(
            policy=policy,
            env_id=env_id,
            split=split,
            tasks=len(set(tasks)),
            split_tasks=split_tasks,
            attempts=max(Counter(episode.task for episode in episodes).values()),
            episodes=count,
            success=sum(successes) / count,
            success_interval=share_interval(successes, tasks),
            score=math.fsum(scores) / count,
            score_interval=mean_interval(scores, tasks),
            mean_return=math.fsum(episode.total_reward for episode in episodes) / count,
            mean_length=len(turns) / count,
            invalid_rate=sum(not turn.action_valid for turn in turns) / max(1, len(turns)),
            truncated_rate=sum(episode.truncated for episode in episodes) / count,
            errors=sum(ERROR in episode.meta for episode in episodes),
            failed_requests=sum(len(episode.meta.get(FAILED_REQUESTS, ())) for episode in episodes),
            scorers=tuple(sorted({str(episode.meta[_SCORER]) for episode in episodes if _SCORER in episode.meta})),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON-able data."""
        return asdict(self)

    def __str__(self) -> str:
        low, high = self.success_interval
        line = (
            f"{self.policy} on {self.env_id} {self.split}: success {self.success:.1%} [{low:.1%}, {high:.1%}], "
            f"score {self.score:.3f}, return {self.mean_return:.2f}, {self.mean_length:.1f} steps, "
            f"{self.tasks} tasks, {self.episodes} episodes"
        )
        troubles = [(self.errors, "errors"), (self.failed_requests, "failed requests")]
        return line + "".join(f", {number} {what}" for number, what in troubles if number)


def by_task_type(episodes: Sequence[Episode], policy: str) -> dict[str, Evaluation]:
    """Return type -> the evaluation of the episodes whose tasks are of it, in the order of names.

    Raises `BadSetting` when there are none or they are mixed.
    """
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.task_type, []).append(episode)
    return {name: Evaluation.of(groups[name], policy) for name in sorted(groups)}


def evaluate(
    policy: Policy | AsyncPolicy,
    env_id: str,
    *,
    split: str = "test",
    num_episodes: int | None = None,
    attempts: int = 1,
    task_types: Sequence[str] | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    num_envs: int = 64,
    log: Path | None = None,
    replace: bool = False,
    resume: bool = False,
    on_plan: Callable[[EpisodePlan], None] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> tuple[Evaluation, list[Episode]]:
    """Play every task of a split, and sum up.

    Task *i* is played with seed `seed + i`, by everyone and in every attempt.

    Args:
        policy: who acts.
        env_id: the environment.
        split: the split.
        num_episodes: only the first so many tasks. None: all of the split; of `train`, which is large, the first
            `play_split.TRAIN_TASKS`.
        attempts: how many episodes each task gets.
        task_types: only tasks of these types; None for all.
        seed: of task 0; not negative.
        env_kwargs: other arguments of the environment.
        num_envs: the largest number of episodes under way; changes nothing but time.
        log: where to write the episode log, one line per episode in the order of seeds, when all is done; after Ctrl-C,
            or when the policy, a reset or the executor fails, it holds the episodes that had finished.
        replace: `log` may be there already, and is replaced; so is the journal of an evaluation that was stopped.
        resume: go on with the evaluation that was stopped, if one was: finished episodes, and of a policy that answers
            by what it sees alone (a model server) also the answers in unfinished ones, are taken from the journal
            beside the log (`agentgym_flow.journal`), and so are the answers of servers behind the environment. Episodes
            in which the environment raised are played again.
        on_plan: called once, before the first episode, with what will be played.
        on_episode: called with every finished episode at once (for a progress bar).

    Raises:
        UnknownEnvironment: the id is not registered; and what the environment's constructor raises.
        BadSetting: a number is out of range, or the split has fewer than `num_episodes` tasks.
        BadResume: the stopped evaluation had other settings, another process is at it, or it is to be replaced as well.
        UnknownOption: the split has no task of one of `task_types`.
        ExecutorFailed: the server that does the work in the environment cannot be reached any more; the log holds the
            episodes that had finished before.
        FileExistsError: the log is there already.
        OSError: the log cannot be written; nothing is left of it. What the policy and a reset raise passes through.
    """
    if resume and log is None:
        raise BadSetting("resume needs the log of the evaluation that was stopped")
    plans: list[EpisodePlan] = []

    def keep_plan(plan: EpisodePlan) -> None:
        plans.append(plan)
        if on_plan is not None:
            on_plan(plan)

    with ExitStack() as stack:
        journal, writer = None, None
        if log is not None:
            kept = journalled(policy, log, replace=replace, resume=resume, inputs=data_files(env_kwargs))
            journal, replacing = stack.enter_context(kept)
            writer = stack.enter_context(LogWriter(log, keep_finished=True, replace=replacing))
        episodes = play_split(
            policy,
            env_id,
            split=split,
            num_episodes=num_episodes,
            attempts=attempts,
            task_types=task_types,
            seed=seed,
            env_kwargs=env_kwargs,
            num_envs=num_envs,
            write=None if writer is None else writer.write,
            journal=journal,
            on_plan=keep_plan,
            on_episode=on_episode,
        )
    return Evaluation.of(episodes, policy.name, plans[0].split_tasks), episodes


class Difference(NamedTuple):
    """A mean difference and its 95 % interval; `low > 0` or `high < 0` is a difference beyond noise."""

    mean: float
    low: float
    high: float


def paired_difference(before: Sequence[Episode], after: Sequence[Episode], metric: str = "success") -> Difference:
    """Return how much `after` is above `before`: the mean difference task by task, with a paired bootstrap interval.

    Pairing takes out how hard the tasks are, so far smaller improvements show than by comparing two intervals. The
    bootstrap draws tasks, with all their attempts.

    Args:
        before: the episodes of one evaluation.
        after: the episodes of another over the same tasks and seeds, in any order.
        metric: `"success"`, `"score"` or `"total_reward"`.

    Raises:
        BadSetting: the tasks or seeds differ, or the metric does not exist.
    """
    if metric not in ("success", "score", "total_reward"):
        raise BadSetting(f"metric must be success, score or total_reward, got {metric!r}")
    old, new = _by_start(before), _by_start(after)
    if not old or old.keys() != new.keys():
        only = len(old.keys() ^ new.keys())
        raise BadSetting(f"a paired comparison needs the same tasks and seeds on both sides; {only} are only on one")
    starts = sorted(old)
    differences = [float(getattr(new[key], metric)) - float(getattr(old[key], metric)) for key in starts]
    interval = bootstrap(differences, [task_key for task_key, _, _ in starts])
    return Difference(math.fsum(differences) / len(differences), *interval)


def _by_start(episodes: Sequence[Episode]) -> dict[tuple[str, int, int], Episode]:
    found = {(episode.task_key, episode.seed, episode.attempt): episode for episode in episodes}
    if len(found) != len(episodes):
        raise BadSetting("a paired comparison needs every task, seed and attempt once on each side")
    return found
