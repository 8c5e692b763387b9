"""`agentgym-flow train`: train a policy with the recipe of the baselines. Needs the extra `train`."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentgym_flow.cli.console import new_table, note, printed, say, show_facts, show_table, stdout
from agentgym_flow.cli.options import EnvArgs, Force, command
from agentgym_flow.envs import text_arguments
from agentgym_flow.errors import AgentGymFlowError, BadSetting
from agentgym_flow.play import evaluate
from agentgym_flow.policies import ExpertPolicy
from agentgym_flow.report.explain import Expert, RunRecord
from agentgym_flow.report.explain import explain as explanation_of

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Click settings that let the command pass on options that it does not define."""


def _list(wanted: bool) -> None:
    if not wanted:
        return
    from agentgym_flow.rewards.credit import CREDIT

    table = new_table("algorithm", "advantage of a turn")
    for name, function in CREDIT.items():
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        table.add_row(name, summary.removeprefix("Return "))
    show_table(table)
    raise typer.Exit


def _show_cost(settings: list[str]) -> None:
    from agentgym_flow.training.config_file import parse_configs
    from agentgym_flow.training.estimate import estimate
    from agentgym_flow.training.warm_start import fit_demonstrations

    configs = parse_configs(settings)
    if lowered := fit_demonstrations(*configs[:2]):
        note(lowered)
    table = Table(show_header=False, title="What the run would cost", title_justify="left")
    cost = estimate(configs)
    for name, text in cost.summary().items():
        table.add_row(name, text)
    stdout().print(table)
    if cost.warning:
        note(cost.warning)
    stdout().print("Nothing was run.")


