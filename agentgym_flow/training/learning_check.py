"""The training part of a report card: what the tiny policy learns when it is trained on the reward of an environment.

The card says whether success rises above what was shown, and whether the policy earns the reward without success.

Run as `python -m agentgym_flow.training.learning_check`. A short warm start, an evaluation, updates, and an evaluation
on the same tasks each have a share of the time. Their sizes follow from the speed, which is measured first.
"""

from __future__ import annotations

import json
import math
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from msgspec import to_builtins
from rich.console import Console
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow.episodes import Episode, LoggedEpisode
from agentgym_flow.errors import AgentGymFlowError, BadSetting
from agentgym_flow.play import EpisodeSpec, Evaluation, paired_difference, rollout
from agentgym_flow.policies import ExpertPolicy
from agentgym_flow.testing.card import Finding, Status, ValidationRequest, serve
from agentgym_flow.testing.card.exploit_search import Trial, surely_positive
from agentgym_flow.testing.card.exploits import EPISODE, FIX, transcript
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.estimate import probe
from agentgym_flow.training.models import quiet
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.run_config import template_of
from agentgym_flow.training.warm_start import clone, demonstrations

T = TypeVar("T")

LEARNS, EXPLOITS = "tiny_policy_learns", "reward_trains_success"
TITLES = {
    LEARNS: ("learning", "The tiny policy learns more than it was shown"),
    EXPLOITS: ("rewards", "A policy trained on the reward does not earn it without success"),
}
"""The findings of this part: name -> section, title."""

EVALUATED = 200
"""The most test tasks to play before and after, sampled."""

_WARM_START, _EVALUATION = 0.25, 0.15
"""The time shares of the warm start and of each evaluation. The rest, after measuring, goes to updates."""

_SHOWN, _WARM_UPDATES, _GROUPS = 40, 60, 16  # maximal demonstrations, updates of the warm start, and groups per batch
_BATCH = 100_000  # words in the prompts of a batch, so that updates with long episodes do not take minutes
_FEWEST_UPDATES = 10  # the batch size leaves time for this many
_LEARNING = 3.0  # the time to play and learn from an episode, in units of playing it
_TRIED_SHOWN, _TRIED = 2, (2, 16)  # demonstrations, and numbers of parallel episodes, for measuring the speed
_AFTER = 2.0  # seconds reserved at the end for computing the results

_SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "template": "compact",
    "credit": "gigpo",
    "credit_settings": '{"outcome": "return"}',  # only rewards: a potential of success would hide their faults
    "threads": 2,
    "validations": 0,
    "save_strategy": "no",
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 1,
    "num_generations": 8,
    "steps_per_generation": 1,
    "max_steps": 2000,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 2,
    "final_lr_ratio": 0.0,
    "logging_steps": 1,
    "num_envs": 256,
}


class _TimeUp(BaseException):
    """The alarm at the end of the time. Not an `Exception`, so that no handler catches it."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise `_TimeUp` in the block after `seconds` seconds."""

    def ring(*_: object) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds), 1.0)  # repeats, because one in a finalizer is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(slots=True)
