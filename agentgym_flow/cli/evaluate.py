"""`agentgym-flow evaluate` and `collect`: let a policy play a split, for its success rate or as demonstrations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.table import Table

from agentgym_flow._util.signals import exit_status, sigterm_raises
from agentgym_flow._util.values import finite
from agentgym_flow.cli.console import (
    attempts_rows,
    new_table,
    note,
    printed,
    say,
    share,
    show_facts,
    show_table,
    stdout,
)
from agentgym_flow.cli.options import (
    EnvName,
    PolicyName,
    Split,
    backend_of,
    check_command,
    command,
    env_settings,
    used_rows,
)
from agentgym_flow.cli.player import (
    Live,
    PlayOptions,
    explained_failure,
    guarded_policy,
    leave,
    note_remarks,
    policy_settings,
    say_how_to_resume,
    seconds,
)
from agentgym_flow.envs import text_arguments
from agentgym_flow.errors import BadSetting, BudgetSpent, UnknownOption
from agentgym_flow.leaderboard.files import track_file
from agentgym_flow.leaderboard.submission import LOG, write_evaluation
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.play import Evaluation, by_task_type, collect_play, evaluate_play

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.backends.openai_compatible import Usage

BUDGET_SPENT = 3
"""The exit status of a run that stopped at a limit of tokens or money."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(PlayOptions):
    """Evaluate a policy on a split: print the success rate with a 95 % interval, write a log that anyone can verify.

    On Ctrl-C or SIGTERM the command keeps the finished episodes, summarises them, and exits with status 130 or 143.
    Continue the evaluation with --resume.

    Options:
        env: An id such as Sokoban-v0; see `agentgym-flow list`. Omit it with --track.
        track: Play the tasks of this leaderboard track, given by its name or its file.
        out: With --track: the folder for the log and the result; `submit` takes this folder.
        data: A file, a folder or the name of registered data. Canvas: also a published set, from the Hub.
        dataset: Canvas: the published set that the data belongs to.
        executor: Canvas: the executor that runs the operators: simulated or openai.
        base_url: Canvas: the executor's server, such as http://localhost:8000/v1.
        executor_model: Canvas: the executor's model. Optional if the server has only one.
        template: The prompt template of a language model: text (the default), choice, or NAME:PATH for a published
            prompt such as verl_agent:prompts/alfworld.py.
        tools: Offer the actions to an openai: policy as tools, which it calls, instead of reading them from its texts.
        prices: A JSON or YAML file with the dollars per million tokens of models; the report then has the cost.
        max_tokens_total: Stop when the answers of an openai: policy have taken this many tokens. --resume continues.
        max_cost: Stop when they have cost this many dollars by --prices. --resume continues.
        log: Write the episode log to this file (.jsonl or .jsonl.gz).
        by: Also report results for each task type.
        as_json: Print the result as JSON.
    """

    context: typer.Context
    env: Annotated[str | None, typer.Argument(metavar="[ENV]")] = None
    policy: PolicyName = "random"
    track: str | None = None
    out: Annotated[Path | None, typer.Option(file_okay=False)] = None
    split: Split = "test"
    data: str | None = None
    dataset: Annotated[str | None, typer.Option("--dataset")] = None
    executor: Annotated[str | None, typer.Option("--executor")] = None
    base_url: Annotated[str | None, typer.Option(metavar="URL")] = None
    executor_model: Annotated[str | None, typer.Option(metavar="NAME")] = None
    template: Annotated[str | None, typer.Option(metavar="NAME")] = None
    tools: Annotated[bool, typer.Option("--tools")] = False
    prices: Annotated[Path | None, typer.Option(dir_okay=False)] = None
    max_tokens_total: Annotated[int | None, typer.Option(min=1, metavar="N")] = None
    max_cost: Annotated[float | None, typer.Option(metavar="DOLLARS")] = None
    log: Path | None = None
    by: Annotated[str | None, typer.Option(metavar="task_type")] = None
    as_json: Annotated[bool, typer.Option("--json")] = False

    def run(self) -> None:
        """Evaluate on a split or on a track."""
        if self.by not in (None, "task_type"):
            raise UnknownOption.among(self.by, ["task_type"])
        if self.track is not None:
            track, kwargs = self._read_track(self.track)
            self._of_track(track)._evaluate(track.env_id, kwargs, track)
        elif self.env is None:
            raise BadSetting("name an environment, or a track with --track and --out")
        elif self.out is not None:
            raise BadSetting("--out is the folder for a track; the log of an environment's episodes goes to --log FILE")
        else:
            self._evaluate(text_arguments.full_id(self.env), {})

    def _read_track(self, name: str) -> tuple[Track, dict[str, Any]]:
        """Return the track, and the arguments of its environment.

        Raises:
            BadSetting: an option sets what the track already fixes, or `--out` is missing.
            UnknownTrack, BadTrack, BadData: the track does not exist, or its tasks or data differ from those installed.
        """
        for other in ("env", "split", "episodes", "attempts", "task_type", "seed", "env_arg", "dataset", "log"):
            source = self.context.get_parameter_source(other)
            if source is not None and source.name == "COMMANDLINE":
                given = "ENV" if other == "env" else "--" + other.replace("_", "-")
                raise BadSetting(f"--track sets the episodes and the output files: leave {given} out")
        if self.out is None:
            raise BadSetting("--track needs --out, the folder for the log and the result")
        track = Track.read(track_file(name))
        where = dict.fromkeys(track.data, self.data) if self.data is not None else None
        track.check(where)
        self.out.mkdir(parents=True, exist_ok=True)
        return track, {key: value for key, value in track.env_settings(where).items() if key != "split"}

    def _of_track(self, track: Track) -> Self:
        """Return the options with the episodes of a track."""
        assert self.out is not None  # checked before
        return replace(
            self,
            split=track.split,
            episodes=len(track.tasks),
            attempts=track.attempts,
            seed=track.seed,
            data=None,
            log=self.out / LOG,
        )

    def _evaluate(self, env_id: str, kwargs: dict[str, Any], track: Track | None = None) -> None:
        log, ended = self.log, self.is_complete(self.log)  # before any request to a model
        settings = policy_settings(
            self.policy,
            self.policy_arg,
            template=self.template,
            tools=self.tools,
            prices=self.prices,
            patience=self.patience,
            num_envs=self.num_envs if track is None else None,  # entries are reproduced with the usual number
        )
        if self.max_cost is not None and "prices" not in settings:
            raise BadSetting("--max-cost is for policies openai:... and needs the prices of the model: --prices FILE")
        options = {"data": self.data, "dataset": self.dataset, "executor": self.executor}
        options |= {"base_url": self.base_url, "model": self.executor_model}
        kwargs = env_settings(env_id, self.env_arg, options) | kwargs  # refused before a model is loaded
        player = guarded_policy(self.policy, env_id, **settings)
        live, status = Live(self.num_envs), 0
        limits: dict[str, Any] = {"max_tokens_total": self.max_tokens_total, "max_cost": self.max_cost}
        play = replace(self.play(player, env_id, kwargs, log, live), **limits)
        if log is not None and ended:
            play.check_complete()
            leave(log)
        backend = backend_of(kwargs)
        before = backend and backend.usage
        if backend is not None and self.patience is not None:
            backend.wait_for(seconds(self.patience))
        with sigterm_raises(), live, explained_failure(log, live, name=f"the log {log}"):
            try:
                result, _ = evaluate_play(play)
            except (KeyboardInterrupt, BudgetSpent) as stop:
                status = BUDGET_SPENT if isinstance(stop, BudgetSpent) else exit_status(stop)
                if isinstance(stop, BudgetSpent):
                    note(f"{stop}; to continue, raise the limit")
                if not live.finished:
                    say_how_to_resume(log)
                    raise typer.Exit(status) from None
                result = Evaluation.of(live.finished, player.name, live.split_tasks)
        if track is not None and self.out is not None and not status:
            write_evaluation(self.out, track.name, result.as_dict())
        used = backend.usage.since(before) if backend and before else None
        _show(result, by_task_type(live.finished, player.name) if self.by else {}, used, self.as_json)
        if log is not None and not self.as_json:
            say(f"\nThe log is {log}. Check it with: {check_command(log, kwargs, env_id)}")
        note_remarks(live, player, result)
        if status:
            bias = "short ones finish first, so the figures are biased towards them"
            note(f"stopped after {len(live.finished)} of {live.total} episodes; {bias}")
            say_how_to_resume(log)
            raise typer.Exit(status)


