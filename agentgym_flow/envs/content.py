"""Read JSON files in the package into typed values.

A JSON object becomes a named tuple, dataclass or dict, a list becomes a tuple, and a text becomes a member of an
enumeration by its value. Missing fields take their defaults. Values of a wrong type raise an error with their position
in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from importlib import resources
from types import GenericAlias
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from agentgym_flow.errors import BadData

T = TypeVar("T")


def read_content(package: str, file: str, kind: type[T]) -> T:
    """Return the content of a JSON file in a package, as `kind`.

    Args:
        package: such as `agentgym_flow.envs.webshop.generator`.
        file: the name of the file, such as `departments/beauty.json`.
        kind: `tuple[X, ...]`, `dict[str, X]`, or a named tuple or dataclass.

    Raises `BadData` if a value has a wrong type, with its position in the file.
    """
    return cast("T", _typed(kind, json.loads(resources.files(package).joinpath(file).read_text("utf-8")), file))


def _typed(kind: Any, value: Any, where: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list):
        kinds = [parts[0]] * len(value) if parts[1:] == (...,) else list(parts)
        if len(kinds) == len(value):
            pairs = zip(kinds, value, strict=True)
            return tuple(_typed(one, each, f"{where}[{i}]") for i, (one, each) in enumerate(pairs))
    elif origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _typed(parts[1], each, f"{where}.{key}") for key, each in value.items()}
    elif isinstance(kind, type) and not isinstance(kind, GenericAlias):
        if issubclass(kind, Enum) and value in (one.value for one in kind):
            return kind(value)
        if isinstance(value, dict) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            hints = _hints(cast("Any", kind))
            if unknown := sorted(value.keys() - hints.keys()):
                raise BadData(f"{where} has no field {unknown[0]!r}: the fields are {', '.join(hints)}")
            fields = {name: _typed(hints[name], each, f"{where}.{name}") for name, each in value.items()}
            try:
                return kind(**fields)
            except TypeError as error:  # a field without a default is missing
                raise BadData(f"{where}: {error}") from None
        if type(value) is kind or (kind is float and type(value) is int):
            return value
    elif origin is not None and value in parts:  # a Literal
        return value
    raise BadData(f"{where} must be {kind}, not {value!r:.80}")


@lru_cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)
