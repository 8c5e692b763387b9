"""The outcome of one run of a comparison from its episodes on the test tasks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from platform import python_version
from statistics import fmean
from typing import Any

from agentgym_flow import __version__
from agentgym_flow.core import TextEnv, stable_hash
from agentgym_flow.episodes import Episode
from agentgym_flow.rewards.structure import ABLATION, StructureScore, correctness_of, workflow_of
from baselines.comparison.outcome import Outcome
from baselines.comparison.plan import Cell

DESIGN_REWARD, FULL_DESIGN = "R ({})", "full design ({})"
"""Metrics of designs by profile of `StructureScore`: the mean reward, and the fraction with S = 1."""

_SCORES = {"executed": StructureScore("executed"), "paper": StructureScore("paper")}


def make_outcome(
    cell: Cell,
    sampled: Sequence[Episode],
    greedy: Sequence[Episode],
    *,
    core_seconds: float,
    figures: Mapping[str, Sequence[float]],
    **others: Any,
) -> Outcome:
    """Return the outcome of a cell from its episodes on the test tasks; `others` are further fields of `Outcome`."""
    return Outcome(
        **asdict(cell),
        sampled=_marks(sampled),
        greedy=_marks(greedy),
        tasks=stable_hash([episode.task_key for episode in sampled])[:16],
        versions=_versions(),
        date=datetime.now(UTC).date().isoformat(),
        score=fmean(episode.score for episode in sampled),
        greedy_score=fmean(episode.score for episode in greedy) if greedy else None,
        core_seconds=core_seconds,
        figures=figures,
        **{"learning_seconds": 0.0, "updates": 0, "curve": [], **others},
    )


def figures_of(episodes: Sequence[Episode], make_env: Callable[[], TextEnv]) -> dict[str, float]:
    """Return metrics of an environment other than success and score, as means over the episodes by name.

    For environments with workflows these are R and the fraction of complete designs, in the profiles of
    `StructureScore` that training may use. The episodes are replayed, because logs do not contain workflows.
    """
    with closing(make_env()) as env:
        if ABLATION not in env.optional_info:
            return {}
        ends = [_end(env, episode) for episode in episodes]
    return dict(_design_figures(ends))


def _design_figures(ends: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    workflows = [workflow_of(info) for info in ends]
    correct = [correctness_of(told, info["score"]) for told, info in zip(workflows, ends, strict=True)]
    for profile, score in _SCORES.items():
        rewards = [score.reward(told, worth) for told, worth in zip(workflows, correct, strict=True)]
        yield DESIGN_REWARD.format(profile), fmean(rewards)
        yield FULL_DESIGN.format(profile), fmean(score.design(told) >= 1.0 for told in workflows)


def _end(env: TextEnv, episode: Episode) -> dict[str, Any]:
    """Replay an episode; return its last `info`, including the ablation of its workflow.

    An episode has no turns if its first prompt exceeds the limit of the model; its workflow is then the initial one.
    """
    start: dict[str, Any] = {"seed": episode.seed, "options": {"task": episode.task}}
    if not episode.turns:
        return _with_ablation(env).reset(**start)[-1]
    env.reset(**start)
    *earlier, last = episode.turns
    for turn in earlier:
        env.step(turn.action)
    return _with_ablation(env).step(last.action)[-1]


def _with_ablation(env: TextEnv) -> TextEnv:
    """Return a copy that computes ablations. Each costs as much as a few steps, so only ends of episodes have one."""
    clone = copy.deepcopy(env)
    clone.request_info([ABLATION])
    return clone


def _marks(episodes: Sequence[Episode]) -> str:
    return "".join("1" if episode.success else "0" for episode in episodes)


def _versions() -> dict[str, str]:
    others = {name: version(name) for name in ("torch", "transformers", "trl", "numpy")}
    return {"agentgym_flow": __version__, "python": python_version(), **others}
