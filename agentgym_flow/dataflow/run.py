"""A training run whose episodes are played by the workers of a dataflow, `agentgym-flow train --dataflow`; and teams.

A team are policies that share episodes, each trained by a run of its own. `Team` evaluates them together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
import yaml  # type: ignore[import-untyped]
from rich.console import Console

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import settings_in
from agentgym_flow.dataflow.batches import LeasedGroups
from agentgym_flow.dataflow.bookkeeping.manager import hosted
from agentgym_flow.dataflow.config import NUM_ENVS, FlowConfig, acting, check_turns
from agentgym_flow.dataflow.local_engine import LocalEngine
from agentgym_flow.dataflow.network.client import HttpFlow, read_token
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.dataflow.stage import actor_setup, turn_router
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadSetting, UnknownOption, shown
from agentgym_flow.play import Evaluation, evaluation
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.training.config import SERVERS, TRANSFORMERS, Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.conversation import checked_date, write_date, write_settings
from agentgym_flow.training.group_source import OwnRollout
from agentgym_flow.training.models import is_adapter, load_model
from agentgym_flow.training.policy import ModelPolicy, transformers_generator
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.results import Results
from agentgym_flow.training.run_config import mapping, template_of
from agentgym_flow.training.run_folder import CONFIG, VOCABULARY, check_same

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
        BadSetting: the settings contradict each other, or those of a resumed run differ; or several policies share the
            episodes, and the engine does not have an address.
        FlowDown: the manager cannot be reached.
        NoWorkers: no worker has called for longer than the deadline.
    """
    generators = generators_of_workers(configs, config)
    alone = len(config.policies(policy)) == 1
    if not alone and not engine.startswith(ADDRESSES):
        raise BadSetting(
            f"engine {engine} has a manager for one run, and the runs of {', '.join(acting(config.turns))} share one: "
            "start agentgym-flow dataflow serve FOLDER, and give each run --engine http://HOST:PORT"
        )
    if config.num_envs is None and config.most_workers:
        config = replace(config, num_envs=math.ceil(configs[2].num_envs / config.most_workers))
    with (
        open_run(configs, console, TRANSFORMERS) as recipe,  # it evaluates while engines have weights of the past
        _engine(recipe, config, engine, policy, generators) as running,
    ):
        source = _replace_rollout(recipe, config, policy, running)  # checks the settings before any work
        if running is not None:
            running.start(config.workers)  # they start meanwhile, and wait for the first batch
        if not alone and recipe.begins:  # a resumed run opens the stream where it goes on
            recipe.processes.on_main_process(partial(source.open, 0))
        recipe.clone_behaviour(None if alone else turn_router(config.turns))
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


def generators_of_workers(configs: Configs, config: FlowConfig) -> list[str]:
    """Return the servers of each worker that is started, if they are to be shared out; else an empty list.

    Adapters of several workers fit on one server. Whole weights do not, so each worker gets servers of its own. Raises
    `BadSetting` if there are too few.
    """
    chosen, workers = configs[2].generator, config.most_workers
    if not chosen.startswith(SERVERS) or configs[0].lora or is_adapter(configs[0].model) or not workers:
        return []
    urls = chosen.split(",")
    if len(urls) < workers:
        raise BadSetting(
            f"generator: {workers} workers cannot share {len(urls)} servers, because each replaces a server's whole "
            f"weights: use at least {workers} servers, workers: {len(urls)}, or adapters (--lora)"
        )
    return [",".join(urls[number::workers]) for number in range(workers)]


@contextmanager
def _engine(
    recipe: Recipe, config: FlowConfig, engine: str, policy: str, generators: Sequence[str]
) -> Iterator[Engine | None]:
    """Yield the engine in the main process, and None in the others."""
    folder = recipe.folder.path
    recipe.processes.on_main_process(partial(_settle, folder / SETTINGS, {POLICY: policy, **config.lasting()}))
    with ExitStack() as stack:
        running: list[Engine] = []
        recipe.processes.on_main_process(
            lambda: running.append(stack.enter_context(engine_of(engine, config, folder / FOLDER, generators)))
        )
        yield running[0] if running else None