class _Progress:
    """The progress of the check, for a result at any time.

    Attributes:
        during: the current step.
        taught: what the warm start imitates.
        updates: number of updates since the warm start.
        before: test episodes after the warm start.
        after: episodes on the first of the same tasks after the updates.
        expert: the expert's episodes on the tasks of `after`, if there is an expert.
    """

    during: str = "preparations"
    taught: str = "the expert"
    updates: int = 0
    before: list[Episode] = field(default_factory=list)
    after: list[Episode] = field(default_factory=list)
    expert: list[Episode] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Speed:
    """Measured times, in seconds.

    Attributes:
        demonstration: per demonstration.
        update: per update of the warm start.
        start: fixed cost of playing any number of parallel episodes.
        episode: additional cost per episode.
    """

    demonstration: float
    update: float
    start: float
    episode: float

    def episodes(self, seconds: float) -> int:
        """Return the number of parallel episodes that fit into this time."""
        return int(max(0.0, seconds - self.start) / self.episode)


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a function and its time in seconds."""
    begun = time.monotonic()
    return function(), time.monotonic() - begun


class _Deadline(TrainerCallback):  # type: ignore[misc]
    """Counts updates, and ends training if the time left is too short for another one."""

    def __init__(self, deadline: float, progress: _Progress) -> None:
        self.deadline = deadline
        self.progress = progress
        self.before = time.monotonic()
        self.longest = 0.0

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self.before)
        self.before = now
        self.progress.updates = state.global_step
        control.should_training_stop |= now + self.longest > self.deadline


def plan(request: ValidationRequest) -> list[Finding]:
    """Return the findings of this part, without results."""
    return [_finding(name, "unfinished") for name in TITLES]


def work(request: ValidationRequest) -> Iterator[Finding]:
    """Yield whether the policy has learnt, or how far it got in the time, and whether it exploits the reward."""
    begun = time.monotonic()
    quiet()
    progress = _Progress()
    try:
        with tempfile.TemporaryDirectory() as folder, _alarm(request.seconds - _AFTER):
            _learn(request, Path(folder), begun, progress)
    except _TimeUp:
        pass
    except AgentGymFlowError as error:
        yield _finding(LEARNS, "advice", f"It cannot be trained: {error}", "Fix the error in the message.")
        yield _finding(EXPLOITS, "skipped", "It cannot be trained.")
        return
    yield _result(progress, request.seconds)
    yield _exploit(progress)


def _finding(name: str, status: Status, said: str = "", fix: str = "", **figures: object) -> Finding:
    section, title = TITLES[name]
    return Finding(section, name, title, status, "", said, fix, name == EXPLOITS, figures)


def _configs(request: ValidationRequest, folder: Path, **settings: object) -> Configs:
    if "split" in request.kwargs:
        raise BadSetting("training uses all splits: leave split out of --env-arg")
    settings = {**_SETTINGS, "env_kwargs": json.dumps(dict(request.kwargs)), "output_dir": folder, **settings}
    return parse_configs(["--env_id", request.env_id, *(f"--{name}={value}" for name, value in settings.items())])


def _learn(request: ValidationRequest, folder: Path, begun: float, progress: _Progress) -> None:
    deadline = begun + request.seconds - _AFTER
    with open_run(_configs(request, folder / "speed", **_amounts(1, 1, 2)), Console(quiet=True)) as recipe:
        speed, words = _speed(recipe), _words(recipe)
        with closing(recipe.run.make_env()) as env:
            shown = min(_SHOWN, len(env.drawn_tasks))
    amounts = _affordable(speed, words, shown, request.seconds, deadline - time.monotonic())
    with open_run(_configs(request, folder / "run", **amounts), Console(quiet=True)) as recipe:
        progress.during = "the warm start"
        recipe.clone_behaviour()
        progress.taught = "the expert" if recipe.warm.warm_start_noise < 1 else "random actions"
        progress.during = "the first evaluation"
        play = partial(recipe.evaluator.play_on_main_process, "test")
        progress.before, seconds = _timed(partial(play, recipe.run.eval_episodes))
        progress.during = "the updates"
        recipe.trainer.add_callback(_Deadline(deadline - 1.5 * seconds, progress))
        recipe.train()
        progress.during = "the last evaluation"
        count = max(2, int(len(progress.before) * min(1.0, (deadline - time.monotonic()) / seconds)))
        count = min(count, len(progress.before))
        for half in (slice(0, (count + 1) // 2), slice((count + 1) // 2, count)):  # the first half is a result too
            if half.start < half.stop:
                progress.after += play(count, half)
        with closing(recipe.run.make_env("test")) as env:
            has_expert = env.has_expert
        if has_expert:
            progress.during = "the episodes of the expert"
            specs = [EpisodeSpec(episode.seed, episode.task) for episode in progress.after]
            progress.expert = rollout(ExpertPolicy(), partial(recipe.run.make_env, "test"), specs)


def _amounts(levels: int, updates: int, groups: int) -> dict[str, object]:
    return {
        "warm_start_levels": levels,
        "warm_start_updates": updates,
        "per_device_train_batch_size": _SETTINGS["num_generations"] * groups,
    }


def _speed(recipe: Recipe) -> _Speed:
    """Measure the speed on a few demonstrations, updates and episodes. The recipe must not be used afterwards."""
    run, agent = recipe.run, recipe.agent
    with closing(run.make_env()) as env:
        tasks, noise = min(_TRIED_SHOWN, len(env.drawn_tasks)), recipe.warm.warm_start_noise if env.has_expert else 1.0
    rows, demonstrating = _timed(
        lambda: demonstrations(
            run.make_env, recipe.tokenizer, recipe.template, tasks=tasks, noise=noise, layout=agent.layout
        )
    )
    trial = replace(recipe.warm, warm_start_updates=1)
    for _ in range(2):  # the first one is slower
        _, update = _timed(lambda: clone(recipe.model, rows, trial, pad=recipe.tokenizer.pad_token_id))
    few, many = _TRIED
    _, start = _timed(lambda: recipe.evaluator.play_on_main_process("valid", few))
    played, seconds = _timed(lambda: recipe.evaluator.play_on_main_process("valid", many))
    episode = max((seconds - start) / max(1, len(played) - few), 0.1 * seconds / len(played))
    return _Speed(demonstrating / tasks, update, start, episode)


def _words(recipe: Recipe) -> float:
    """Return the mean number of words in the prompts of an episode."""
    return probe(recipe.run, template_of(recipe.run), recipe.agent.layout, 1).read


def _affordable(speed: _Speed, words: float, shown: int, seconds: float, left: float) -> dict[str, object]:
    """Return the settings that fit into the time shares of `seconds`, of which `left` remain."""
    warm_start = _WARM_START * seconds
    levels = max(1, min(shown, int(warm_start / 3 / max(speed.demonstration, 1e-6))))
    updates = max(1, min(_WARM_UPDATES, int((warm_start - levels * speed.demonstration) / speed.update)))
    update = max(0.0, left - warm_start - 2 * _EVALUATION * seconds) / _FEWEST_UPDATES
    groups = min(speed.episodes(update / _LEARNING), _BATCH / words) / _SETTINGS["num_generations"]
    evaluated = max(_TRIED[-1], min(EVALUATED, speed.episodes(_EVALUATION * seconds)))
    return {**_amounts(levels, updates, max(2, min(_GROUPS, round(groups)))), "eval_episodes": evaluated}


def _result(progress: _Progress, seconds: float) -> Finding:
    updates, count = progress.updates, len(progress.after)
    figures: dict[str, Any] = {"updates": updates}
    if not count:
        said = f"No gain measured in {updates} updates: {seconds:.0f} seconds were over during {progress.during}."
        if progress.before:
            before = Evaluation.of(progress.before, "before")
            said += (
                f" Mean success on {before.tasks} test tasks after imitating {progress.taught}: {before.success:.1%}."
            )
            figures["before"] = before.success
        return _finding(
            LEARNS, "advice", said, "Give more --minutes, or make episodes shorter or faster; see Speed.", **figures
        )
    before, after = Evaluation.of(progress.before[:count], "before"), Evaluation.of(progress.after, "after")
    metric = "success" if before.success or after.success else "score"  # scores may show partial progress
    gain = paired_difference(progress.before[:count], progress.after, metric)
    old, new = getattr(before, metric), getattr(after, metric)
    said = (
        f"Mean {metric} on {before.tasks} test tasks: {old:.1%} after imitating {progress.taught}, {new:.1%} after "
        f"{updates} updates; gain {gain.mean:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]."
    )
    figures |= {"metric": metric, "before": old, "after": new, "gain": list(gain)}
    if gain.low > 0:
        return _finding(LEARNS, "ok", said, **figures)
    fix = (
        "Give more --minutes, easier training tasks or a reward on the way, and check that the observation and "
        "candidates() tell what a good choice depends on."
    )
    said = f"No gain measured in {updates} updates: {said[0].lower()}{said[1:]}"
    return _finding(LEARNS, "advice", said, fix, **figures)


def _exploit(progress: _Progress) -> Finding:
    """Return whether the trained policy earns as much as successes without success, or gains reward and loses success.

    It is compared with the expert's successes on the same tasks, or else with the policy's own.
    """
    after, count = progress.after, len(progress.after)
    before = progress.before[:count]
    if not count:
        return _finding(EXPLOITS, "skipped", "The trained policy was not evaluated in the time.")
    shown = {(one.seed, one.task): one.total_reward for one in progress.expert if one.success}
    own = [one.total_reward for one in [*before, *after] if one.success]
    bars = [shown.get((one.seed, one.task), fmean(own) if own else math.inf) for one in after]
    gain = paired_difference(before, after, "total_reward")
    change = paired_difference(before, after)
    old, new = Evaluation.of(before, "before"), Evaluation.of(after, "after")
    said = (
        f"On {new.tasks} test tasks the mean return went from {old.mean_return:.3g} to {new.mean_return:.3g}, "
        f"and success from {old.success:.1%} to {new.success:.1%}"
    )
    said += f"; successes earn {fmean(bars):.3g}." if math.isfinite(sum(bars)) else "."
    figures: dict[str, Any] = {"return": [old.mean_return, new.mean_return], "success": [old.success, new.success]}
    failed = [(one.total_reward - bar, one) for one, bar in zip(after, bars, strict=True) if not one.success]
    pays = new.success < 0.5 and surely_positive([one.total_reward - bar for one, bar in zip(after, bars, strict=True)])
    if not failed or not (pays or (gain.low > 0 and change.high < 0)):
        return _finding(EXPLOITS, "ok", said, **figures)
    _, worst = max(failed, key=lambda one: one[0])
    trial = Trial.of(worst, "the tiny policy, trained on the reward")
    said += f" The policy fails and is paid, as on task {worst.task}:\n{transcript(trial)}"
    figures[EPISODE] = to_builtins(LoggedEpisode.of(worst))
    return _finding(EXPLOITS, "fail" if pays else "advice", said, FIX, **figures)


if __name__ == "__main__":
    serve(plan, work)
