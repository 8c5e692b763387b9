"""Run one cell of a comparison with the steps of the recipe: warm start, training, controls, evaluation.

A run whose summary has the status `finished` is never repeated. An interrupted run starts again, so that its
core-seconds measure one complete run.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.training.group_source import stop_on
from agentgym_flow.training.model_evaluation import problems
from agentgym_flow.training.models import load_model, quiet
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.rows import TrainingRow
from agentgym_flow.training.run_config import template_of
from agentgym_flow.training.run_folder import SUMMARY, RunFolder, check_same
from agentgym_flow.training.warm_start import clone, demonstrations, with_text
from baselines.comparison.outcome import Outcome, Point
from baselines.comparison.plan import CONTINUED, EVERYTHING, REFERENCES, WARM_START, Cell, Plan, Setting
from baselines.comparison.played import figures_of, make_outcome
from baselines.comparison.references import play_reference

if TYPE_CHECKING:
    from torch import Tensor

    from agentgym_flow.training.config import AgentConfig

_PROBED = 10  # updates to time for estimating how many fit into a budget


def finished(plan: Plan, cell: Cell, output: Path) -> Outcome | None:
    """Return the outcome of a finished cell; None if it is not finished.

    Raises `BadSetting` naming the first difference if it was run with other settings.
    """
    summary = output / cell.folder / SUMMARY
    try:
        found = json.loads(summary.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if found.get("status") != "finished":
        return None
    try:
        check_same(summary.parent, found["made_with"], plan.made_with(cell), defaults={})
    except BadSetting as error:
        raise BadSetting(f"{error} (another --out keeps both)") from None
    return Outcome.of(found["outcome"])


def run(plan: Plan, cell: Cell, output: Path, budget: float = 0.0) -> Outcome:
    """Run a cell in its folder under `output` and return the outcome.

    Args:
        plan: the comparison; the warm start of the cell must be finished, unless the cell is one.
        cell: the cell to run.
        output: the folder of all runs.
        budget: core-seconds of training for a control that clones.

    Raises:
        AgentGymFlowError: what a recipe raises, and `TrainingFailed` if a logged episode fails verification.
        KeyboardInterrupt: after Ctrl-C, at the end of the batch.
    """
    quiet()
    place, setting = output / cell.folder, plan.setting(cell)
    shutil.rmtree(place, ignore_errors=True)
    if cell.name in REFERENCES:
        return _reference(plan, cell, place)
    is_control = cell.name not in setting.algorithms
    configs = setting.plain_configs(cell.seed, place) if is_control else setting.configs(cell.name, cell.seed, place)
    begun = time.process_time()
    shown: Sequence[TrainingRow] = ()
    if cell.name == EVERYTHING:  # settings that share a warm start share environment and prompts
        shown = _all_demonstrations(plan.setting(Cell(setting.warm_start, WARM_START, cell.seed)))
    with open_run(configs, Console(quiet=True, force_terminal=False)) as recipe:
        cloned = output / Cell(setting.warm_start, WARM_START, cell.seed).folder
        if cell.name == WARM_START:
            learnt = _warm_start(recipe)
        elif cell.name == CONTINUED:
            _begin_with(recipe, cloned)
            learnt = _clone_for(recipe, _same_demonstrations(recipe), budget)
        elif cell.name == EVERYTHING:
            learnt = _clone_for(recipe, shown, budget)
        else:
            learnt = _train(recipe, cloned)
        outcome = _outcome(recipe, cell, plan.split, learnt, begun)
        recipe.folder.summarise("finished", {"made_with": plan.made_with(cell), "outcome": asdict(outcome)})
    return outcome


def _reference(plan: Plan, cell: Cell, place: Path) -> Outcome:
    folder = RunFolder(place)
    with folder.guard():
        outcome = play_reference(plan.setting(cell), cell, plan.split)
        folder.summarise("finished", {"made_with": plan.made_with(cell), "outcome": asdict(outcome)})
    return outcome


class Learning(NamedTuple):
    """Core-seconds of training, optimizer steps, validation success during training, and generated tokens."""

    seconds: float
    updates: int
    curve: list[Point]
    tokens: int = 0


def _warm_start(recipe: Recipe) -> Learning:
    begun = time.process_time()
    recipe.clone_behaviour()
    learning = time.process_time() - begun
    assert recipe.cloned is not None  # a plan has no settings without a warm start
    valid = recipe.evaluator.validate(recipe.run.validation_episodes)
    return Learning(learning, len(recipe.cloned.losses), [Point(0, 0, valid, 0.0)])


def _begin_with(recipe: Recipe, cloned: Path) -> None:
    """Load the weights of a warm start as a resumed recipe does."""
    shutil.copytree(cloned / recipe.folder.warm_start.name, recipe.folder.warm_start)
    recipe.clone_behaviour()


class _LearningClock(TrainerCallback):  # type: ignore[misc]
    """Records the core-seconds of training after each optimizer step, before any validation."""

    def __init__(self) -> None:
        self._begun = time.process_time()
        self.seconds: dict[int, float] = {}

    def on_step_end(self, args: AgentConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Record the time."""
        self.seconds[state.global_step] = time.process_time() - self._begun


