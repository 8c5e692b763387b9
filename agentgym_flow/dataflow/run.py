"""A training run whose episodes are played by the workers of a dataflow: `agentgym-flow train --dataflow`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from rich.console import Console

from agentgym_flow._util.files import whole
from agentgym_flow.dataflow.batches.source import LeasedGroups
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.engines.choice import Engine, engine_of
from agentgym_flow.dataflow.stage import actor_setup
from agentgym_flow.errors import BadSetting
from agentgym_flow.training.config import TRANSFORMERS, Configs
from agentgym_flow.training.group_source import OwnRollout
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.results import Results
from agentgym_flow.training.run_folder import check_same

SETTINGS = "dataflow.yaml"
"""The file in a run's folder with the settings of its dataflow."""

POLICY = "policy"
"""The entry of that file with the name of the policy that the run trains."""

FOLDER = "dataflow"
"""The folder in a run's folder with the manager's journal and weights."""


def train(configs: Configs, config: FlowConfig, engine: str, policy: str, console: Console) -> Results | None:
    """Run all steps of a recipe, with the rollouts of training done by workers; return the results.

    If several policies share the episodes, this run's policy is not evaluated, because alone it would take all turns.
    There are no results then; `team.Team.evaluate` evaluates all policies together.

    Args:
        configs: the settings of the run.
        config: those of its dataflow.
        engine: `local`, `ray`, `ray://...` or the address of a manager; see `engines.choice`.
        policy: the name of the policy that is trained.
        console: where progress is shown.

    Raises:
        BadSetting: the settings contradict each other, or those of a resumed run differ.
        FlowDown: the manager cannot be reached.
        NoWorkers: no worker has called for longer than the deadline.
    """
    check(configs)
    if config.num_envs is None and config.workers:
        config = replace(config, num_envs=math.ceil(configs[2].num_envs / config.workers))
    with open_run(configs, console) as recipe, _engine(recipe, config, engine, policy) as running:
        _replace_rollout(recipe, config, policy, running)  # checks the settings before any work
        alone = len(config.policies(policy)) == 1
        if running is not None:
            running.start(config.workers)  # they start meanwhile, and wait for the first batch
        recipe.clone_behaviour()
        if alone:
            recipe.evaluate("before")
        recipe.train()
        if running is not None:
            running.close()  # evaluation needs the processors
        if alone:
            recipe.evaluate("after")
            return recipe.finish()
        recipe.finish_without_evaluation()
        console.print("Evaluate all policies together: agentgym-flow dataflow evaluate RUN RUN ...", soft_wrap=True)
        return None


def check(configs: Configs) -> None:
    """Raise `BadSetting` if workers cannot play the episodes of a run with these settings."""
    if configs[2].generator != TRANSFORMERS:
        raise BadSetting(
            "generator: workers run the model themselves, with Transformers, because they hold several versions of the "
            "weights at a time: leave generator out"
        )


@contextmanager
def _engine(recipe: Recipe, config: FlowConfig, engine: str, policy: str) -> Iterator[Engine | None]:
    """Yield the engine in the main process, and None in the others."""
    folder = recipe.folder.path
    recipe.together.on_main_process(partial(_settle, folder / SETTINGS, {POLICY: policy, **config.lasting()}))
    with ExitStack() as stack:
        running: list[Engine] = []
        recipe.together.on_main_process(
            lambda: running.append(stack.enter_context(engine_of(engine, config, folder / FOLDER)))
        )
        yield running[0] if running else None


def _settle(path: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a run's dataflow; raise `BadSetting` if it had others before."""
    if path.is_file():
        try:
            before: Any = yaml.safe_load(path.read_text("utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise BadSetting(f"resume: the settings of the dataflow cannot be read ({error})") from error
        check_same(path, before, settings)
    with whole(path) as partial_file:
        partial_file.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def _replace_rollout(recipe: Recipe, config: FlowConfig, policy: str, running: Engine | None) -> None:
    trainer = recipe.trainer
    assert isinstance(trainer.source, OwnRollout)  # as in all recipes
    if len(config.policies(policy)) > 1:
        trainer.acts_as = policy
    dtype = torch.bfloat16 if recipe.agent.mixed_precision == "bf16" else None
    trainer.source = LeasedGroups(
        trainer.source,
        None if running is None else running.flow,
        partial(actor_setup, (recipe.run, recipe.warm, recipe.agent), trainer.model, recipe.tokenizer, dtype),
        config,
        policy=policy,
        dtype=dtype,
    )
