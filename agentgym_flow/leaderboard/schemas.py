"""Check the files of a leaderboard against their published JSON Schemas."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from agentgym_flow.errors import AgentGymFlowError, MissingExtra

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]


def check(schema: str, value: Any, error: type[AgentGymFlowError], where: str) -> None:
    """Raise `error` with a message that starts with `where`, unless `value` follows the schema, such as `track-1`.

    Raises `MissingExtra` if the package jsonschema is not installed.
    """
    found = next(iter(sorted(_validator(schema).iter_errors(value), key=lambda one: list(map(str, one.path)))), None)
    if found is None:
        return
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.path).lstrip(".")
    raise error(f"{where}: {f'{place}: ' if place else ''}{found.message:.300}")


@cache
def _validator(schema: str) -> Draft202012Validator:
    try:
        from jsonschema import Draft202012Validator
    except ImportError as error:
        raise MissingExtra.of("jsonschema", "leaderboard") from error
    text = files("agentgym_flow.leaderboard").joinpath("schemas", f"{schema}.json").read_text("utf-8")
    return Draft202012Validator(json.loads(text))
