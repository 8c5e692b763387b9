"""The part of a report card that trains: whether the tiny policy learns more in an environment than it was shown.

Run as `python -m agentgym_flow.training.learning_check`. A short warm start, an evaluation, updates until the time is
up, and an evaluation on the same tasks.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import AgentGymFlowError, BadSetting
from agentgym_flow.evaluation import paired_difference
from agentgym_flow.testing.card.findings import Finding, Status
from agentgym_flow.testing.card.parts import Request, serve
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.estimate import probe
from agentgym_flow.training.recipe import Recipe, opened
from agentgym_flow.training.run import quiet
from agentgym_flow.training.vocabulary import profile_of

TITLE = "The tiny policy learns more than it was shown"

EVALUATED, FEWEST = 200, 40
"""The most and the fewest test tasks that are played before and after, sampled and greedy."""

_BATCH = 100_000  # words in the prompts of one batch, so that updates do not take minutes where episodes are long
_TRIED = 20  # episodes that tell how long an evaluation takes
_EVALUATION = 0.12  # the share of the time that an evaluation may take
_SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "profile": "compact",
    "threads": 2,
    "validations": 0,
    "save_strategy": "no",
    "warm_start_updates": 60,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 20,
    "num_generations": 8,
    "steps_per_generation": 1,
    "max_steps": 2000,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 2,
    "final_lr_ratio": 0.0,
    "logging_steps": 1,
    "num_envs": 256,
}


class _Until(TrainerCallback):  # type: ignore[misc]
    """Ends training when the time that is left would not do for another update."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.before = time.monotonic()
        self.longest = 0.0

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self.before)
        self.before = now
        control.should_training_stop |= now + self.longest > self.deadline


def plan(request: Request) -> list[Finding]:
    """Return what will be found out, as a finding without a result."""
    return [_finding("unfinished")]


def work(request: Request) -> Iterator[Finding]:
    """Yield whether the policy has learnt."""
    begun = time.monotonic()
    quiet()
    try:
        with tempfile.TemporaryDirectory() as folder:
            configs = _configs(request, Path(folder))
            with opened(configs, Console(quiet=True)) as recipe:
                yield _learnt(recipe, begun + request.seconds)
    except AgentGymFlowError as error:
        yield _finding("advice", f"It cannot be trained: {error}", "Mend what the message says.")


def _finding(status: Status, said: str = "", mend: str = "", **figures: object) -> Finding:
    return Finding("learning", "tiny_policy_learns", TITLE, status, "", said, mend, False, figures)


def _configs(request: Request, folder: Path) -> Configs:
    env = make_text_env(request.env_id, **{"split": "train", **request.kwargs})
    shown = min(40, len(env.drawn_tasks))
    env.close()
    if "split" in request.kwargs:
        raise BadSetting("training uses all splits: leave split out of --env-arg")
    settings = {
        **_SETTINGS,
        "env_kwargs": json.dumps(dict(request.kwargs)),
        "output_dir": folder / "run",
        "warm_start_levels": shown,
        "eval_episodes": EVALUATED,
    }
    line = ["--env_id", request.env_id, *(f"--{name}={value}" for name, value in settings.items())]
    run, _, agent = parse_configs([*line, "--per_device_train_batch_size=8"])
    words = probe(run, profile_of(run), agent.layout, 1).read  # of an episode
    groups = max(2, min(16, round(_BATCH / (8 * words))))
    return parse_configs([*line, f"--per_device_train_batch_size={8 * groups}"])


def _learnt(recipe: Recipe, deadline: float) -> Finding:
    recipe.clone()
    begun = time.monotonic()
    recipe.examiner.validate_alone(_TRIED)
    an_episode = (time.monotonic() - begun) / _TRIED
    affordable = int(_EVALUATION * (deadline - begun) / (2 * an_episode))
    recipe.run.eval_episodes = max(FEWEST, min(EVALUATED, affordable))
    begun = time.monotonic()
    recipe.examine("before")
    evaluation = time.monotonic() - begun
    recipe.trainer.add_callback(_Until(deadline - 1.5 * evaluation))
    recipe.learn()
    recipe.examine("after")
    before, after = recipe.examinations["before"].sampled, recipe.examinations["after"].sampled
    gain = paired_difference(before.episodes, after.episodes)
    metric = "success"
    if not before.success and not after.success:  # then the score may say more
        metric, gain = "score", paired_difference(before.episodes, after.episodes, "score")
    old, new = getattr(before.evaluation, metric), getattr(after.evaluation, metric)
    batches = recipe.trainer.state.global_step
    said = (
        f"Mean {metric} on {before.evaluation.tasks} test tasks: {old:.1%} after imitating "
        f"{'the expert' if recipe.warm.warm_start_noise < 1 else 'random actions'}, {new:.1%} after {batches} updates; "
        f"gain {gain.mean:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]."
    )
    figures = {"metric": metric, "before": old, "after": new, "updates": batches, "gain": list(gain)}
    if gain.low > 0:
        return _finding("ok", said, **figures)
    mend = (
        "No gain shows in this time. Give more --minutes, easier training tasks or a reward on the way, and check that "
        "the observation and candidates() tell what a good choice depends on."
    )
    return _finding("advice", said, mend, **figures)


if __name__ == "__main__":
    serve(plan, work)
