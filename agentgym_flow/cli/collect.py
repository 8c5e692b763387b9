"""`agentgym-flow collect`: record demonstrations as an episode log or as rows for supervised fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow._util.files import check_new
from agentgym_flow._util.signals import exit_status, sigterm_raises
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import Force, note, say
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
    explained_failure,
    guarded_policy,
    is_complete,
    leave,
    note_remarks,
    policy_settings,
    say_how_to_resume,
)
from agentgym_flow.envs import text_arguments
from agentgym_flow.play import Evaluation, check_complete, demonstrations, path_of


def collect(
    env: environments.EnvName,
    out: Annotated[Path, typer.Option(help="The file to write (.jsonl or .jsonl.gz).")],
    policy: PolicyName = "expert",
    episodes: Episodes = None,
    attempts: Attempts = 1,
    task_type: TaskTypes = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "train",
    form: Annotated[
        str,
        typer.Option("--format", help="log: an episode log. sft: one row per turn, with prompt and completion."),
    ] = "log",
    template: Annotated[
        str, typer.Option(help="The prompt template of the rows: text, or another one of the environment.")
    ] = "text",
    seed: Annotated[int, typer.Option(min=0, help="The seed of task 0. Task i is played with SEED + i.")] = 0,
    env_arg: environments.EnvArgs = None,
    policy_arg: PolicyArgs = None,
    patience: Patience = None,
    num_envs: NumEnvs = 64,
    resume: Resume = False,
    force: Force = False,
) -> None:
    """Record demonstrations of a policy, for behaviour cloning or supervised fine-tuning.

    On Ctrl-C or SIGTERM the command keeps the finished episodes and exits with status 130 or 143. Continue the run with
    --resume.
    """
    env_id = text_arguments.full_id(env)
    ended = is_complete(out, resume, force)
    if not ended:  # before any request to a model
        check_new(out, replace=force or (resume and path_of(out).exists()))
    player = guarded_policy(policy, env_id, **policy_settings(policy, policy_arg, patience=patience, num_envs=num_envs))
    env_kwargs = text_arguments.env_settings(env_id, env_arg)
    if ended and form == "log":  # rows do not show of which episodes they are
        check_complete(
            out,
            player,
            env_id,
            split=split,
            num_episodes=episodes,
            attempts=attempts,
            task_types=task_type,
            seed=seed,
            env_kwargs=env_kwargs,
        )
    if ended:
        leave(out)
    live = Live(num_envs)
    with sigterm_raises(), live.progress, explained_failure(out, live, name=str(out)):
        try:
            result = demonstrations.collect(
                player,
                env_id,
                out,
                form=form,
                template=template,
                split=split,
                num_episodes=episodes,
                attempts=attempts,
                task_types=task_type,
                seed=seed,
                env_kwargs=env_kwargs,
                num_envs=num_envs,
                replace=force,
                resume=resume,
                on_plan=live.begin,
                on_episode=live.add,
            )
        except KeyboardInterrupt as interrupt:
            if live.finished:
                note(f"{out} holds {live.kept}")
            say_how_to_resume(out)
            raise typer.Exit(exit_status(interrupt)) from None
    note_remarks(live, player, Evaluation.of(live.finished, player.name))
    advice = f". Check it with: {environments.check_command(out, env_kwargs, env_id)}" if form == "log" else ""
    say(f"{result.episodes:,} episodes, {result.turns:,} turns, {result.successes:,} successful: {out}{advice}")