def _show_settings(settings: list[str], everything: bool) -> None:
    from agentgym_flow.training.config_file import parse_configs
    from agentgym_flow.training.main_settings import MAIN_SETTINGS

    run, warm_start, agent = parse_configs(settings)
    values = {**vars(agent), **vars(warm_start), **vars(run)}
    # A step can take several batches, so the number of steps per batch is a float.
    values |= {"groups_per_batch": agent.groups_per_batch, "steps_per_batch": f"{agent.steps_per_batch:g}"}
    table = new_table("setting", "value", "meaning")
    for name in sorted(values) if everything else MAIN_SETTINGS:
        if not name.startswith("_"):
            table.add_row(name, printed(f"{values[name]}"), MAIN_SETTINGS.get(name, ""))
    show_table(table)


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", file_okay=False)],
    evaluation: Annotated[Path | None, typer.Option(metavar="LOG", dir_okay=False)] = None,
    audit: Annotated[Path | None, typer.Option(metavar="FILE", dir_okay=False)] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say what holds a training run back, worst first, with the evidence and the setting to change.

    Reads the run's settings, metrics, warm start and evaluations, whether it is finished or not. It does not guess:
    what it cannot judge, it names. Exits with status 0 if nothing was found, and with 1 otherwise.

    Options:
        run: The folder of a run.
        evaluation: The episode log of another evaluation, to compare its settings with those of the run's own.
        audit: The audit.json of `agentgym-flow credit audit`, to compare the run's credit function with others.
        as_json: Print the result as JSON.
    """
    record = RunRecord.read(run, log=evaluation, audit=audit)
    if (record.mean("truncated") or 0.0) >= 0.5 or (record.mean("success") or 0.0) <= 0.05:
        record = replace(record, expert=expert_of(record))
    findings, not_judged = explanation_of(record)
    if as_json:
        told = {"findings": [one._asdict() for one in findings], "not_judged": not_judged}
        typer.echo(json.dumps(told, indent=1, allow_nan=False))
    else:
        steps = record.values("step")
        name = run.resolve().name
        say(f"{name}: {steps[-1]:.0f} updates" if steps else f"{name}: no update is recorded")
        for number, one in enumerate(findings, 1):
            say(f"\n{number}. {one.about} ({one.cause})")
            show_facts({"evidence": "\n".join(one.evidence), "change": one.change})
        if not findings:
            say("Nothing was found that holds learning back.")
        if not_judged:
            say("\nNot judged, for lack of:")
            show_facts(not_judged)
    raise typer.Exit(int(bool(findings)))


def expert_of(record: RunRecord) -> Expert | None:
    """Play 40 training tasks with the expert; None if there is none, or the environment cannot be made or raises."""
    try:
        settings = dict(record.settings.get("env_kwargs") or {})
        found, episodes = evaluate(
            ExpertPolicy(), str(record.settings.get("env_id")), split="train", num_episodes=40, env_kwargs=settings
        )
    except (AgentGymFlowError, OSError, TypeError, ValueError):
        return None
    return Expert(found.success, found.mean_length, episodes[0].max_steps)


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    out: Annotated[Path, typer.Argument(metavar="FOLDER")],
    dtype: str = "float32",
    force: Force = False,
) -> None:
    """Write a language model as one folder for a server, with adapters merged into it and a chat template.

    Prints how to evaluate it behind a server as in its run: the prompt template, layout and length of answers.

    Options:
        model: A checkpoint of a run, another folder of a model, or a GGUF file.
        out: The folder to write.
        dtype: The type of the weights: float32 or bfloat16.
    """
    from agentgym_flow.training.local_policy import export_model

    run = export_model(model, out, dtype=dtype, replace=force)
    say(str(out))
    words = [
        "agentgym-flow",
        "evaluate",
        run.get("env_id", "ENV"),
        "--policy",
        f"openai:{out}@http://localhost:8000/v1",
    ]
    words += [f"--env-arg={name}={_argument(value)}" for name, value in (run.get("env_kwargs") or {}).items()]
    chosen = {name: run.get(name) for name in ("template", "template_settings", "layout")}
    chosen["max_tokens"] = run.get("max_completion_length")
    words += [f"--policy-arg={name}={_argument(value)}" for name, value in chosen.items() if value]
    note(f"Behind a server, evaluate it with: {shlex.join(words)}")


def _argument(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a policy: warm start, evaluation, training, evaluation. All results go into one folder.

    Give any other setting as --key value; it overrides the configuration file. Examples: --seed 1, --model FOLDER,
    --credit_settings '{"gamma": 0.8}'. The file `config.yaml` in the folder of a run lists all settings. On Ctrl-C or
    SIGTERM the command saves the weights trained so far.

    Options:
        algorithm: An algorithm such as grpo or gigpo (see --list), or module:function for your own credit function.
        env: An id such as Sokoban-v0; see `agentgym-flow list`.
        out: The folder of the run.
        config: A YAML file of settings, or the name of one in the package, such as alfworld_1.5b.
        dataflow: Let workers play the training episodes. FILE has their settings as YAML, and may be empty.
        engine: Where the dataflow's manager and workers run: local, ray, ray:ADDRESS, or the URL of a manager.
        policy: The policy that this run trains, if the dataflow has several.
        dry_run: Estimate the cost of the run, without loading a model or running anything.
        settings_only: Show the main settings with the values of this run, and exit.
        all_settings: Show all settings, including TRL's, and exit.
        listing: List the algorithms and exit.
    """

    context: typer.Context
    algorithm: Annotated[str, typer.Argument(metavar="ALGO")]
    env: Annotated[str | None, typer.Option(metavar="ENV")] = None
    env_arg: EnvArgs = None
    out: Annotated[str | None, typer.Option(metavar="FOLDER")] = None
    config: Annotated[str | None, typer.Option(metavar="FILE")] = None
    dataflow: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    engine: str = "local"
    policy: Annotated[str, typer.Option(metavar="NAME")] = "policy"
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False
    settings_only: Annotated[bool, typer.Option("--settings")] = False
    all_settings: Annotated[bool, typer.Option("--all-settings")] = False
    listing: Annotated[bool, typer.Option("--list", callback=_list, is_eager=True)] = False

    def run(self) -> None:
        """Train, or show what the run would be."""
        if self.algorithm.startswith("-") or any(word.partition("=")[0] == "--credit" for word in self.context.args):
            raise BadSetting("name the algorithm once, as the first word: agentgym-flow train ALGO [--key value ...]")
        for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
            os.environ.setdefault(name, "1")  # read once, when huggingface_hub is imported
        settings = [*self.context.args, f"--credit={self.algorithm}"]
        settings += [] if self.config is None else [f"--config={self.config}"]
        settings += [] if self.env is None else [f"--env_id={text_arguments.full_id(self.env)}"]
        settings += [f"--env-arg={pair}" for pair in self.env_arg or ()]
        settings += [] if self.out is None else [f"--out={self.out}"]
        from agentgym_flow.rewards.credit import credit_function
        from agentgym_flow.training.main_settings import check_names

        # Before the imports below, which take seconds.
        credit_function(self.algorithm)
        check_names(self.context.args, [name for option in self.context.command.params for name in option.opts])
        from agentgym_flow.training.command import run_command
        from agentgym_flow.training.config_file import parse_configs
        from agentgym_flow.training.models import quiet

        quiet()
        if self.settings_only or self.all_settings:
            _show_settings(settings, self.all_settings)
            return
        if self.dry_run:
            _show_cost(settings)
            return
        if self.dataflow is None:
            raise typer.Exit(run_command(parse_configs(settings), stdout()))
        from agentgym_flow.dataflow.config import FlowConfig
        from agentgym_flow.dataflow.run import train as train_with_workers

        flow = FlowConfig.read(self.dataflow)
        raise typer.Exit(
            run_command(
                parse_configs(settings),
                stdout(),
                lambda configs, console: train_with_workers(configs, flow, self.engine, self.policy, console),
            )
        )


train = command(Train)
