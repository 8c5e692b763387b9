"""Environments by their ids, also those of other packages, imported by name or through an entry point.

An entry point in the group `agentgym_flow.plugins` names a module that registers environments on import:

    [project.entry-points."agentgym_flow.plugins"]
    maze = "my_pkg"
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from agentgym_flow._util.importing import find_modules_here, imported_module
from agentgym_flow.core.env import TextEnv
from agentgym_flow.errors import UnknownEnvironment, UnknownOption

GROUP = "agentgym_flow.plugins"
"""The group of entry points."""

_modules: dict[str, str] = {}  # id -> the module that registered it


def imported_ids() -> list[str]:
    """Return the ids of environments that other packages have registered through this module, in order."""
    return list(_modules)


def module_of(env_id: str) -> str | None:
    """Return the module that registered an id through this module; None for the ids of this package."""
    return _modules.get(env_id)


def import_environments(module: str) -> None:
    """Import a module that registers environments. This runs its code, so the name must come from the user.

    Modules in the current directory are found as well.

    Raises:
        UnknownEnvironment: there is no such module.
        BadModule: its code raised or exited.
    """
    find_modules_here()
    _record_ids(module, lambda: imported_module(module, UnknownEnvironment))


@cache
def load_plugins() -> None:
    """Import the modules of installed plugins, once per process. Plugins that fail are skipped with a warning."""
    for point in entry_points(group=GROUP):
        try:
            _record_ids(point.module, point.load)
        except (Exception, SystemExit) as error:
            name = type(error).__name__
            warnings.warn(f"plugin {point.name} ({point.value}) is left out: {name}: {error}", stacklevel=2)


def _record_ids(module: str, load: Callable[[], object]) -> None:
    """Call `load` and record the ids that it registers, even if it fails."""
    before = set(gym.registry)
    try:
        load()
    finally:
        _modules.update(dict.fromkeys(sorted(set(gym.registry) - before), module))


def make_text_env(env_id: str, **kwargs: Any) -> TextEnv:
    """Make a text environment by its id, without Gymnasium's checking wrappers, which double the time of a step.

    Raises `UnknownEnvironment` if the id is not registered or does not belong to a text environment, `UnknownOption`
    for unknown arguments, and the errors of the constructor.
    """
    kind = text_env_class(env_id)
    known = text_env_parameters(kind)
    for name in kwargs:
        if known is not None and name not in known:
            raise UnknownOption.among(name, known)
    return cast("TextEnv", gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped)


def text_env_class(env_id: str) -> type[TextEnv]:
    """Return the class of a registered text environment. Raises `UnknownEnvironment`."""
    # Only registered ids, because `gym.make("module:Name-v0")` would import any module named in a log or form.
    if env_id not in gym.registry:
        load_plugins()
    if env_id not in gym.registry:
        raise UnknownEnvironment.among(
            env_id,
            sorted(name for name in gym.registry if name.startswith("agentgym_flow/")),
            "The environments of another package are registered by importing it: --import MODULE.",
        )
    creator = gym.registry[env_id].entry_point
    kind = load_env_creator(creator) if isinstance(creator, str) else creator
    if not (isinstance(kind, type) and issubclass(kind, TextEnv)):
        raise UnknownEnvironment(f"{env_id} is not a text environment: its entry point is not a subclass of TextEnv")
    return kind


def text_env_parameters(kind: type[TextEnv]) -> Collection[str] | None:
    """Return the names of the arguments of an environment; None if it accepts any."""
    parameters = inspect.signature(kind).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return None if takes_any else parameters.keys()
