"""`agentgym-flow evaluate`: play a split with a policy, show the success as it grows, write the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from agentgym_flow import evaluation
from agentgym_flow.cli import environments, executor
from agentgym_flow.cli.console import note, printed, share, show_table, stdout
from agentgym_flow.cli.player import Live, NumEnvs, PolicyArgs, PolicyName, Watched
from agentgym_flow.errors import BadPolicy, BadSetting, ExecutorFailed
from agentgym_flow.evaluation import Evaluation

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.backends.openai_compatible import Usage


def evaluate(
    env: environments.EnvName,
    policy: PolicyName = "random",
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes; task i is played with seed SEED + i.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first episode.")] = 0,
    data: executor.Data = None,
    dataset: executor.SetName = None,
    executor_name: executor.ExecutorName = None,
    base_url: executor.BaseUrl = None,
    executor_model: executor.ExecutorModel = None,
    env_arg: environments.EnvArgs = None,
    policy_arg: PolicyArgs = None,
    num_envs: NumEnvs = 64,
    log: Annotated[Path | None, typer.Option(help="Write the episode log here (.jsonl or .jsonl.gz).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure a policy on a split: success with a 95 % interval, and a log that anyone can verify.

    Ctrl-C keeps the episodes that have finished, sums them up and exits with status 130.
    """
    env_id = environments.full_id(env)
    player = Watched(policy, env_id, **environments.settings(policy_arg, "--policy-arg"))
    options = {"data": data, "dataset": dataset, "executor": executor_name, "base_url": base_url}
    env_kwargs = executor.env_settings(env_id, env_arg, {**options, "model": executor_model})
    backend = executor.backend_of(env_kwargs)
    before = backend and backend.usage
    live, stopped = Live(episodes, num_envs), False
    with live.progress:
        try:
            result, _ = evaluation.evaluate(
                player,
                env_id,
                split=split,
                num_episodes=episodes,
                seed=seed,
                env_kwargs=env_kwargs,
                num_envs=num_envs,
                log=log,
                on_episode=live.add,
            )
        except KeyboardInterrupt:
            if not live.finished:
                raise
            stopped, result = True, Evaluation.of(live.finished, player.name)
        except (BadPolicy, BadSetting, ExecutorFailed):
            if log is not None and live.finished:
                note(f"the log {log} holds {live.kept}")
            raise
    used = backend.usage.since(before) if backend and before else None
    _show(result, used, log, as_json, env_kwargs.get("data"))
    if live.loss:
        note(live.loss)
    if stopped:
        lean = "short ones finish first, so the figures lean to them"
        note(f"stopped after {len(live.finished)} of {episodes} episodes; {lean}")
        raise typer.Exit(130)


def _show(result: Evaluation, used: Usage | None, log: Path | None, as_json: bool, data: str | None) -> None:
    if as_json:
        more = {} if used is None else {"executor": used._asdict()}
        typer.echo(json.dumps(result.as_dict() | more, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column()
    rows = {
        "environment": f"{result.env_id}, {result.split}",
        "policy": result.policy,
        "episodes": f"{result.episodes:,}",
        "success": share(result.success, result.success_interval),
        "score": share(result.score, result.score_interval),
        "return": f"{result.mean_return:.2f}",
        "steps": f"{result.mean_length:.1f}",
        "invalid actions": share(result.invalid_rate),
        "out of steps": share(result.truncated_rate),
    }
    troubles = {"lost episodes": result.errors, "failed requests": result.failed_requests}
    rows |= {name: str(count) for name, count in troubles.items() if count}
    if used is not None:
        rows |= executor.used_rows(used)
    for name, value in rows.items():
        table.add_row(name, printed(value))
    show_table(table)
    if log is not None:
        advice = f"Check it with: {environments.check_command(log, data)}"
        stdout().print(printed(f"\nThe log is {log}. {advice}"), soft_wrap=True)
