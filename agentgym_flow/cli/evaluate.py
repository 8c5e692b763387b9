"""`agentgym-flow evaluate`: play a split with a policy, show the success as it grows, write the log."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from agentgym_flow import evaluation
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import printed, share, show_table, stderr, stdout
from agentgym_flow.episode import Episode
from agentgym_flow.errors import AgentGymFlowError, BadPolicy
from agentgym_flow.evaluation import Evaluation
from agentgym_flow.policies import Move, Policy, View, make_policy
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS


def evaluate(
    env: environments.EnvName,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="random, expert, scripted, openai:MODEL@URL or module:callable.")
    ] = "random",
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes; task i is played with seed SEED + i.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first episode.")] = 0,
    env_arg: environments.EnvArgs = None,
    policy_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of an openai: policy, such as temperature=0.7. Repeatable."),
    ] = None,
    num_envs: Annotated[int, typer.Option(min=1, help="Episodes played at a time; changes nothing but time.")] = 64,
    log: Annotated[Path | None, typer.Option(help="Write the episode log here (.jsonl or .jsonl.gz).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure a policy on a split: success with a 95 % interval, and a log that anyone can verify.

    Ctrl-C keeps the episodes that have finished, sums them up and exits with status 130.
    """
    env_id = environments.full_id(env)
    with _code_of(policy):
        player = _Watched(make_policy(policy, env_id, **environments.settings(policy_arg, "--policy-arg")), policy)
    env_kwargs = environments.env_settings(env_id, env_arg)
    live, stopped = _Live(episodes), False
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
        except BadPolicy:
            if log is not None and live.finished:
                _note(f"the log {log} holds the {len(live.finished)} episodes that had finished")
            raise
    _show(result, log, as_json)
    if stopped:
        lean = "short ones finish first, so the figures lean to them"
        _note(f"stopped after {len(live.finished)} of {episodes} episodes; {lean}")
        raise typer.Exit(130)


def _note(text: str) -> None:
    stderr().print(printed(text), soft_wrap=True)


@contextmanager
def _code_of(policy: str) -> Iterator[None]:
    """Turn what the code of a policy raises into a `BadPolicy` that names the exception and the line."""
    try:
        yield
    except AgentGymFlowError:
        raise
    except (Exception, SystemExit) as error:  # it may be anyone's code, and a script may exit when it is imported
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        if not isinstance(error, SyntaxError):  # which says where it is
            frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
            what += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
        rest = "agentgym-flow --traceback evaluate ... shows the calls"
        raise BadPolicy(f"policy {policy!r} raised {what}; {rest}") from error


class _Watched:
    """A policy whose own exceptions are explained, and that is stopped when its server answers nothing at the start.

    In the middle of a run a failed request is data; at the start it is a wrong URL, name or key.
    """

    def __init__(self, policy: Policy, description: str) -> None:
        self.name = policy.name
        self._policy = policy
        self._description = description
        self._began = False

    def act(self, views: Sequence[View]) -> Sequence[Move]:
        """Return the moves of the policy. Raises `BadPolicy` as the class says."""
        with _code_of(self._description):
            moves = self._policy.act(views)
        if not self._began:
            self._began = True
            failures = [view.episode.meta.get(FAILED_REQUESTS) for view in views]
            if all(failures):
                kinds = ", ".join(sorted({failure[0]["failure"] for failure in failures if failure}))
                advice = "check that the server runs, the URL, the name of the model and OPENAI_API_KEY"
                raise BadPolicy(f"policy {self._description!r} got no answer at all ({kinds}); {advice}")
        return moves


class _Live:
    """The progress bar, the episodes it has counted, and their success so far."""

    def __init__(self, total: int) -> None:
        console = stderr()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.finished: list[Episode] = []
        self._successes = 0
        self._bar = self.progress.add_task("success", total=total)

    def add(self, episode: Episode) -> None:
        """Count a finished episode."""
        self.finished.append(episode)
        self._successes += episode.success
        count = len(self.finished)
        so_far = share(self._successes / count, evaluation.wilson(self._successes, count))
        self.progress.update(self._bar, advance=1, description=f"success {so_far}")


def _show(result: Evaluation, log: Path | None, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=1))
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
    troubles = {"errors": result.errors, "failed requests": result.failed_requests}
    rows |= {name: str(count) for name, count in troubles.items() if count}
    for name, value in rows.items():
        table.add_row(name, printed(value))
    show_table(table)
    if log is not None:
        stdout().print(printed(f"\nThe log is {log}. Check it with: agentgym-flow verify {log}"), soft_wrap=True)
