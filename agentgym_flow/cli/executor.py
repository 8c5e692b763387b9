"""Options for environments whose work a model does: which one, on which problems, and what it used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym_flow import data as registry
from agentgym_flow._util.openai_access import only_model
from agentgym_flow.cli import environments

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend, Usage

Data = Annotated[
    str | None,
    typer.Option(help="A file, a folder or registered data to play; for Canvas also a published set, through the Hub."),
]
SetName = Annotated[str | None, typer.Option("--dataset", help="Canvas: the published set that the data are of.")]
ExecutorName = Annotated[
    str | None, typer.Option("--executor", help="Canvas: who does the work of the operators: simulated or openai.")
]
BaseUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Canvas: the server of the executor, http://localhost:8000/v1.")
]
ExecutorModel = Annotated[
    str | None, typer.Option(metavar="NAME", help="Canvas: its model; the server's only one unless told.")
]


def env_settings(env_id: str, pairs: Iterable[str] | None, options: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the arguments of an environment, of `--env-arg` and of options that stand for some of them.

    Args:
        env_id: the environment.
        pairs: what `--env-arg` says.
        options: argument -> what the option for it says; None where it was not given.

    Raises:
        UnknownOption: the environment does not take an argument.
        BadSetting: an argument is given twice; or no model is named, and the server does not have just one.
    """
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    kwargs = environments.env_settings(env_id, [*(pairs or ()), *given])
    if "executor" in kwargs or "dataset" in kwargs or options.get("data") is not None:
        _name_set(env_id, kwargs)
    url = kwargs.get("base_url")
    if isinstance(url, list) and url:
        url = url[0]  # servers that take turns have the same models
    if kwargs.get("executor") == "openai" and isinstance(url, str) and url and not kwargs.get("model"):
        kwargs["model"] = only_model(url)
    return kwargs


def _name_set(env_id: str, kwargs: dict[str, Any]) -> None:
    """Take data that are neither registered nor a path, but a published set of Canvas, for its name."""
    from agentgym_flow.envs.canvas.env import ENV_ID
    from agentgym_flow.envs.canvas.tasks.sets.load import SETS

    name = str(kwargs.get("data"))
    if env_id != ENV_ID or name not in SETS or kwargs.get("dataset") not in (None, name):
        return
    if registry.place(name) is None and not Path(name).exists():
        kwargs["dataset"] = kwargs.pop("data")


def backend_of(kwargs: Mapping[str, Any]) -> OpenAIBackend | None:
    """Return the backend that the environments with these arguments share; None where no server does the work."""
    if kwargs.get("executor") != "openai" or not kwargs.get("base_url"):
        return None
    from agentgym_flow.envs.canvas.backends.executors import openai_backend

    return openai_backend(kwargs["model"], kwargs["base_url"], kwargs.get("executor_settings"))


def used_rows(used: Usage) -> dict[str, str]:
    """Return what a backend used, as rows of a table."""
    failed = f", {used.failures:,} failed" if used.failures else ""
    rows = {
        "operator calls": f"{used.calls:,}{failed}",
        "requests": f"{used.requests:,}",
        "tokens": f"{used.read:,} read, {used.written:,} written",
    }
    return rows if used.cost is None else rows | {"cost": f"{used.cost:.4f}"}
