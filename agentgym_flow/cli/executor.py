"""Options for environments that call a model: which model, on which problems, and how much it used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym_flow import data as registry
from agentgym_flow._util.openai_access import only_model
from agentgym_flow.envs import text_arguments

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend, Usage

Data = Annotated[
    str | None,
    typer.Option(help="A file, a folder or the name of registered data. Canvas: also a published set, from the Hub."),
]
SetName = Annotated[str | None, typer.Option("--dataset", help="Canvas: the published set that the data belongs to.")]
ExecutorName = Annotated[
    str | None, typer.Option("--executor", help="Canvas: the executor that runs the operators: simulated or openai.")
]
BaseUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Canvas: the executor's server, such as http://localhost:8000/v1.")
]
ExecutorModel = Annotated[
    str | None, typer.Option(metavar="NAME", help="Canvas: the executor's model. Optional if the server has only one.")
]


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
    from agentgym_flow.envs.canvas.tasks.sets.load import SETS

    name = str(kwargs.get("data"))
    if env_id != ENV_ID or name not in SETS or kwargs.get("dataset") not in (None, name):
        return
    if registry.place(name) is None and not Path(name).exists():
        kwargs["dataset"] = kwargs.pop("data")


def backend_of(kwargs: Mapping[str, Any]) -> OpenAIBackend | None:
    """Return the backend that environments with these arguments share; None if they use no server."""
    if kwargs.get("executor") != "openai" or not kwargs.get("base_url"):
        return None
    from agentgym_flow.envs.canvas.backends.executors import openai_backend

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
