"""From `module:attribute`, which a user has written, to what it names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from agentgym_flow.errors import UnknownName


def imported(path: str, unknown: type[UnknownName]) -> Any:
    """Return what `module:attribute` names. Importing runs the module's code, so `path` must come from the user.

    Raises `unknown` if there is no such module or attribute; the closest name is proposed.
    """
    module_name, _, attribute = path.partition(":")
    module = imported_module(module_name, unknown)
    found = getattr(module, attribute, None)
    if found is None:
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown.among(attribute, public, f"These are the callables of module {module_name!r}.")
    return found


def find_modules_here() -> None:
    """Let modules of the current directory be imported: a console script, unlike `python -m`, does not find them."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def imported_module(name: str, unknown: type[UnknownName]) -> Any:
    """Import a module and return it. Raises `unknown` if there is none; what its code raises passes through."""
    if not name or name.startswith("."):
        raise unknown(f"a module is named in full, such as my_pkg, got {name!r:.80}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise  # the module is there; something that it imports is not
        raise unknown(f"there is no module {error.name!r} on the path or in the current directory") from None
