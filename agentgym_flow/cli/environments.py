"""Options that select an environment, and the command that verifies a log of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from agentgym_flow import data as registry
from agentgym_flow.core import module_of
from agentgym_flow.data import FETCHED, DataSet
from agentgym_flow.episodes import NO_LIMITS, LoggedEpisode, limits_beyond_default, scan_log
from agentgym_flow.errors import BadSetting

EnvName = Annotated[
    str, typer.Argument(metavar="ENV", help="An id such as Sokoban-v0 or my_pkg:Maze-v0. `list` shows all ids.")
]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option("--env-arg", metavar="KEY=VALUE", help="An argument of the environment, such as boxes=2. Repeatable."),
]


def check_command(
    log: str | os.PathLike[str], env_kwargs: Mapping[str, Any] | None = None, env_id: str | None = None
) -> str:
    """Return the command that verifies `log`, whose environment was made with these arguments.

    The command adds what the log does not store: the path of data on disk (the log has only a name), and imports of
    third-party modules (that of the environment, and those of `module:Class` arguments). It also allows the download of
    data that was downloaded, and raises the limits that the log exceeds. Words are quoted for a shell.
    """
    words = ["agentgym-flow", "verify", str(log)]
    settings = dict(env_kwargs or {})
    data = settings.pop("data", None)
    lists = [value for value in settings.values() if isinstance(value, list | tuple)]
    named = [one.partition(":")[0] for value in lists for one in value if isinstance(one, str) and ":" in one]
    own = None if env_id is None else module_of(env_id)
    for module in dict.fromkeys([*([own] if own else []), *named]):
        words += ["--import", module]
    if data is not None:
        found = registry.resolve(data)
        if registry.place(found.name) != found.path:
            words += ["--data", f"{found.name}={found.path if isinstance(data, DataSet) else os.fspath(data)}"]
    first = next((episode for _, episode in scan_log(log, NO_LIMITS)), None)
    if isinstance(first, LoggedEpisode) and any(name.startswith(FETCHED) for name in first.data):
        words.append("--fetch")
    for name, value in limits_beyond_default(log).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def data_paths(pairs: Iterable[str] | None) -> dict[str, str]:
    """Return `NAME=PATH` arguments as a mapping. Raises `BadSetting` for an argument without `=`."""
    result: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise BadSetting(f"--data takes NAME=PATH, got {pair!r}")
        result[name] = path
    return result
