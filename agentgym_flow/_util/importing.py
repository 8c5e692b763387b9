"""Import what a user names as `module:attribute`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from agentgym_flow.errors import UnknownName


def imported(path: str, unknown: type[UnknownName]) -> Any:
    """Return what `module:attribute` names. Importing runs the module's code, so `path` must come from the user.

    Raises `unknown`, with the closest name, if the module or attribute does not exist.
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
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def imported_module(name: str, unknown: type[UnknownName]) -> Any:
    """Import a module and return it. Raises `unknown` if it does not exist, and whatever its code raises."""
    if not name or name.startswith("."):
        raise unknown(f"a module is named in full, such as my_pkg, got {name!r:.80}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise  # the module exists; something that it imports does not
        raise unknown(f"there is no module {error.name!r} on the path or in the current directory") from None


def what_raised(error: BaseException) -> str:
    """Return the name, the message and the line of an exception that a user's code raised, for an error message."""
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    if not isinstance(error, SyntaxError):  # its message already names the line
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
        what += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    return f"{what}; agentgym-flow --traceback COMMAND ... shows the traceback"
