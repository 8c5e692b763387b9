"""A training run from settings to a verified result: its steps, and `train`, which calls them in order.

Algorithms differ only in their settings: the credit function and its constants.

With several processes, all of them collect, train and evaluate. Only the main process clones, verifies and writes the
run folder; the others wait for it at each step, for as long as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers.integrations import is_deepspeed_zero3_enabled

from agentgym_flow._util.signals import sigterm_raises
from agentgym_flow.errors import BadData
from agentgym_flow.play import LiveProgress
from agentgym_flow.policies import PolicyInput
from agentgym_flow.report.traces import group_to_show
from agentgym_flow.training.callbacks import MetricsFile, StopAfterBatch, TrainingProgress, Validation
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import check_config, recorded_date, write_config
from agentgym_flow.training.group_source import OwnRollout, stop_on
from agentgym_flow.training.model_evaluation import ModelEvaluation, ModelEvaluator, problems
from agentgym_flow.training.models import (
    frozen_heap,
    load_model,
    load_weights,
    loaded_whole,
    save_model,
    with_lora,
)
from agentgym_flow.training.policy import make_generator
from agentgym_flow.training.processes import Processes, naming_lost_process
from agentgym_flow.training.results import Results, all_settings, describe_run, write_results
from agentgym_flow.training.run_config import LAST_RUN, template_of
from agentgym_flow.training.run_folder import (
    CONFIG,
    RunFolder,
    Trained,
    last_intact,
    last_run,
    progress_of,
    read_trained,
    record_trained,
)
from agentgym_flow.training.self_distillation import HintWriter, check_hints
from agentgym_flow.training.tiny import TINY
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import (
    WarmStart,
    record_warm_start,
    restore_warm_start,
    warm_start,
)


class Recipe:
    """The steps of one run. Created by `open_run`, which also records how the run ended.

    Args:
        configs: the settings.
        folder: the run folder.
        console: shows progress.
        processes: the processes of the run.
        generator: the backend that samples in this process; None: that of the settings.

    Raises:
        AgentGymFlowError: a setting is invalid. All settings are checked here, before any work.
    """

    def __init__(
        self, configs: Configs, folder: RunFolder, console: Console, processes: Processes, generator: str | None = None
    ) -> None:
        self.run, self.warm, self.agent = run, _, agent = configs
        self.folder = folder
        self.console = console
        self.processes = processes
        self.template = template_of(run, folder.vocabulary, processes)
        with loaded_whole() if self.warm.warm_start_levels else nullcontext():  # only the main process clones
            self.model, self.tokenizer = load_model(
                run.model, self.template, seed=agent.seed, dtype=run.dtype, chat_template=run.chat_template
            )
        if run.lora:
            self.model = with_lora(self.model, seed=agent.seed, **run.lora_settings)
        self.generator = make_generator(agent, self.model, self.tokenizer, folder.weights, processes, generator)
        self.evaluator = ModelEvaluator(
            run,
            agent,
            self.model,
            self.tokenizer,
            self.template,
            folder.evaluations,
            processes,
            self.generator,
            console=console,
        )
        if not self.evaluator.held_out:
            console.print("The splits have the same tasks: evaluation uses training tasks.", style="yellow")
        self.trainer = AgentTrainer(
            self.model,
            agent,
            self.tokenizer,
            self.template,
            run.make_env,
            processes=processes,
            generator=self.generator,
        )
        self.trainer.tracking.model = Path(run.model).name
        self.cloned: WarmStart | None = None
        self.evaluations: dict[str, ModelEvaluation] = {}
        self._checkpoint: Path | None = None
        self._trained = processes.on_main_process(self._read_trained)
        goes_on_from = 0
        if self._trained is not None:  # the run was stopped after training
            goes_on_from = self._trained.steps
            console.print(f"Training is finished: going on from {folder.checkpoint.name}", markup=False)
        else:
            self._checkpoint, damaged = processes.on_main_process(partial(last_intact, folder.path))
            for problem in damaged:
                console.print(f"Left out: {problem}", style="yellow", markup=False, soft_wrap=True)
        if self._checkpoint is not None:  # the run is resumed
            goes_on_from = progress_of(self._checkpoint).step
            console.print(f"Going on from {self._checkpoint.name}", markup=False)
        self.metrics = MetricsFile(folder.metrics, goes_on_from if processes.is_main else None)
        self._started = time.perf_counter()

    @property
    def begins(self) -> bool:
        """Whether training begins with its first step: the run is new, or was stopped before the first checkpoint."""
        return self._checkpoint is None and self._trained is None

    def clone_behaviour(self, route: Callable[[PolicyInput], str] | None = None) -> None:
        """Clone expert episodes; does nothing if `warm_start_levels` is 0.

        If several policies share the episodes, `route` returns the name of the one that acts, and the policy in
        training (`AgentTrainer.acts_as`) clones its own turns.

        Without an expert the tiny policy clones random actions, to learn the form of an answer, which a fresh policy
        hardly ever gives. Other models then start without a warm start.
        """
        if not self.warm.warm_start_levels:
            return
        with closing(self.run.make_env()) as env:
            has_expert = env.has_expert
        if not has_expert:
            self.console.print(
                f"{self.run.env_id} has no expert, so "
                + (
                    "the warm start imitates random actions, which teach no more than the form of an answer."
                    if self.run.model == TINY
                    else "training starts without a warm start."
                ),
                style="yellow",
                markup=False,
                soft_wrap=True,
            )
            if self.run.model != TINY:
                return
            self.warm = replace(self.warm, warm_start_noise=1.0, warm_start_imitate_noise=True)
        self.cloned = self.processes.on_main_process(partial(self._clone_behaviour, route))
        if not self.processes.is_main:  # the reference policy of the KL term is a copy of these weights
            restore_warm_start(self.folder.warm_start, self.model)

    @property
    def cloning_precision(self) -> Callable[[], AbstractContextManager[Any]]:
        """Create the context of a cloning update, in the precision of training updates and rollouts."""
        half = self.agent.mixed_precision == "bf16"  # gradients in float16 would need loss scaling
        return self.trainer.accelerator.autocast if half else nullcontext

    def _clone_behaviour(self, route: Callable[[PolicyInput], str] | None) -> WarmStart:
        try:
            done = restore_warm_start(self.folder.warm_start, self.model)
        except BadData as error:
            self.console.print(f"{error}. Cloning again.", style="yellow", markup=False, soft_wrap=True)
            done = None
        if done is not None:
            return done
        # Alone, a policy of several would play the turns of all.
        validate = partial(self.evaluator.validate_on_main_process, self.warm.warm_start_validation_episodes)
        with (
            LiveProgress(self.console, "Cloning", self.warm.warm_start_updates) as progress,
            self._hint_writer() as hints,
        ):
            done = warm_start(
                self.model,
                self.tokenizer,
                self.template,
                self.run.make_env,
                self.warm,
                seed=self.agent.seed,
                stop=stop_on(self.agent.stop_when),
                layout=self.agent.layout,
                max_new_tokens=self.agent.max_completion_length or 1,
                validate=None if self.trainer.acts_as is not None else validate,
                precision=self.cloning_precision,
                on_update=lambda updates, loss: progress.update(updates, f"loss {loss:.3f}"),
                share=self.trainer.shares,
                route=route,
                acts_as=self.trainer.acts_as,
                hints=hints,
            )
        save_model(self.folder.warm_start, self.model, self.tokenizer)
        record_warm_start(self.folder.warm_start, done)
        self.console.print(f"Cloned {done.turns} turns of {done.episodes} episodes: loss {done.losses[-1]:.2f}")
        return done

    @contextmanager
    def _hint_writer(self) -> Iterator[HintWriter | None]:
        """Yield what writes hints into the prompts of demonstrations; None if these are not to have any."""
        if not self.warm.warm_start_hints:
            yield None
            return
        with closing(self.run.make_env()) as env:
            check_hints(self.agent, self.template, env)
        agent, trainer = self.agent, self.trainer
        with closing(HintWriter(trainer.policy, self.run.make_env, agent.opsd_hint, trainer.acts_as)) as writer:
            yield writer

    def evaluate(self, moment: str, split: str = "test") -> None:
        """Play the held-out tasks of a split, sampled and greedy. `moment` is `before` or `after`."""
        with self._model_to_play():
            found = self.evaluator.evaluate(moment, split)
        if found is None:  # only the main process has the result
            return
        self.evaluations[moment] = found
        sampled, greedy = found.sampled.success, found.greedy.success
        self.console.print(f"{moment.title()} training: success {sampled:.1%} sampled, {greedy:.1%} greedy")

    def train(self) -> None:
        """Train: repeatedly collect groups of episodes, compute advantages, and take PPO steps.

        After Ctrl-C or SIGTERM the model is saved and the signal's exception propagates. A resumed run continues from
        its last checkpoint, or loads the trained model if training was finished.
        """
        if self._trained is not None:
            self.trainer.check_made_with(self.folder.checkpoint)
            load_weights(self.folder.checkpoint, self.model)
            self.trainer.state.global_step = self._trained.steps
            self.trainer.groups = [self._trained.group]
            return
        self.processes.on_main_process(self._remove_stale_logs)
        progress = TrainingProgress(self.console)
        self.trainer.add_callback(self.metrics)
        self.trainer.add_callback(progress)
        if isinstance(self.trainer.source, OwnRollout):
            self.trainer.source.on_episode = progress.add
        if self.run.validations and self.trainer.acts_as is None:
            self.trainer.add_callback(Validation(self.trainer, self._validate, self.run.validations))
        stop = StopAfterBatch(self.trainer, partial(self.console.print, soft_wrap=True))
        self.trainer.add_callback(stop)
        with stop.listening():  # also while the model is saved, so that a first signal does not lose it
            try:
                with frozen_heap():
                    self.trainer.train(self._checkpoint)
            except KeyboardInterrupt:
                # After a second signal the processes are out of step and must not wait for each other.
                if self.processes.is_main and not is_deepspeed_zero3_enabled():
                    save_model(self.folder.checkpoint, self.model, self.tokenizer)
                raise
            finally:
                progress.close()
            self._keep()

    def finish(self) -> Results:
        """Replay all logged episodes, write curve, report and summary, print them, and return the results."""
        return self.processes.on_main_process(self._finish)

    def finish_without_evaluation(self) -> None:
        """Write the summary of a run without evaluation, and print where its files are."""
        self.processes.on_main_process(self._finish_without_evaluation)

    def _finish_without_evaluation(self) -> None:
        self.folder.summarise("finished", {"seconds": time.perf_counter() - self._started})
        _show_files(self.folder, self.console)

    def _finish(self) -> Results:
        with self.console.status("Verifying all logs"):
            found = problems(self.evaluator, list(self.evaluations.values()))
        before, after = self.evaluations["before"], self.evaluations["after"]
        group, seconds = group_to_show(self.trainer.groups), time.perf_counter() - self._started
        results = Results(before, after, self.cloned, self.metrics.records, group, found, seconds)
        configs = self.run, self.warm, self.agent
        about, title = describe_run(configs, self.model), f"{self.agent.credit} on {self.run.env_id}"
        write_results(self.folder, title, about, all_settings(configs), results)
        _show(self.folder, results, self.console)
        return results

    @contextmanager
    def _model_to_play(self) -> Iterator[None]:
        """Give the generator the current weights."""
        with self.trainer.frozen_model() as model:
            self.generator.update(model, self.trainer.state.global_step)
            yield

    def _validate(self) -> float:
        with self._model_to_play():
            return self.evaluator.validate(self.run.validation_episodes)

    def _remove_stale_logs(self) -> None:
        for stale in self.folder.evaluations.glob("after_*"):  # left by the killed run
            stale.unlink()

    def _read_trained(self) -> Trained | None:
        try:
            return read_trained(self.folder.checkpoint)
        except BadData as error:
            self.console.print(f"{error}. Training again.", style="yellow", markup=False, soft_wrap=True)
            return None

    def _keep(self) -> None:
        """Save the model. All processes must call this."""
        weights = None
        if is_deepspeed_zero3_enabled():
            weights = self.trainer.accelerator.get_state_dict(self.trainer.model_wrapped)
        made_with = self.trainer.made_with()
        self.processes.on_main_process(partial(self._write_model, weights, made_with))

    def _write_model(self, weights: Mapping[str, torch.Tensor] | None, made_with: Mapping[str, Any]) -> None:
        save_model(self.folder.checkpoint, self.model, self.tokenizer, weights)
        state = self.trainer.state
        if state.global_step >= state.max_steps:
            record_trained(
                self.folder.checkpoint, Trained(state.global_step, group_to_show(self.trainer.groups)), made_with
            )


@contextmanager
def open_run(configs: Configs, console: Console, generator: str | None = None) -> Iterator[Recipe]:
    """Open a new run folder, or that of the run to resume; save the settings, and yield the steps of the run.

    `generator` is as for `Recipe`.

    The folder's summary records how the run ended, also after an error, Ctrl-C or SIGTERM. Raises what `Recipe` raises,
    `OSError` if the folder cannot be created, and `Terminated` after SIGTERM.
    """
    run, _, agent = configs
    processes = Processes(agent.ddp_timeout)
    console.quiet = console.quiet or not processes.is_main
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    with sigterm_raises():
        folder, agent.date = processes.on_main_process(partial(_open_folder, configs))
        agent.output_dir = str(folder.path)
        console.print(f"Run folder: {folder.path}", soft_wrap=True, markup=False)
        with folder.guard(), naming_lost_process():
            processes.on_main_process(partial(write_config, folder.config, configs))
            console.print(f"Settings:   {folder.config}", soft_wrap=True, markup=False)
            recipe = Recipe(configs, folder, console, processes, generator)
            try:
                yield recipe
            finally:
                recipe.generator.close()
                with suppress(OSError):  # absent, or still used by another process
                    folder.weights.rmdir()


def _open_folder(configs: Configs) -> tuple[RunFolder, str | None]:
    """Return the run folder, and the date of the run, which is that of its first start."""
    run, _, agent = configs
    if run.resume is None:
        _ = agent.credit_function  # an unknown one is refused before the folder is made
        return RunFolder(agent.output_dir), agent.date
    path = run_to_resume(configs)  # sets the date
    return RunFolder(path, resume=True), agent.date


def run_to_resume(configs: Configs) -> Path:
    """Return the folder of the run to resume, and take over its date.

    Raises `BadSetting` if there is none, or if it has other settings.
    """
    run, _, agent = configs
    path = last_run(agent.output_dir) if run.resume in (None, LAST_RUN) else Path(run.resume)
    agent.date = recorded_date(path / CONFIG, agent.date)
    check_config(path / CONFIG, configs)
    return path


def train(configs: Configs, console: Console) -> Results:
    """Run all steps with the credit function of the settings, as the baselines and `agentgym-flow train` do."""
    with open_run(configs, console) as recipe:
        # 1. Warm start. Credit compares outcomes, so the policy must succeed sometimes.
        recipe.clone_behaviour()

        # 2. Evaluation on the test tasks before training, sampled and greedy.
        recipe.evaluate("before")

        # 3. Training: groups of attempts at one task, an advantage for every turn, clipped PPO steps.
        recipe.train()

        # 4. Evaluation on the same test tasks after training, and verification of all logs.
        recipe.evaluate("after")
        return recipe.finish()


def _show(folder: RunFolder, results: Results, console: Console) -> None:
    """Print the results and where the files are."""
    table = Table(show_header=False, title="Result", title_justify="left")
    for name, text in results.summary().items():
        table.add_row(name, text)
    console.print(table)
    for problem in results.problems:
        console.print(problem, style="red", markup=False)
    _show_files(folder, console)


def _show_files(folder: RunFolder, console: Console) -> None:
    for what, path in folder.contents().items():
        if path.exists():
            console.print(f"{what:15} {path}", soft_wrap=True, markup=False)
