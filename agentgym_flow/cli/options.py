"""Options that several commands have, each declared once, and commands whose options are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

EnvName = Annotated[
    str, typer.Argument(metavar="ENV", help="An id such as Sokoban-v0 or my_pkg:Maze-v0. `list` shows all ids.")
]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option("--env-arg", metavar="KEY=VALUE", help="An argument of the environment, such as boxes=2. Repeatable."),
]
Split = Annotated[str, typer.Option(help="train, valid or test.")]
Attempts = Annotated[int, typer.Option(min=1, help="Episodes per task.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed of task 0. Task i is played with SEED + i.")]
PolicyName = Annotated[
    str,
    typer.Option("--policy", "-p", help="random, expert, scripted, openai:MODEL@URL, hf:FOLDER or module:callable."),
]
PolicyArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-arg",
        metavar="KEY=VALUE",
        help="A setting of an openai: or hf: policy, such as temperature=0.7 or shots=2. Repeatable.",
    ),
]
LogPath = Annotated[Path, typer.Argument(metavar="LOG", dir_okay=False, help="An episode log, .jsonl or .jsonl.gz.")]
DataPaths = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME=PATH", help="The path of official data that is not registered. Repeatable."),
]
Jobs = Annotated[int | None, typer.Option(min=0, help="Number of processes (default: one per core).")]
Most = Annotated[int, typer.Option(min=0, help="The largest number of tasks to list.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 chooses a free one.")]
TokenFile = Annotated[
    Path | None, typer.Option(help="The file with the workers' token. By default it is read from AGENTGYM_FLOW_TOKEN.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def command(kind: type[Any], order: str = "") -> Callable[..., None]:
    """Return a function for `app.command` that makes an object of its options and calls the method `run`.

    Args:
        kind: a dataclass. Its fields are the options, annotated as typer documents, and its docstring is the help.
        order: the names of the fields in the order of the help; empty for their own order.
    """

    def run(**options: Any) -> None:
        kind(**options).run()

    hints = get_type_hints(kind, include_extras=True)
    defaults = {one.name: inspect.Parameter.empty if one.default is MISSING else one.default for one in fields(kind)}
    run.__doc__ = kind.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads it
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hints[name])
            for name in order.split() or defaults
        ]
    )
    run.__annotations__ = hints
    return run
