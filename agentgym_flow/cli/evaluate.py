"""`agentgym-flow evaluate`: evaluate a policy on a split, show the success rate so far, and write the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from agentgym_flow._util.files import check_new
from agentgym_flow._util.signals import exit_status, sigterm_raises
from agentgym_flow._util.values import finite
from agentgym_flow.cli import environments, executor
from agentgym_flow.cli.console import Force, new_table, note, printed, say, share, show_facts, show_table, stdout
from agentgym_flow.cli.on_track import on_track
from agentgym_flow.cli.player import (
    Attempts,
    Episodes,
    Live,
    NumEnvs,
    Patience,
    PolicyArgs,
    PolicyName,
    Resume,
    TaskTypes,
    TemplateName,
    explained_failure,
    guarded_policy,
    is_complete,
    leave,
    note_remarks,
    policy_settings,
    say_how_to_resume,
    seconds,
)
from agentgym_flow.envs import text_arguments
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play import Evaluation, by_task_type, check_complete, evaluation, path_of

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.backends.openai_compatible import Usage


def evaluate(
    context: typer.Context,
    env: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENV]", help="An id such as Sokoban-v0; see `agentgym-flow list`. Omit it with --track."
        ),
    ] = None,
    policy: PolicyName = "random",
    track: Annotated[
        str | None, typer.Option(help="Play the tasks of this leaderboard track, given by its name or its file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --track: the folder for the log and the result; `submit` takes this folder.", file_okay=False
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    episodes: Episodes = None,
    attempts: Attempts = 1,
    task_type: TaskTypes = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of task 0. Task i is played with SEED + i.")] = 0,
    data: executor.Data = None,
    dataset: executor.SetName = None,
    executor_name: executor.ExecutorName = None,
    base_url: executor.BaseUrl = None,
    executor_model: executor.ExecutorModel = None,
    env_arg: environments.EnvArgs = None,
    template: TemplateName = None,
    policy_arg: PolicyArgs = None,
    patience: Patience = None,
    num_envs: NumEnvs = 64,
    resume: Resume = False,
    force: Force = False,
    log: Annotated[Path | None, typer.Option(help="Write the episode log to this file (.jsonl or .jsonl.gz).")] = None,
    by: Annotated[str | None, typer.Option(metavar="task_type", help="Also report results for each task type.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Evaluate a policy on a split: print the success rate with a 95 % interval, write a log that anyone can verify.

    On Ctrl-C or SIGTERM the command keeps the finished episodes, summarises them, and exits with status 130 or 143.
    Continue the evaluation with --resume.
    """
    if by not in (None, "task_type"):
        raise UnknownOption.among(by, ["task_type"])
    board = None if track is None else on_track(context, track, out, data)
    if board is not None:
        env_id, split, seed, log = board.track.env_id, board.track.split, board.track.seed, board.log
        episodes, attempts = board.episodes, board.track.attempts
    elif env is None or out is not None:
        raise BadSetting("name an environment, or a track with --track and --out")
    else:
        env_id = text_arguments.full_id(env)
    ended = is_complete(log, resume, force)
    if log is not None and not ended:  # before any request to a model
        check_new(log, replace=force or (resume and path_of(log).exists()))
    settings = policy_settings(
        policy,
        policy_arg,
        template=template,
        patience=patience,
        num_envs=num_envs if board is None else None,  # entries are reproduced with the usual number of rows
    )
    player = guarded_policy(policy, env_id, **settings)
    options = {"dataset": dataset, "executor": executor_name, "base_url": base_url, "model": executor_model}
    if board is None:
        env_kwargs = executor.env_settings(env_id, env_arg, {"data": data, **options})
    else:
        env_kwargs = executor.env_settings(env_id, env_arg, options) | board.env_kwargs
    if log is not None and ended:
        check_complete(
            log,
            player,
            env_id,
            split=split,
            num_episodes=episodes,
            attempts=attempts,
            task_types=task_type,
            seed=seed,
            env_kwargs=env_kwargs,
        )
        leave(log)
    backend = executor.backend_of(env_kwargs)
    before = backend and backend.usage
    if backend is not None and patience is not None:
        backend.wait_for(seconds(patience))
    live, status = Live(num_envs), 0
    with sigterm_raises(), live.progress, explained_failure(log, live, name=f"the log {log}"):
        try:
            result, _ = evaluation.evaluate(
                player,
                env_id,
                split=split,
                num_episodes=episodes,
                attempts=attempts,
                task_types=task_type,
                seed=seed,
                env_kwargs=env_kwargs,
                num_envs=num_envs,
                log=log,
                replace=force,
                resume=resume,
                on_plan=live.begin,
                on_episode=live.add,
            )
        except KeyboardInterrupt as interrupt:
            status = exit_status(interrupt)
            if not live.finished:
                say_how_to_resume(log)
                raise typer.Exit(status) from None
            result = Evaluation.of(live.finished, player.name, live.split_tasks)
    if board is not None and not status:
        board.write(result.as_dict())
    used = backend.usage.since(before) if backend and before else None
    types = by_task_type(live.finished, player.name) if by else {}
    _show(result, types, used, as_json)
    if log is not None and not as_json:
        advice = f"Check it with: {environments.check_command(log, env_kwargs, env_id)}"
        say(f"\nThe log is {log}. {advice}")
    note_remarks(live, player, result)
    if status:
        bias = "short ones finish first, so the figures are biased towards them"
        note(f"stopped after {len(live.finished)} of {live.total} episodes; {bias}")
        say_how_to_resume(log)
        raise typer.Exit(status)


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
    if result.scorers:
        rows["scored by"] = ", ".join(result.scorers)
    troubles = {"lost episodes": result.errors, "failed requests": result.failed_requests}
    rows |= {name: str(count) for name, count in troubles.items() if count}
    if used is not None:
        rows |= executor.used_rows(used)
    show_facts(rows)
    if types:
        stdout().print()
        show_table(_table_of_types(types))


def _tasks(result: Evaluation) -> str:
    """Return the number of different tasks played, and the size of the split if it differs."""
    of_split = "" if result.split_tasks in (None, result.tasks) else f" of {result.split_tasks:,}"
    return f"{result.tasks:,} different{of_split}" if of_split else f"{result.tasks:,}"


def _table_of_types(types: Mapping[str, Evaluation]) -> Table:
    table = new_table("task type", ">tasks", ">success", ">steps")
    for name, one in types.items():
        rate = share(one.success, one.success_interval)
        table.add_row(printed(name or "(none)"), f"{one.tasks:,}", rate, f"{one.mean_length:.1f}")
    return table
