"""`agentgym-flow dataflow evaluate`: evaluate a team of policies that share episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow.cli.console import printed, share, stderr, stdout
from agentgym_flow.play import LiveSuccess


def evaluate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The run folder of each policy of the team.")],
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Play only the first N test tasks (default: all).")
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="Also evaluate the weights from before training.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the logs and summary.json into this folder.", file_okay=False)
    ] = None,
) -> None:
    """Evaluate policies that were trained together: they play the test tasks as a team, sampled and greedy.

    Each policy acts in its own turns, as in training. The success rate has a 95 % interval over tasks.
    """
    from agentgym_flow.dataflow.team import AFTER, BEFORE, Team
    from agentgym_flow.training.models import quiet

    quiet()
    team = Team(runs)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    summary = {}
    for moment in (BEFORE, AFTER) if before else (AFTER,):
        for greedy in (False, True):
            name = f"{moment}_{'greedy' if greedy else 'sampled'}"
            log = None if out is None else out / f"{name}.jsonl.gz"
            with LiveSuccess(stderr(), name, episodes) as progress:
                found, _ = team.evaluate(moment, greedy=greedy, num_episodes=episodes, log=log, on_episode=progress.add)
            summary[name] = found.as_dict()
            rate = share(found.success, found.success_interval)
            stdout().print(printed(f"{name.replace('_', ', ')}: success {rate}, {found.mean_length:.1f} steps"))
    if out is not None:
        (out / "summary.json").write_text(json.dumps(summary, indent=1), "utf-8")
