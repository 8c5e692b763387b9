"""RewardFlow: dense credit for every turn from the graph of the states that a group of attempts has seen.

Several attempts at one task visit common states. Merge them into one graph, give every state the potential
gamma ** (fewest observed steps from it to a success), and compare each turn with the other turns that were decided in
the same state by the potential of the state it led to. Together with the episode's advantage within its group:

    A(turn) = [success - mean over the group] + weight * [phi(next state) - mean over turns in this state]

and PPO's clipped objective on these advantages. The published code subtracts means and does not divide by standard
deviations; with division the same estimator is GraphGPO (`--credit graphgpo`). `--credit grpo`, `rloo` and `gigpo`
exchange the estimator and nothing else.

    python -m baselines.rewardflow --config baselines/configs/sokoban_tiny.yaml

clones a tiny policy from a few noisy demonstrations, trains it, evaluates it on held-out tasks before and after, and
leaves a folder with everything: settings, metrics, learning curve, a page to open, episode logs that anyone can
verify, and the checkpoint.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentgym_flow.errors import AgentGymFlowError
from agentgym_flow.prompts import profile_for
from agentgym_flow.training.callbacks import LiveProgress, MetricsFile, Validation
from agentgym_flow.training.config import Configs, RunConfig, parse_configs, write_config
from agentgym_flow.training.examine import Examiner, problems
from agentgym_flow.training.results import Record, Results, most_telling, write_results
from agentgym_flow.training.run import RunFolder, load_model, quiet, save_model
from agentgym_flow.training.trainer import AgentTrainer, stop_on
from agentgym_flow.training.warm_start import warm_start


def train(configs: Configs, console: Console) -> tuple[RunFolder, Results]:
    """Run the whole recipe; return the folder it has filled and the results."""
    run, warm, agent = configs
    started = time.perf_counter()
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    folder = RunFolder(agent.output_dir)
    agent.output_dir = str(folder.path)
    write_config(folder.config, configs)
    console.print(f"Run folder: {folder.path}", soft_wrap=True, markup=False)
    with folder.guard():
        profile = profile_for(run.env_id, run.profile)
        model, tokenizer = load_model(run.model, profile, seed=agent.seed)
        examiner = Examiner(run, agent, model, tokenizer, profile, folder.evaluations)
        trainer = AgentTrainer(model, agent, tokenizer, profile, run.make_env)  # refuses what cannot work, before work

        # 1. Warm start: imitate a limited, noisy set of expert episodes.
        cloned = None
        if warm.warm_start_levels:
            with console.status("Cloning demonstrations"):
                cloned = warm_start(
                    model,
                    tokenizer,
                    profile,
                    run.make_env,
                    warm,
                    seed=agent.seed,
                    stop=stop_on(agent.stop_when),
                    max_new_tokens=agent.max_completion_length or 1,
                    validate=partial(examiner.validate, warm.warm_start_validation_episodes),
                )
            save_model(folder.warm_start, model, tokenizer)
            console.print(f"Cloned {cloned.turns} turns of {cloned.episodes} episodes: loss {cloned.losses[-1]:.2f}")

        # 2. The test tasks, before: sampled and greedy.
        with console.status("Evaluating before training"):
            before = examiner.examine("before")
        console.print(
            f"Before training: success {before.sampled.success:.1%} sampled, {before.greedy.success:.1%} greedy"
        )

        # 3. RewardFlow. The trainer collects groups, asks `rewards.credit` for advantages and takes PPO steps.
        records = reinforce(trainer, run, examiner, folder, console)

        # 4. The same test tasks, after; every logged episode is stepped again.
        with console.status("Evaluating after training, verifying all logs"):
            after = examiner.examine("after")
            found = problems(examiner, [before, after])
        group, seconds = most_telling(trainer.groups), time.perf_counter() - started
        results = Results(before, after, cloned, records, group, found, seconds)
        write_results(folder, f"{agent.credit} on {run.env_id}", results)
    return folder, results


def reinforce(
    trainer: AgentTrainer, run: RunConfig, examiner: Examiner, folder: RunFolder, console: Console
) -> Sequence[Record]:
    """Train, with validation now and then; save what was learnt, after Ctrl-C too. Returns the metrics."""
    metrics, progress = MetricsFile(folder.metrics), LiveProgress(console)
    trainer.add_callback(metrics)
    trainer.add_callback(progress)
    if run.validations:
        validate = partial(examiner.validate, run.validation_episodes)
        trainer.add_callback(Validation(trainer, validate, run.validations))
    try:
        trainer.train()
    except KeyboardInterrupt:
        save_model(folder.checkpoint, trainer.model, trainer.processing_class)
        raise
    finally:
        progress.close()
    save_model(folder.checkpoint, trainer.model, trainer.processing_class)
    return metrics.records


def show(folder: RunFolder, results: Results, console: Console) -> None:
    """Print what was achieved and where everything is."""
    table = Table(show_header=False, title="Result", title_justify="left")
    for name, text in results.summary().items():
        table.add_row(name, text)
    console.print(table)
    for problem in results.problems:
        console.print(problem, style="red", markup=False)
    for what, path in folder.contents().items():
        console.print(f"{what:15} {path}", soft_wrap=True, markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status (130 after Ctrl-C)."""
    console = Console()
    quiet()
    try:
        folder, results = train(parse_configs(arguments), console)
    except KeyboardInterrupt:
        console.print(
            "Interrupted. The run folder has the checkpoint of what was learnt so far, if training had begun."
        )
        return 130
    except (AgentGymFlowError, OSError) as error:
        console.print(f"[red]{type(error).__name__}[/red]: {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1
    show(folder, results, console)
    return 1 if results.problems else 0


if __name__ == "__main__":
    sys.exit(main())