evaluate = command(
    Evaluate,
    "context env policy track out split episodes attempts task_type seed data dataset executor base_url executor_model "
    "env_arg template tools policy_arg prices max_tokens_total max_cost patience num_envs resume force log by as_json",
)


@dataclass(frozen=True, kw_only=True)
class Collect(PlayOptions):
    """Record demonstrations of a policy, for behaviour cloning or supervised fine-tuning.

    On Ctrl-C or SIGTERM the command keeps the finished episodes and exits with status 130 or 143. Continue the run with
    --resume.

    Options:
        out: The file to write (.jsonl or .jsonl.gz).
        form: log: an episode log. sft: one row per turn, with prompt and completion.
        template: The prompt template of the rows. By default that of the language model that plays, or text.
    """

    env: EnvName
    out: Annotated[Path, typer.Option()]
    policy: PolicyName = "expert"
    split: Split = "train"
    form: Annotated[str, typer.Option("--format")] = "log"
    template: str | None = None

    def run(self) -> None:
        """Play, and write the file."""
        env_id, out = text_arguments.full_id(self.env), self.out
        ended = self.is_complete(out)  # before any request to a model
        settings = policy_settings(self.policy, self.policy_arg, patience=self.patience, num_envs=self.num_envs)
        kwargs = text_arguments.env_settings(env_id, self.env_arg)
        player = guarded_policy(self.policy, env_id, **settings)
        live = Live(self.num_envs)
        play = self.play(player, env_id, kwargs, out, live)
        if ended and self.form == "log":  # rows do not show of which episodes they are
            play.check_complete()
        if ended:
            leave(out)
        with sigterm_raises(), live, explained_failure(out, live, name=str(out)):
            try:
                result = collect_play(play, self.form, self.template)
            except KeyboardInterrupt as interrupt:
                if live.finished:
                    note(f"{out} holds {live.kept}")
                say_how_to_resume(out)
                raise typer.Exit(exit_status(interrupt)) from None
        note_remarks(live, player, Evaluation.of(live.finished, player.name))
        advice = f". Check it with: {check_command(out, kwargs, env_id)}" if self.form == "log" else ""
        say(f"{result.episodes:,} episodes, {result.turns:,} turns, {result.successes:,} successful: {out}{advice}")


