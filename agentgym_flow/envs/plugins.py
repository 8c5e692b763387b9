"""Environments of other packages: brought by name, or by an entry point of an installed package.

An entry point in the group `agentgym_flow.plugins` names a module that registers environments when it is imported:

    [project.entry-points."agentgym_flow.plugins"]
    maze = "my_pkg"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import gymnasium as gym

from agentgym_flow._util.importing import find_modules_here, imported_module
from agentgym_flow.errors import UnknownEnvironment

GROUP = "agentgym_flow.plugins"
"""The group of entry points that is read."""

_brought: dict[str, str] = {}


def brought_ids() -> list[str]:
    """Return the ids of environments that other packages have registered here, in order."""
    return list(_brought)


def module_of(env_id: str) -> str | None:
    """Return the module whose import has registered an id here; None for the ids of this package."""
    return _brought.get(env_id)


def bring(module: str) -> None:
    """Import a module, which registers environments. It runs the module's code, so its name must come from the user.

    Modules of the current directory are found as well. Raises `UnknownEnvironment` if there is no such module.
    """
    find_modules_here()
    _noting(module, lambda: imported_module(module, UnknownEnvironment))


@cache
def load_plugins() -> None:
    """Import the modules that installed packages name, once per process. One that fails is left out with a warning."""
    for point in entry_points(group=GROUP):
        _load(point)


def _load(point: EntryPoint) -> None:
    try:
        _noting(point.module, point.load)
    except Exception as error:
        name = type(error).__name__
        warnings.warn(f"plugin {point.name} ({point.value}) is left out: {name}: {error}", stacklevel=2)


def _noting(module: str, load: Callable[[], object]) -> None:
    """Load something, and note the ids that it registers, and whose they are."""
    before = set(gym.registry)
    try:
        load()
    finally:
        _brought.update(dict.fromkeys(sorted(set(gym.registry) - before), module))
