"""A training run whose episodes are played by the workers of a dataflow: `agentgym-flow train --dataflow`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
import yaml  # type: ignore[import-untyped]
from rich.console import Console

from agentgym_flow._util.files import write_atomically
from agentgym_flow.dataflow.batches.source import LeasedGroups
from agentgym_flow.dataflow.bookkeeping.manager import hosted
from agentgym_flow.dataflow.config import NUM_ENVS, FlowConfig
from agentgym_flow.dataflow.local_engine import LocalEngine
from agentgym_flow.dataflow.network.client import HttpFlow, read_token
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.dataflow.stage import actor_setup
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.training.config import TRANSFORMERS, Configs
from agentgym_flow.training.group_source import OwnRollout
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.results import Results
from agentgym_flow.training.run_folder import check_same

if TYPE_CHECKING:
    from agentgym_flow.dataflow.ray_engine import RayEngine


SETTINGS = "dataflow.yaml"
"""The file in a run's folder with the settings of its dataflow."""

POLICY = "policy"
"""The entry of that file with the name of the policy that the run trains."""

FOLDER = "dataflow"
"""The folder in a run's folder with the manager's journal and weights."""

LOCAL, RAY, ADDRESSES = "local", "ray", ("http://", "https://")
"""Engines run the manager and the workers: beside the trainer, on Ray, or behind an address.

`local`           the manager in the trainer's process, workers as processes on this machine; the default
`ray`, `ray:...`  both as actors of a Ray cluster: a new one on this machine, or the one at an address
`http://...`      a running manager (`agentgym-flow dataflow serve`); workers join by themselves
"""

CONNECT = 10.0
"""Seconds for the first answer of a manager."""


def train(configs: Configs, config: FlowConfig, engine: str, policy: str, console: Console) -> Results | None:
    """Run all steps of a recipe, with the rollouts of training done by workers; return the results.

    If several policies share the episodes, this run's policy is not evaluated, because alone it would take all turns.
    There are no results then; `team.Team.evaluate` evaluates all policies together.

    Args:
        configs: the settings of the run.
        config: those of its dataflow.
        engine: `local`, `ray`, `ray://...` or the address of a manager; see `LOCAL`.
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
    recipe.processes.on_main_process(partial(_settle, folder / SETTINGS, {POLICY: policy, **config.lasting()}))
    with ExitStack() as stack:
        running: list[Engine] = []
        recipe.processes.on_main_process(
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
    with write_atomically(path) as partial_file:
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


class Engine(Protocol):
    """A manager, and workers if it starts any."""

    @property
    def flow(self) -> Flow:
        """The manager."""

    def start(self, workers: int | None) -> None:
        """Start `workers` workers; None: as many as there is room for."""

    def close(self) -> None:
        """End the workers, and everything else that was started."""


@contextmanager
def engine_of(name: str, config: FlowConfig, folder: Path) -> Iterator[Engine]:
    """Yield the engine of this name; the caller starts its workers.

    Args:
        name: see `LOCAL`.
        config: the settings of the dataflow.
        folder: where a manager that belongs to the run keeps its journal and weights.

    Raises:
        UnknownOption: there is no such engine.
        BadSetting: another manager has the folder open, or there is no token for an address.
        FlowDown: no manager answers at the address.
        MissingExtra: Ray is not installed.
    """
    if name == LOCAL:
        if config.workers is None:
            raise BadSetting("only a Ray cluster can choose the number of workers: set workers to a number")
        options: list[Any] = ["--num-envs", config.num_envs or NUM_ENVS, "--versions", config.versions]
        options += ["--deadline", config.deadline, "--stay"]  # the engine ends them
        with (
            hosted(folder, config) as manager,
            LocalEngine(manager, options=[*map(str, options)], deadline=config.deadline) as local,
        ):
            yield local
    elif name.startswith(ADDRESSES):
        with closing(RemoteEngine(name, config)) as remote:
            yield remote
    elif name == RAY or name.startswith(f"{RAY}:"):
        with _on_ray(name, config, folder) as cluster:
            yield cluster
    else:
        raise UnknownOption.among(name, (LOCAL, RAY, "http://HOST:PORT"), "engine says where the manager is.")


def _on_ray(name: str, config: FlowConfig, folder: Path) -> RayEngine:
    from agentgym_flow.dataflow.ray_engine import RayEngine

    address = name.removeprefix(RAY).removeprefix(":") or None
    if address is not None and address.startswith("//"):
        address = f"{RAY}:{address}"
    run = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    # A resumed run finds its manager by the namespace.
    return RayEngine(folder, config, address=address, namespace=f"agentgym_flow-{run}")


class RemoteEngine:
    """A manager behind an address; its token is in the environment.

    Args:
        url: the address.
        config: the settings of the dataflow.

    Raises:
        BadSetting: the settings ask for workers, which this engine cannot start, or there is no token.
        FlowDown: the manager does not answer.
    """

    def __init__(self, url: str, config: FlowConfig) -> None:
        if config.workers:
            raise BadSetting(
                f"workers of the manager at {url} join by themselves: set workers to 0, and start them with "
                f"agentgym-flow worker --join {url}"
            )
        self.flow = HttpFlow(url, read_token(), deadline=CONNECT)
        self.flow.status()
        self.flow.deadline = config.deadline

    def start(self, workers: int | None) -> None:
        """Do nothing: workers join by themselves."""

    def close(self) -> None:
        """Close the connections."""
        self.flow.close()