collect = command(
    Collect,
    "env out policy episodes attempts task_type split form template seed env_arg policy_arg patience num_envs resume "
    "force",
)


def _show(result: Evaluation, types: Mapping[str, Evaluation], used: Usage | None, as_json: bool) -> None:
    if as_json:
        more = {} if used is None else {"executor": used._asdict()}
        more |= {"task_type": {name: one.as_dict() for name, one in types.items()}} if types else {}
        typer.echo(json.dumps(finite(result.as_dict() | more), indent=1))
        return
    rows = {
        "environment": f"{result.env_id}, {result.split}",
        "policy": result.policy,
        "tasks": _tasks(result),
        "episodes": f"{result.episodes:,}" + (f", {result.attempts} a task" if result.attempts > 1 else ""),
        "success": share(result.success, result.success_interval),
        "score": share(result.score, result.score_interval),
        **attempts_rows(result.at_k),
        "return": f"{result.mean_return:.2f}",
        "steps": f"{result.mean_length:.1f}",
        "invalid actions": share(result.invalid_rate),
        "out of steps": share(result.truncated_rate),
    }
    parts = {
        "out of context": result.context_rate,
        "cut answers": result.cut_rate,
        "empty answers": result.empty_rate,
    }
    rows |= {name: share(rate) for name, rate in parts.items() if rate}
    for name, counts in {"failures": result.failures, "bad calls": result.bad_calls}.items():
        rows |= {name: ", ".join(f"{count:,} {why}" for why, count in counts.items())} if counts else {}
    if result.scorers:
        rows["scored by"] = ", ".join(result.scorers)
    troubles = {"lost episodes": result.errors, "failed requests": result.failed_requests}
    rows |= {name: str(count) for name, count in troubles.items() if count}
    if spent := result.usage:
        cached, reasoning = f"{spent['cached']:,} cached", f"{spent['reasoning']:,} reasoning"
        rows["model tokens"] = (
            f"{spent['prompt']:,} prompt ({cached}), {spent['completion']:,} completion ({reasoning})"
        )
        rows["model time"] = f"{spent['seconds']:,.1f} seconds of requests"
        rows |= {"model cost": f"${spent['cost']:,.4f}"} if "cost" in spent else {}
    if used is not None:
        rows |= used_rows(used)
    show_facts(rows)
    if types:
        stdout().print()
        show_table(_table_of_types(types))


def _tasks(result: Evaluation) -> str:
    """Return the number of different tasks played, and the size of the split if it differs.

    Of official tasks it also says how many were not played, and how many are in the split twice.
    """
    if result.official and result.split_tasks is not None:
        missing = result.split_tasks - result.tasks - result.repeated
        return (
            f"{result.tasks:,} different, {missing:,} of {result.split_tasks:,} missing, {result.repeated:,} repeated"
        )
    of_split = "" if result.split_tasks in (None, result.tasks) else f" of {result.split_tasks:,}"
    return f"{result.tasks:,} different{of_split}" if of_split else f"{result.tasks:,}"


def _table_of_types(types: Mapping[str, Evaluation]) -> Table:
    table = new_table("task type", ">tasks", ">success", ">steps")
    for name, one in types.items():
        rate = share(one.success, one.success_interval)
        table.add_row(printed(name or "(none)"), f"{one.tasks:,}", rate, f"{one.mean_length:.1f}")
    return table
