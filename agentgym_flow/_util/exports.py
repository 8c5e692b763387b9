"""Lazy exports of a package: each name is imported at its first use, so importing the package stays fast."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any


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
