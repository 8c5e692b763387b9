"""`agentgym-flow data`: give official data on this machine a name, and write generated data in official formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from agentgym_flow import data as registry
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import printed, show_table, stdout
from agentgym_flow.errors import BadData, UnknownEnvironment

app = typer.Typer(help="Register official data under a name, and list what is registered.", no_args_is_help=True)


@app.command("add")
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name that environments and logs use, such as boxoban.")
    ],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The file or folder.")],
) -> None:
    """Register a file or folder; its content is hashed, so that a change is noticed."""
    if not path:  # an unset variable of a shell; it would name the current folder
        raise BadData("PATH is empty; name a file or a folder")
    added = registry.add(name, path)
    stdout().print(printed(f"{added.name}: {added.path}, SHA-256 {added.sha256[:16]}..."), soft_wrap=True)


@app.command("list")
def list_data() -> None:
    """List the registered data."""
    known = registry.registered()
    if not known:
        stdout().print("No data is registered. Add some with: agentgym-flow data add NAME PATH", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "SHA-256", "path"):
        table.add_column(column, overflow="fold")
    for entry in known:
        table.add_row(entry.name, entry.sha256[:16], printed(str(entry.path)))
    show_table(table)


@app.command("export")
def export(
    env: Annotated[str, typer.Argument(metavar="ENV", help="The environment whose generated tasks are written.")],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where; made if it is missing.")],
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "valid",
    tasks: Annotated[int | None, typer.Option(help="Only the first so many.", min=1)] = None,
) -> None:
    """Write generated tasks as files in the official format, so that other tools play them (ALFWorld)."""
    from agentgym_flow.envs.alfworld import source
    from agentgym_flow.envs.alfworld.export import export_game

    if not folder:  # an unset variable of a shell; it would name the current folder
        raise BadData("FOLDER is empty; name a folder")
    env_id = environments.full_id(env)
    if env_id != source.ENV_ID:
        raise UnknownEnvironment.among(env_id, [source.ENV_ID], "Its tasks have an official file format.")
    games = source.GameSource(split=split)
    count = games.num_tasks if tasks is None else min(tasks, games.num_tasks)
    for task in track(range(count), description="games", console=stdout(), disable=not stdout().is_terminal):
        export_game(folder, games.split, task)
    stdout().print(
        printed(f"{count} games of {games.split}: {Path(folder) / source.OFFICIAL_FOLDERS[games.split]}"),
        soft_wrap=True,
    )