def _settle(path: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a run's dataflow; raise `BadSetting` if it had others before."""
    if path.is_file():
        before = settings_in(path, BadSetting)
        if not before:
            raise BadSetting(f"resume: there are no settings in {path}")
        check_same(path, before, settings, FlowConfig().lasting())
    with write_atomically(path) as partial_file:
        partial_file.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def _replace_rollout(recipe: Recipe, config: FlowConfig, policy: str, running: Engine | None) -> LeasedGroups:
    trainer = recipe.trainer
    assert isinstance(trainer.source, OwnRollout)  # as in all recipes
    if len(config.policies(policy)) > 1:
        trainer.acts_as = policy
    dtype = torch.bfloat16 if recipe.agent.mixed_precision == "bf16" else None
    trainer.source = source = LeasedGroups(
        trainer.source,
        None if running is None else running.flow,
        partial(actor_setup, (recipe.run, recipe.warm, recipe.agent), trainer.model, recipe.tokenizer, dtype),
        config,
        policy=policy,
        dtype=dtype,
    )
    return source


class Engine(Protocol):
    """A manager, and workers if it starts any."""

    @property
    def flow(self) -> Flow:
        """The manager."""

    def start(self, workers: int | Mapping[str, int] | None) -> None:
        """Start `workers` workers; None: as many as there is room for; a `min` and a `max`: as many as are needed."""

    def close(self) -> None:
        """End the workers, and everything else that was started."""


@contextmanager
def engine_of(name: str, config: FlowConfig, folder: Path, generators: Sequence[str] = ()) -> Iterator[Engine]:
    """Yield the engine of this name; the caller starts its workers.

    Args:
        name: see `LOCAL`.
        config: the settings of the dataflow.
        folder: where a manager that belongs to the run keeps its journal and weights.
        generators: of the workers that it starts, see `generators_of_workers`; empty for that of the run.

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
            LocalEngine(
                manager, options=[*map(str, options)], generators=generators, deadline=config.deadline
            ) as local,
        ):
            yield local
    elif name.startswith(ADDRESSES):
        with closing(RemoteEngine(name, config)) as remote:
            yield remote
    elif name == RAY or name.startswith(f"{RAY}:"):
        with _on_ray(name, config, folder, generators) as cluster:
            yield cluster
    else:
        raise UnknownOption.among(name, (LOCAL, RAY, "http://HOST:PORT"), "engine says where the manager is.")


def _on_ray(name: str, config: FlowConfig, folder: Path, generators: Sequence[str]) -> RayEngine:
    from agentgym_flow.dataflow.ray_engine import RayEngine

    address = name.removeprefix(RAY).removeprefix(":") or None
    if address is not None and address.startswith("//"):
        address = f"{RAY}:{address}"
    run = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    # A resumed run finds its manager by the namespace.
    return RayEngine(folder, config, address=address, namespace=f"agentgym_flow-{run}", generators=generators)


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

    def start(self, workers: int | Mapping[str, int] | None) -> None:
        """Do nothing: workers join by themselves."""

    def close(self) -> None:
        """Close the connections."""
        self.flow.close()


BEFORE, AFTER = MOMENTS = ("before", "after")
"""With the weights before and after training."""


@dataclass(frozen=True)
class TeamMember:
    """A run that trained one policy of a team.

    Attributes:
        path: its folder.
        policy: the name of the policy.
        turns: the policy that acts in each turn.
        configs: its settings.
    """

    path: Path
    policy: str
    turns: tuple[str, ...]
    configs: Configs

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the run in a folder. Raises `BadSetting` if it did not train a policy of a team."""
        if not (path / SETTINGS).is_file():
            raise BadSetting(f"{path} is not a run with a dataflow")
        flow = settings_in(path / SETTINGS, BadSetting)
        policy, turns = flow.get(POLICY), flow.get("turns") or []
        try:
            check_turns(turns)
            if not isinstance(policy, str | None):
                raise BadSetting(f"{POLICY} must be the name of a policy, got {shown(policy)}")
        except BadSetting as error:
            raise BadSetting(f"{path / SETTINGS} is not as training wrote it: {error}; restore it") from None
        if len(acting(turns)) < 2 or policy is None:
            raise BadSetting(f"{path} trained a policy that does not share its episodes: see its report")
        return cls(path, policy, tuple(turns), parse_configs(["--config", str(path / CONFIG)]))

    def model_at(self, moment: str) -> str:
        """Return the path of the weights at one of `MOMENTS`. Raises `BadSetting` if they do not exist yet."""
        if moment == BEFORE:
            cloned = self.path / "warm_start"
            return str(cloned) if cloned.is_dir() else self.configs[0].model
        if not (self.path / "checkpoint").is_dir():
            raise BadSetting(f"{self.path} has no checkpoint yet: wait for its end, or resume it")
        return str(self.path / "checkpoint")


class Team:
    """Policies that share episodes.

    Args:
        runs: the folders of the runs, one for each policy.

    Raises:
        BadSetting: a policy is missing or occurs twice, or the runs differ in turns or environment.
    """

    def __init__(self, runs: Sequence[Path]) -> None:
        self.members = [TeamMember.read(Path(run)) for run in runs]
        first = self.members[0]
        for other in self.members[1:]:
            for what, own, found in (
                ("order of turns", first.turns, other.turns),
                ("environment", _environment(first), _environment(other)),
            ):
                if own != found:
                    raise BadSetting(f"{other.path} has a different {what} from {first.path}: give runs of one team")
        names = [member.policy for member in self.members]
        if sorted(names) != sorted(acting(first.turns)):
            raise BadSetting(
                f"the turns belong to {', '.join(acting(first.turns))}, but the runs trained "
                f"{', '.join(names)}: give one run for each"
            )

    def evaluate(
        self,
        moment: str,
        *,
        greedy: bool,
        num_episodes: int | None = None,
        log: Path | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> tuple[Evaluation, list[Episode]]:
        """Play the test tasks, and return the evaluation and the episodes.

        Args:
            moment: one of `MOMENTS`.
            greedy: take the most likely token instead of sampling.
            num_episodes: how many tasks to play, from the first on; None for all.
            log: where to write the episode log; an existing one is replaced.
            on_episode: called with every finished episode.

        Raises:
            BadSetting: there are no such weights, or fewer tasks.
        """
        name = f"{moment}_{'greedy' if greedy else 'sampled'}"
        run, _, agent = self.members[0].configs
        return evaluation.evaluate(
            _TeamPolicy(name, self.members, moment, greedy=greedy),
            run.env_id,
            num_episodes=num_episodes,
            env_kwargs=run.env_settings,
            num_envs=agent.num_envs,
            log=log,
            replace=True,
            on_episode=on_episode,
        )


def _environment(member: TeamMember) -> tuple[str, Mapping[str, Any]]:
    run = member.configs[0]
    return run.env_id, run.env_settings


class _TeamPolicy:
    """The policies of a team as one policy. Outputs carry the name of the policy that acted."""

    def __init__(self, name: str, members: Sequence[TeamMember], moment: str, *, greedy: bool) -> None:
        self.name = name
        self._route = turn_router(members[0].turns)
        self._policies = {member.policy: _policy(member, moment, greedy=greedy) for member in members}

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        names = [self._route(policy_input) for policy_input in inputs]
        outputs: dict[int, PolicyOutput] = {}
        for name, policy in self._policies.items():
            places = [place for place, own in enumerate(names) if own == name]
            if not places:
                continue
            for place, output in zip(places, policy.act([inputs[place] for place in places]), strict=True):
                output.policy = name
                outputs[place] = output
        return [outputs[place] for place in range(len(inputs))]


def _policy(member: TeamMember, moment: str, *, greedy: bool) -> ModelPolicy:
    run, _, agent = member.configs
    template = template_of(run, member.path / VOCABULARY)
    model, tokenizer = load_model(
        member.model_at(moment), template, seed=agent.seed, dtype=run.dtype, chat_template=run.chat_template
    )
    write_settings(tokenizer, mapping("chat_template_kwargs", agent.chat_template_kwargs))
    write_date(tokenizer, checked_date(agent.date))
    model.eval()
    return ModelPolicy(
        model,
        tokenizer,
        template,
        generator=transformers_generator(agent, model, tokenizer),
        temperature=agent.temperature,
        greedy=greedy,
        max_new_tokens=agent.max_completion_length or 1,
        layout=agent.layout,
        name=member.policy,
        acts_as=member.policy,
    )
