"""Let a policy play a split, and measure it.

Every policy plays the same tasks and seeds. An evaluation writes a log to replay, and has metrics with intervals.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from agentgym_flow._util.intervals import Interval, bootstrap, bounded_interval, mean_interval, share_interval
from agentgym_flow.core import text_env_class
from agentgym_flow.episodes import TRUNCATED_BY, Episode
from agentgym_flow.errors import BadSetting
from agentgym_flow.play.attempts import AtK, at_k
from agentgym_flow.play.groups import ERROR
from agentgym_flow.play.split import EpisodePlan, Play, play_split
from agentgym_flow.policies import AsyncPolicy, Policy
from agentgym_flow.policies.base import CONTEXT
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS, TOOL_CALLS
from agentgym_flow.policies.spending import USAGE, add_usage

_SCORER = "scorer"  # in an episode's meta, from `TextEnv.log_meta`


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of a policy. All rates are shares in [0, 1]. Intervals are 95 % intervals over tasks.

    The intervals show how much a metric may vary with other tasks of the same kind. They do not cover the variation
    between training runs. All episodes of a task (several attempts, or equal tasks of a split) count as one task.

    Attributes:
        policy: the name of the policy.
        env_id: the id of the environment.
        split: the split.
        tasks: the number of different tasks played, by `task_key`.
        split_tasks: the number of tasks in the split (of the chosen types, if any); None if unknown.
        repeated: the number of played tasks of the split that equal another one, by `task_key`.
        official: whether the tasks are official data.
        attempts: the largest number of episodes of one task of the split.
        episodes: the number of episodes played.
        success: the success rate: the share of episodes that achieved their task.
        success_interval: its interval, see `intervals.share_interval`; with one episode per task, the Wilson score
            interval.
        score: the mean native metric.
        score_interval: its percentile bootstrap interval with `intervals.RESAMPLES` resamples of tasks; if all scores
            are 0 or 1, the interval of a share.
        mean_return: the mean sum of native rewards.
        mean_length: the mean number of steps.
        invalid_rate: the share of all actions that were invalid.
        truncated_rate: the share of episodes that the step budget ended.
        context_rate: the share of episodes that ended because they no longer fitted into the model's context; they
            count with the score at that point.
        cut_rate: the share of all completions that were cut at the token limit.
        empty_rate: the share of all completions that were empty, as those of models that only reason; without failed
            requests and calls of tools.
        errors: the number of episodes in which the environment raised; they count with the score at that point.
        failed_requests: the number of requests to a model server that failed finally; their turns count as invalid
            actions.
        scorers: the methods that computed the scores, such as `"math-verify 0.9.0"`, if the environment has several.
        bad_calls: reason -> the number of turns in which a model that acts by calling tools gave no action; see
            `prompts.tools`.
        usage: the sums of `episode.meta["usage"]`: `prompt` tokens (of them `cached`), `completion` tokens (of them
            `reasoning`), answers `cut` at the token limit, and `seconds` of requests, many of which run at a time;
            with prices also the `cost` in dollars; empty if no server counted tokens.
        failures: reason -> the number of failed episodes, the most frequent first; see `why_failed`.
        at_k: pass@k, pass^k and the best of k, if every task has several attempts; see `attempts.at_k`.
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
    context_rate: float
    cut_rate: float
    empty_rate: float
    errors: int
    failed_requests: int
    scorers: tuple[str, ...] = ()
    bad_calls: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    repeated: int = 0
    official: bool = False
    at_k: tuple[AtK, ...] = ()

    @classmethod
    def of(
        cls, episodes: Sequence[Episode], policy: str, split_tasks: int | None = None, *, turns_by: str | None = None
    ) -> Evaluation:
        """Summarise episodes of one environment and split.

        If several policies share the episodes, `turns_by` is the name of one policy: steps and invalid actions then
        count only its turns, and all other metrics count the episodes in which it acted. Raises `BadSetting` if there
        are no episodes, or if they are of several environments or splits.
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
        failed = sum(len(episode.meta.get(FAILED_REQUESTS, ())) for episode in episodes)
        noted = [(id(episode), one) for episode in episodes for one in episode.meta.get(TOOL_CALLS, ())]
        called = {(place, one["turn"]) for place, one in noted if one.get("calls")}
        places = [(id(episode), n, t) for episode in episodes for n, t in enumerate(episode.turns) if t.is_by(turns_by)]
        empty = sum(not turn.output.text.strip() and (place, n) not in called for place, n, turn in places)
        usage: dict[str, float] = {}
        for episode in episodes:
            add_usage(usage, episode.meta.get(USAGE, {}))
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
            context_rate=sum(episode.meta.get(TRUNCATED_BY) == CONTEXT for episode in episodes) / count,
            cut_rate=sum(turn.output.cut for turn in turns) / max(1, len(turns)),
            empty_rate=max(0, empty - failed) / max(1, len(turns)),
            errors=sum(ERROR in episode.meta for episode in episodes),
            failed_requests=failed,
            scorers=tuple(sorted({str(episode.meta[_SCORER]) for episode in episodes if _SCORER in episode.meta})),
            bad_calls=dict(Counter(one["bad"] for _, one in noted if "bad" in one)),
            usage=usage,
            failures=failures_of(episodes),
            repeated=len({episode.task for episode in episodes}) - len(set(tasks)),
            official=any(episode.data for episode in episodes),
            at_k=at_k(episodes),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain, JSON-serialisable data."""
        return asdict(self)

    def __str__(self) -> str:
        low, high = self.success_interval
        line = (
            f"{self.policy} on {self.env_id} {self.split}: success {self.success:.1%} [{low:.1%}, {high:.1%}], "
            f"score {self.score:.3f}, return {self.mean_return:.2f}, {self.mean_length:.1f} steps, "
            f"{self.tasks} tasks, {self.episodes} episodes"
        )
        limits = {"out of context": self.context_rate, "cut answers": self.cut_rate, "empty answers": self.empty_rate}
        line += "".join(f", {rate:.1%} {what}" for what, rate in limits.items() if rate)
        troubles = [(self.errors, "errors"), (self.failed_requests, "failed requests")]
        return line + "".join(f", {number} {what}" for number, what in troubles if number)


def failures_of(episodes: Sequence[Episode]) -> dict[str, int]:
    """Return reason -> the number of failed episodes, the most frequent first."""
    return dict(Counter(why for episode in episodes if (why := why_failed(episode))).most_common())


def why_failed(episode: Episode) -> str:
    """Return the reason for which an episode failed; empty if it succeeded.

    It is the first that holds of: the environment raised (`lost episode`), the model's context was full
    (`out of context`), the reasons of the environment (`EnvCard.failures`, such as `wrong purchase`), half of the turns
    had no answer (`failed requests`), a cut answer (`cut answers`) or an invalid action (`invalid actions`), the second
    half of at least four turns reached no new state (`loop`), the step budget was spent (`step budget`). Any other
    end is `wrong end` or, if the episode did not end, `unfinished`.
    """
    if episode.success:
        return ""
    turns, half = episode.turns, max(1, len(episode.turns) / 2)
    rules = text_env_class(episode.env_id).card.failures if episode.env_id in gym.registry else {}
    requests = episode.meta.get(FAILED_REQUESTS)  # the remarks of a log may be anything
    failed = len(requests) if isinstance(requests, list) else 0
    seen = set(episode.state_keys[: len(turns) // 2 + 1])
    found = {
        "lost episode": ERROR in episode.meta,
        "out of context": episode.meta.get(TRUNCATED_BY) == CONTEXT,
        **{why: bool(turns) and rule(episode) for why, rule in rules.items()},
        "failed requests": failed >= half,
        "cut answers": sum(turn.output.cut for turn in turns) >= half,
        "invalid actions": sum(not turn.action_valid for turn in turns) >= half,
        "loop": len(turns) >= 4 and seen.issuperset(episode.state_keys),
        "step budget": episode.truncated,
        "wrong end": episode.terminated,
    }
    return next((why for why, holds in found.items() if holds), "unfinished")


def by_task_type(episodes: Sequence[Episode], policy: str) -> dict[str, Evaluation]:
    """Return task type -> the evaluation of its episodes, sorted by type.

    Raises `BadSetting` if the episodes are of several environments or splits.
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
    log: str | os.PathLike[str] | None = None,
    replace: bool = False,
    resume: bool = False,
    max_tokens_total: int | None = None,
    max_cost: float | None = None,
    on_plan: Callable[[EpisodePlan], None] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> tuple[Evaluation, list[Episode]]:
    """Evaluate a policy on the tasks of a split; return the results and the episodes.

    Task *i* is played with seed `seed + i`, for every policy and in every attempt.

    Args:
        policy: the policy to evaluate.
        env_id: the id of the environment.
        split: the split.
        num_episodes: play only the first `num_episodes` tasks. None: all tasks of the split, or the first
            `play_split.TRAIN_TASKS` of `train`, which is large.
        attempts: the number of episodes per task.
        task_types: play only tasks of these types; None for all.
        seed: the seed of task 0, a non-negative integer.
        env_kwargs: other arguments of the environment.
        num_envs: the largest number of episodes played in parallel. It changes only the speed, not the results.
        log: the file for the episode log, with one line per episode in the order of seeds. It is written at the end.
            After Ctrl-C, or if the policy, a reset or the executor fails, it contains the finished episodes.
        replace: replace an existing `log`, and the journal of a stopped evaluation.
        resume: continue a stopped evaluation, if there is one. Finished episodes are taken from the journal next to the
            log (`play.journal`), and so are recorded answers of servers behind the environment. If the answers
            of a policy depend only on its inputs (a model server), its answers in unfinished episodes are taken from
            the journal too. Episodes in which the environment raised are played again.
        max_tokens_total: stop when the answers of a model server have taken this many tokens, those of the stopped
            evaluation included; None for no limit. Answers to requests that are under way still count.
        max_cost: the same for their cost in dollars; the policy needs `prices`.
        on_plan: called once with the plan, before the first episode.
        on_episode: called with every episode as soon as it finishes, for example for a progress bar.

    Raises:
        UnknownEnvironment: the id is not registered. Errors of the environment's constructor propagate.
        BadSetting: a number is out of range, or the split has fewer than `num_episodes` tasks.
        BadResume: the stopped evaluation had other settings, another process is running it, or `replace` is also set.
        UnknownOption: the split has no task of one of `task_types`.
        BudgetSpent: `max_tokens_total` or `max_cost` was reached; the log contains the episodes that finished before.
        ExecutorFailed: the server behind the environment has become unreachable; the log contains the episodes that
            finished before.
        FileExistsError: the log exists already.
        OSError: the log cannot be written; no partial log remains. Errors of the policy and of a reset propagate.
    """
    play = Play(
        policy,
        env_id,
        split,
        num_episodes,
        attempts,
        task_types,
        seed,
        env_kwargs,
        num_envs,
        file=None if log is None else Path(log),
        replace=replace,
        resume=resume,
        max_tokens_total=max_tokens_total,
        max_cost=max_cost,
        on_plan=on_plan,
        on_episode=on_episode,
    )
    return evaluate_play(play)


