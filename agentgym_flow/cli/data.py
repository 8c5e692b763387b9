"""`agentgym-flow data`: give official data on this machine a name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentgym_flow import data as registry
from agentgym_flow.cli.console import printed, stdout

app = typer.Typer(help="Register official data under a name, and list what is registered.", no_args_is_help=True)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The name that environments and logs use, such as boxoban.")],
    path: Annotated[Path, typer.Argument(help="The file or folder.")],
) -> None:
    """Register a file or folder; its content is hashed, so that a change is noticed."""
    added = registry.add(name, path)
    stdout().print(printed(f"{added.name}: {added.path}, SHA-256 {added.sha256[:16]}..."), soft_wrap=True)


@app.command("list")
def list_data() -> None:
    """List the registered data."""
    known = registry.registered()
    if not known:
        stdout().print("No data is registered. Add some with: agentgym-flow data add NAME PATH")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "SHA-256", "path"):
        table.add_column(column, overflow="fold")
    for entry in known:
        table.add_row(entry.name, entry.sha256[:16], printed(str(entry.path)))
    stdout().print(table)
