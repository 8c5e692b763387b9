"""Read JSON files in the package into typed values.

A JSON object becomes a `Content` or dict, a list becomes a tuple, and a text becomes a member of an enumeration by its
value.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import TypeVar

import msgspec

from agentgym_flow._util.values import typed
from agentgym_flow.errors import BadData

T = TypeVar("T")


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object. Fields without a default must be there."""


def read_content(package: str, file: str, kind: type[T]) -> T:
    """Return the content of a JSON file in a package, as `kind`.

    Args:
        package: such as `agentgym_flow.envs.webshop.generator`.
        file: the name of the file, such as `departments/beauty.json`.
        kind: such as `tuple[X, ...]` or `dict[str, X]`, where `X` is a `Content`.

    Raises `BadData` if a value has a wrong type, with its position in the file.
    """
    return typed(json.loads(resources.files(package).joinpath(file).read_text("utf-8")), kind, BadData, file)
