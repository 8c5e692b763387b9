"""Imports by name: of what a user names as `module:attribute`, and of the exports of a package, at their first use."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from agentgym_flow.errors import AgentGymFlowError, BadModule, UnknownName


def imported(path: str, unknown: type[UnknownName]) -> Any:
    """Return what `module:attribute` names. Importing runs the module's code, so `path` must come from the user.

    Raises:
        unknown: the module or attribute does not exist; the message suggests the closest name.
        BadModule: the module's code raised or exited.
    """
    module_name, _, attribute = path.partition(":")
    module = imported_module(module_name, unknown)
    found = getattr(module, attribute, None)
    if found is None:
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown.among(attribute, public, f"These are the callables of module {module_name!r}.")
    return found


def find_modules_here() -> None:
    """Put the current directory on the path, as `python -m` does and console scripts do not."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)


def imported_module(name: str, unknown: type[UnknownName]) -> Any:
    """Import a module and return it.

    Raises:
        unknown: it does not exist.
        BadModule: its code raised or exited.
        AgentGymFlowError: as raised by its code.
    """
    if not name or name.startswith("."):
        raise unknown(f"a module is named in full, such as my_pkg, got {name!r:.80}")
    try:
        return importlib.import_module(name)
    except AgentGymFlowError:
        raise
    except (Exception, SystemExit) as error:  # an exit with status 0 would look like a success
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(missing + ".")):
            raise unknown(f"there is no module {missing!r} on the path or in the current directory") from None
        raise BadModule(f"module {name!r} raised {what_raised(error)}") from error


def what_raised(error: BaseException) -> str:
    """Return the name, the message and the line of an exception that a user's code raised, for an error message."""
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    if not isinstance(error, SyntaxError):  # its message already names the line
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
        what += f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})"
    return what


def on_demand(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package` that imports the names listed below `if TYPE_CHECKING:` in its source.

    Type checkers read the same imports, so names and their modules are listed once.
    """

    def lookup(name: str) -> Any:
        home = _homes(package).get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return lookup


@cache
def _homes(package: str) -> Mapping[str, str]:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    source = spec.loader.get_source(package)  # type: ignore[union-attr]  # all source loaders have it
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}
