"""`agentgym-flow dataflow`: run the rollout manager as its own process, and monitor it."""

from __future__ import annotations

import typer

app = typer.Typer(help="Manage, monitor and simulate rollouts that separate workers play.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Group the commands. Other modules add them with `app.command("name")(function)`."""
