"""Evaluate a policy on a split: equal tasks and seeds for everyone, a log to replay, numbers with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentgym_flow.core import TextEnv, check_integer, check_positive
from agentgym_flow.data import resolve
from agentgym_flow.envs import make_text_env
from agentgym_flow.episode import Episode
from agentgym_flow.episode_log import LogWriter
from agentgym_flow.errors import BadSetting, ExecutorFailed
from agentgym_flow.policies.base import Policy
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS
from agentgym_flow.rollout import ERROR, Start, rollout

RESAMPLES = 10_000
"""Resamples of a bootstrap."""

_Z = 1.959963984540054  # the 97.5 % point of the normal distribution
_DRAWS_AT_A_TIME = 1 << 22
_BOOTSTRAP_KEY = 20_240_229  # any fixed number: equal episodes, equal intervals

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a policy achieved. All rates are shares in [0, 1]; intervals are 95 % ones, over tasks.

    They say how far a figure may move with other tasks of the same kind, not with another training run.

    Attributes:
        policy: the name of the policy.
        env_id: the environment.
        split: the split.
        episodes: how many were played.
        success: the share of episodes that achieved their task.
        success_interval: Wilson's score interval of it (Wilson, 1927).
        score: the mean native metric.
        score_interval: percentile bootstrap of it, `RESAMPLES` resamples of episodes.
        mean_return: the mean sum of native rewards.
        mean_length: the mean number of steps.
        invalid_rate: the share of all actions that were invalid.
        truncated_rate: the share of episodes that the step budget ended.
        errors: episodes in which the environment raised; they count with the score they had.
        failed_requests: requests to a model server that failed for good; their turns count as invalid actions.
    """

    policy: str
    env_id: str
    split: str
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

    @classmethod
    def of(cls, episodes: Sequence[Episode], policy: str) -> Evaluation:
        """Sum up episodes of one environment and split. Raises `BadSetting` when there are none or they are mixed."""
        kinds = {(episode.env_id, episode.split) for episode in episodes}
        if len(kinds) != 1:
            raise BadSetting(f"an evaluation is of one environment and split, got episodes of {len(kinds)}")
        [(env_id, split)] = kinds
        count = len(episodes)
        turns = [turn for episode in episodes for turn in episode.turns]
        successes = sum(episode.success for episode in episodes)
        scores = [episode.score for episode in episodes]
        return cls(
            policy=policy,
            env_id=env_id,
            split=split,
            episodes=count,
            success=successes / count,
            success_interval=wilson(successes, count),
            score=math.fsum(scores) / count,
            score_interval=bootstrap(scores),
            mean_return=math.fsum(episode.total_reward for episode in episodes) / count,
            mean_length=len(turns) / count,
            invalid_rate=sum(not turn.action_valid for turn in turns) / max(1, len(turns)),
            truncated_rate=sum(episode.truncated for episode in episodes) / count,
            errors=sum(ERROR in episode.meta for episode in episodes),
            failed_requests=sum(len(episode.meta.get(FAILED_REQUESTS, ())) for episode in episodes),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON-able data."""
        return asdict(self)

    def __str__(self) -> str:
        low, high = self.success_interval
        line = (
            f"{self.policy} on {self.env_id} {self.split}: success {self.success:.1%} [{low:.1%}, {high:.1%}], "
            f"score {self.score:.3f}, return {self.mean_return:.2f}, {self.mean_length:.1f} steps, "
            f"{self.episodes} episodes"
        )
        troubles = [(self.errors, "errors"), (self.failed_requests, "failed requests")]
        return line + "".join(f", {number} {what}" for number, what in troubles if number)


def evaluate(
    policy: Policy,
    env_id: str,
    *,
    split: str = "test",
    num_episodes: int = 500,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    num_envs: int = 64,
    log: Path | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> tuple[Evaluation, list[Episode]]:
    """Play the first `num_episodes` tasks of a split and sum up.

    Episode *i* is task *i* with seed `seed + i`. Past the end of the split the tasks come again as the next attempt.

    Args:
        policy: who acts.
        env_id: the environment.
        split: the split.
        num_episodes: how many episodes; at least 1.
        seed: the seed of the first episode; not negative.
        env_kwargs: other arguments of the environment.
        num_envs: the largest number of episodes under way; changes nothing but time.
        log: where to write the episode log, one line per episode in the order of seeds, when all is done; after Ctrl-C,
            or when the policy, a reset or the executor fails, it holds the episodes that had finished.
        on_episode: called with every finished episode at once (for a progress bar).

    Raises:
        UnknownEnvironment: the id is not registered; and what the environment's constructor raises.
        BadSetting: a number is out of range.
        ExecutorFailed: the server that does the work in the environment cannot be reached any more; the log holds the
            episodes that had finished before.
        OSError: the log cannot be written; nothing is left of it. What the policy and a reset raise passes through.
    """
    with LogWriter(log, keep_finished=True) if log is not None else nullcontext() as writer:
        episodes = play_split(
            policy,
            env_id,
            split=split,
            num_episodes=num_episodes,
            seed=seed,
            env_kwargs=env_kwargs,
            num_envs=num_envs,
            write=None if writer is None else writer.write,
            on_episode=on_episode,
        )
    return Evaluation.of(episodes, policy.name), episodes


def play_split(
    policy: Policy,
    env_id: str,
    *,
    split: str,
    num_episodes: int,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    num_envs: int = 64,
    write: Callable[[Episode], None] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play the first `num_episodes` tasks of a split; what `evaluate` sums up and `collect` writes down.

    Args and errors are those of `evaluate`; `write` is called with the episodes in the order of their seeds, with each
    as soon as all before it are there. When the playing ends early it gets those that had finished.
    """
    num_episodes, seed = check_positive("num_episodes", num_episodes), check_integer("seed", seed, 0)
    make_env = _maker(env_id, {**(env_kwargs or {}), "split": split})
    with closing(make_env()) as env:
        num_tasks = env.num_tasks
    starts = [Start(seed + i, i % num_tasks, i // num_tasks) for i in range(num_episodes)]
    in_order = _InOrder(seed, write)

    def finish(episode: Episode) -> None:
        error = episode.meta.get(ERROR, {})
        if error.get("class") == ExecutorFailed.__name__:  # all further episodes would be lost as well
            raise ExecutorFailed(error["message"])
        episode.meta["policy"] = policy.name
        in_order.add(episode)
        if on_episode is not None:
            on_episode(episode)

    try:
        return rollout(policy, make_env, starts, num_envs=num_envs, on_episode=finish)
    finally:
        in_order.flush()


def _maker(env_id: str, kwargs: dict[str, Any]) -> Callable[[], TextEnv]:
    """Return what makes the environment; official data is read and hashed once, not once per environment."""
    if kwargs.get("data") is not None:
        kwargs = {**kwargs, "data": resolve(kwargs["data"])}
    return lambda: make_text_env(env_id, **kwargs)


class _InOrder:
    """Writes episodes in the order of their seeds, each as soon as all before it are there."""

    def __init__(self, first_seed: int, write: Callable[[Episode], None] | None) -> None:
        self._next = first_seed
        self._write = write
        self._waiting: dict[int, Episode] = {}

    def add(self, episode: Episode) -> None:
        """Take a finished episode."""
        if self._write is None:
            return
        self._waiting[episode.seed] = episode
        while self._next in self._waiting:
            self._write(self._waiting.pop(self._next))
            self._next += 1

    def flush(self) -> None:
        """Write what is waiting for an earlier episode that will not come."""
        for seed in sorted(self._waiting):
            assert self._write is not None  # add() keeps nothing without one
            self._write(self._waiting.pop(seed))


def wilson(successes: int, count: int) -> Interval:
    """Return Wilson's 95 % score interval of a share (E. B. Wilson, JASA 22, 1927), within [0, 1]."""
    share = successes / count
    scale = 1 + _Z**2 / count
    centre = (share + _Z**2 / (2 * count)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    # At the ends the bound is the end itself; rounding must not move it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == count else centre + half
    return low, high


def bootstrap(values: Sequence[float]) -> Interval:
    """Return the 95 % percentile bootstrap interval of the mean of `values` (Efron, 1979), equal for equal values."""
    sample = np.asarray(values, dtype=np.float64)
    means = _resampled_means(sample)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def bootstrap_of_runs(values: npt.ArrayLike) -> Interval:
    """Return the 95 % interval of the mean of `values` (runs, tasks), for other runs and other tasks of the same kinds.

    Every resample draws runs and tasks anew, independently of each other (A. Owen, Annals of Applied Statistics 1,
    2007), because the same tasks are played in all runs. It draws one fewer of each than there are (J. Rao and C. Wu,
    JASA 83, 1988): as many would make a handful of runs look more alike than they are. A single run stands for itself,
    and the interval then says nothing of other runs.

    Raises `BadSetting` when `values` is empty or has not two dimensions.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise BadSetting(f"the values of runs must be a table of runs and tasks, got shape {table.shape}")
    bits = np.random.Philox(key=_BOOTSTRAP_KEY)
    runs, tasks = (max(1, size - 1) for size in table.shape)
    rows = max(1, _DRAWS_AT_A_TIME // (runs + tasks))
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, rows):
        some = means[start : start + rows]
        chosen = _draws(bits, (len(some), runs), len(table))
        share = (chosen[:, :, None] == np.arange(len(table))).mean(axis=1)
        by_task = np.take_along_axis(share @ table, _draws(bits, (len(some), tasks), table.shape[1]), axis=1)
        some[:] = by_task.mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _resampled_means(sample: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    bits = np.random.Philox(key=_BOOTSTRAP_KEY)
    count = len(sample)
    rows = max(1, _DRAWS_AT_A_TIME // count)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, rows):
        some = means[start : start + rows]
        some[:] = sample[_draws(bits, (len(some), count), count)].mean(axis=1)
    return means


def _draws(bits: np.random.Philox, shape: tuple[int, int], below: int) -> npt.NDArray[np.intp]:
    # Raw words of a bit generator: unlike `Generator.integers`, their stream is promised across NumPy versions.
    words = bits.random_raw(shape[0] * shape[1]) >> np.uint64(32)
    return ((words * np.uint64(below)) >> np.uint64(32)).astype(np.intp).reshape(shape)


class Difference(NamedTuple):
    """A mean difference and its 95 % interval; `low > 0` or `high < 0` is a difference beyond noise."""

    mean: float
    low: float
    high: float


def paired_difference(before: Sequence[Episode], after: Sequence[Episode], metric: str = "success") -> Difference:
    """Return how much `after` is above `before`: the mean difference task by task, with a paired bootstrap interval.

    Pairing takes out how hard the tasks are, so far smaller improvements show than by comparing two intervals.

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
    differences = [float(getattr(new[key], metric)) - float(getattr(old[key], metric)) for key in sorted(old)]
    return Difference(math.fsum(differences) / len(differences), *bootstrap(differences))


def _by_start(episodes: Sequence[Episode]) -> dict[tuple[str, int, int], Episode]:
    found = {(episode.task_key, episode.seed, episode.attempt): episode for episode in episodes}
    if len(found) != len(episodes):
        raise BadSetting("a paired comparison needs every task, seed and attempt once on each side")
    return found