def evaluate_play(play: Play) -> tuple[Evaluation, list[Episode]]:
    """Return the results of a policy and its episodes. Raises the errors of `evaluate`."""
    if play.resume and play.file is None:
        raise BadSetting("resume needs the log of the evaluation that was stopped")
    plans: list[EpisodePlan] = []

    def keep_plan(plan: EpisodePlan) -> None:
        plans.append(plan)
        if play.on_plan is not None:
            play.on_plan(plan)

    episodes = play_split(dataclasses.replace(play, on_plan=keep_plan))
    return Evaluation.of(episodes, play.policy.name, plans[0].split_tasks), episodes


class Difference(NamedTuple):
    """A mean difference and its 95 % interval. The difference is significant if `low > 0` or `high < 0`."""

    mean: float
    low: float
    high: float


def paired_difference(before: Sequence[Episode], after: Sequence[Episode], metric: str = "success") -> Difference:
    """Return the mean difference of `after` minus `before` over tasks, with a paired 95 % interval.

    Pairing removes the variation in difficulty between tasks, so it detects much smaller improvements than a comparison
    of two intervals. Tasks are the samples, with all their attempts. The interval of success and score is
    `intervals.bounded_interval`, which is never of width 0; that of returns, which have no bounds, is a bootstrap's.

    Args:
        before: the episodes of one evaluation.
        after: the episodes of another evaluation of the same tasks and seeds, in any order.
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
    tasks = [task_key for task_key, _, _ in starts]
    if metric == "total_reward":
        interval = bootstrap(differences, tasks)
    else:
        interval = bounded_interval(differences, tasks, (-1.0, 1.0))
    return Difference(math.fsum(differences) / len(differences), *interval)


def _by_start(episodes: Sequence[Episode]) -> dict[tuple[str, int, int], Episode]:
    found = {(episode.task_key, episode.seed, episode.attempt): episode for episode in episodes}
    if len(found) != len(episodes):
        raise BadSetting("a paired comparison needs every task, seed and attempt once on each side")
    return found
