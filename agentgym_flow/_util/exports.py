"""Names that a package offers, each imported when it is first asked for: importing the package stays light."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any


def on_demand(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: it imports what stands below `if TYPE_CHECKING:` in the package's source.

    Type checkers read these imports, so there is one list of names and where they come from.
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
    source = spec.loader.get_source(package)  # type: ignore[union-attr]  # every loader of source has it
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}
