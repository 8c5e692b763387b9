"""Environments of other packages, imported by name or through the entry point of an installed package.

An entry point in the group `agentgym_flow.plugins` names a module that registers environments on import:

    [project.entry-points."agentgym_flow.plugins"]
    maze = "my_pkg"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import gymnasium as gym

from agentgym_flow._util.importing import find_modules_here, imported_module
from agentgym_flow.errors import UnknownEnvironment

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
    from importlib.metadata import entry_points  # imported when used, because it takes longer than an environment

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