def _train(recipe: Recipe, cloned: Path) -> Learning:
    _begin_with(recipe, cloned)
    begun = time.process_time()
    clock = _LearningClock()
    recipe.trainer.add_callback(clock)
    recipe.train()
    learning = time.process_time() - begun
    tokens, curve = 0.0, []
    for record in recipe.metrics.records:  # one per batch
        tokens += (record["turns"] or 0) * (record["completions/mean_length"] or 0) + (record.get("forks/tokens") or 0)
        valid = record.get("valid_success")
        if valid is not None:
            seconds = clock.seconds[int(record["step"] or 0)]
            curve.append(Point(int(record["env_steps"] or 0), int(record["episodes"] or 0), valid, seconds))
    return Learning(learning, int(recipe.trainer.state.global_step), curve, round(tokens))


# ---------------------------------------------------------------- controls
class _BestWeights:
    """Measures validation success, and stores the weights with the highest.

    The recipe's generator keeps distributions until a training step announces new weights, which cloning does not do;
    so every validation has a generator of its own.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self.measured: list[float] = []
        self.weights: dict[str, Tensor] = {}

    def __call__(self) -> float:
        success = self._recipe.evaluator.validate_on_main_process(self._recipe.run.validation_episodes)
        if success > max(self.measured, default=-1.0):
            self.weights = copy.deepcopy(self._recipe.model.state_dict())
        self.measured.append(success)
        return success


def _clone_for(recipe: Recipe, examples: Sequence[TrainingRow], budget: float) -> Learning:
    """Clone for about `budget` core-seconds, including validations; keep the weights of the best validation."""
    times = recipe.run.validations
    config = replace(recipe.warm, warm_start_validations=max(1, times))
    if config.warm_start_text_weight:
        examples = [with_text(row, config.warm_start_text_weight) for row in examples]
    precision = recipe.cloning_precision
    begun = time.process_time()
    recipe.evaluator.validate_on_main_process(recipe.run.validation_episodes)
    validated = time.process_time()
    pad = recipe.tokenizer.pad_token_id
    probed = replace(config, warm_start_updates=_PROBED)
    clone(copy.deepcopy(recipe.model), examples, probed, pad=pad, precision=precision)
    update = (time.process_time() - validated) / _PROBED
    updates = max(1, round((budget - times * (validated - begun)) / update))
    best = _BestWeights(recipe)
    begun = time.process_time()
    config = replace(config, warm_start_updates=updates)
    seed = 2**32 + recipe.agent.seed  # of no run, because a warm start with this seed had the same minibatches
    clone(recipe.model, examples, config, pad=pad, seed=seed, validate=best, precision=precision)
    learning = time.process_time() - begun
    recipe.model.load_state_dict(best.weights)
    return Learning(learning, updates, [Point(0, 0, max(best.measured))])


def _same_demonstrations(recipe: Recipe) -> list[TrainingRow]:
    """Return the demonstrations of the warm start."""
    warm, agent = recipe.warm, recipe.agent
    return demonstrations(
        recipe.run.make_env,
        recipe.tokenizer,
        recipe.template,
        tasks=warm.warm_start_levels,
        noise=warm.warm_start_noise,
        seed=agent.seed,
        stop=stop_on(agent.stop_when),
        layout=agent.layout,
        max_new_tokens=agent.max_completion_length or 1,
        imitate_noise=warm.warm_start_imitate_noise,
    )


@lru_cache(maxsize=1)
def _all_demonstrations(setting: Setting) -> list[TrainingRow]:
    """Return noise-free expert demonstrations on every training task once: the same for all seeds."""
    run, _, agent = setting.plain_configs()
    template = template_of(run)
    _, tokenizer = load_model(run.model, template)
    with closing(run.make_env()) as env:
        tasks = env.num_tasks
    return demonstrations(
        run.make_env,
        tokenizer,
        template,
        tasks=tasks,
        noise=0.0,
        layout=agent.layout,
        max_new_tokens=agent.max_completion_length or 1,
    )


# ---------------------------------------------------------------- outcome
def _outcome(recipe: Recipe, cell: Cell, split: str, learnt: Learning, begun: float) -> Outcome:
    """Play the tasks of the split once, verify the logs, and return the outcome."""
    recipe.evaluate("after", split)
    evaluation = recipe.evaluations["after"]
    for problem in problems(recipe.evaluator, [evaluation]):
        raise TrainingFailed(f"{recipe.folder.path}: {problem}")
    sampled, greedy = evaluation.sampled.episodes, evaluation.greedy.episodes
    figures = [figures_of(episodes, partial(recipe.run.make_env, split)) for episodes in (sampled, greedy)]
    return make_outcome(
        cell,
        sampled,
        greedy,
        figures={name: [of_each[name] for of_each in figures] for name in figures[0]},
        core_seconds=time.process_time() - begun,
        learning_seconds=learnt.seconds,
        updates=learnt.updates,
        curve=learnt.curve,
        tokens=learnt.tokens,
    )
