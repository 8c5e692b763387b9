"""`agentgym-flow dataflow`: the manager of rollouts in a process of its own, and what can be seen of it."""

from __future__ import annotations

import typer

app = typer.Typer(help="Manage rollouts that are played by separate workers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Hold the commands, which other modules add: `app.command("name")(function)`."""
