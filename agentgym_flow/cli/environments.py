"""The arguments of environments from the command line, and the command that verifies a log of one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym_flow import data as registry
from agentgym_flow._util.openai_access import only_model
from agentgym_flow.core import module_of
from agentgym_flow.data import FETCHED, DataSet
from agentgym_flow.envs import text_arguments
from agentgym_flow.episodes import NO_LIMITS, LoggedEpisode, limits_beyond_default, scan_log
from agentgym_flow.errors import BadSetting

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend, Usage


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


def env_settings(env_id: str, pairs: Iterable[str] | None, options: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the arguments of an environment, from `--env-arg` and from options that set some of them.

    Args:
        env_id: the environment.
        pairs: the values of `--env-arg`.
        options: argument -> the value of its option; None if the option was not given.

    Raises:
        UnknownOption: the environment does not take an argument.
        BadSetting: an argument is given twice; or no model is named and the server does not have exactly one.
    """
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    kwargs = text_arguments.env_settings(env_id, [*(pairs or ()), *given])
    if "executor" in kwargs or "dataset" in kwargs or options.get("data") is not None:
        _name_set(env_id, kwargs)
    url = kwargs.get("base_url")
    if isinstance(url, list) and url:
        url = url[0]  # servers that take turns have the same models
    if kwargs.get("executor") == "openai" and isinstance(url, str) and url and not kwargs.get("model"):
        kwargs["model"] = only_model(url)
    return kwargs


def _name_set(env_id: str, kwargs: dict[str, Any]) -> None:
    """Treat `data` as the name of a published set of Canvas if it is one, and neither registered nor a path."""
    from agentgym_flow.envs.canvas.env import ENV_ID
    from agentgym_flow.envs.canvas.tasks.sets import SETS

    name = str(kwargs.get("data"))
    if env_id != ENV_ID or name not in SETS or kwargs.get("dataset") not in (None, name):
        return
    if registry.place(name) is None and not Path(name).exists():
        kwargs["dataset"] = kwargs.pop("data")


def backend_of(kwargs: Mapping[str, Any]) -> OpenAIBackend | None:
    """Return the backend that environments with these arguments share; None if they use no server."""
    if kwargs.get("executor") != "openai" or not kwargs.get("base_url"):
        return None
    from agentgym_flow.envs.canvas.backends import openai_backend

    return openai_backend(kwargs["model"], kwargs["base_url"], kwargs.get("executor_settings"))


def used_rows(used: Usage) -> dict[str, str]:
    """Return the usage of a backend as rows of a table."""
    failed = f", {used.failures:,} failed" if used.failures else ""
    rows = {
        "operator calls": f"{used.calls:,}{failed}",
        "requests": f"{used.requests:,}",
        "tokens": f"{used.read:,} read, {used.written:,} written",
    }
    return rows if used.cost is None else rows | {"cost": f"{used.cost:.4f}"}
