"""Options that several commands have, each declared once, and commands whose options are the fields of a dataclass."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

_SECTION = "\n\nOptions:\n"

F = TypeVar("F", bound=Callable[..., Any])

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
Root = Annotated[Path, typer.Option(help="The folder with tracks, submissions and verdicts.", file_okay=False)]
Jobs = Annotated[int | None, typer.Option(min=0, help="Number of processes (default: one per core).")]
RequireSandbox = Annotated[
    bool,
    typer.Option("--require-sandbox", help="Replay nothing unless the sandbox has all walls that keep a log in."),
]
Most = Annotated[int, typer.Option(min=0, help="The largest number of tasks to list.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 chooses a free one.")]
TokenFile = Annotated[
    Path | None, typer.Option(help="The file with the workers' token. By default it is read from AGENTGYM_FLOW_TOKEN.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


class Commands(typer.Typer):
    """A group of commands, each a function whose docstring may describe options in a section `Options:`, its last."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Return a decorator that adds a command."""
        add = super().command(name, **settings)

        def described(function: F) -> F:
            if "__signature__" not in vars(function):
                signature, helps = inspect.signature(function, eval_str=True), _helps(function)
                parameters = [_with_help(one, helps) for one in signature.parameters.values()]
                _tell_typer(function, parameters, function)
            return add(function)

        return described


def command(kind: type[Any], order: str = "") -> Callable[..., None]:
    """Return a function for `Commands.command` that makes an object of its options and calls the method `run`.

    Args:
        kind: a dataclass. Its fields are the options, annotated as typer documents, and its docstring is the help. A
            section `Options:` at its end, or at the end of that of a base class, describes them.
        order: the names of the fields in the order of the help; empty for their own order.
    """

    def run(**options: Any) -> None:
        kind(**options).run()

    hints = get_type_hints(kind, include_extras=True)
    helps = {name: text for base in reversed(kind.__mro__) for name, text in _helps(base).items()}
    known = {
        one.name: inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=hints[one.name],
        )
        for one in fields(kind)
    }
    _tell_typer(run, [_with_help(known[name], helps) for name in order.split() or known], kind)
    return run


def _helps(described: object) -> dict[str, str]:
    """Return option -> help from the section `Options:` of a docstring."""
    section = (inspect.getdoc(described) or "").partition(_SECTION)[2]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _with_help(option: inspect.Parameter, helps: Mapping[str, str]) -> inspect.Parameter:
    if option.name not in helps:
        return option
    annotated = get_origin(option.annotation) is Annotated
    kind, info = get_args(option.annotation) if annotated else (option.annotation, typer.Option())
    info = copy.copy(info)
    info.help = helps[option.name]
    return option.replace(annotation=Annotated[kind, info])


def _tell_typer(function: Callable[..., Any], options: list[inspect.Parameter], described: object) -> None:
    """Give a function the options and the help that typer reads."""
    function.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in options}
    function.__doc__ = (inspect.getdoc(described) or "").partition(_SECTION)[0]
